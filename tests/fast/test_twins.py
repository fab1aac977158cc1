"""Fast paths against their references: the kernels, the incremental torch path, deferred weights, shared features."""

import math
from unittest.mock import Mock

import pytest
import torch
from torch.autograd import forward_ad, gradcheck

from latflow.fast import compiled, layers, off
from latflow.fast.hidden import SerialStep
from latflow.fast.linear import defer, linear, linear_across
from latflow.flows import (
    LSTM,
    Affine,
    Autoregressive,
    Layer,
    LSTMContext,
    Mixture,
    NLSq,
    Packing,
    Positions,
    Raw,
    SequenceFlow,
    SplitCoupling,
)
from latflow.flows.recurrent import lstm_cell
from tests.flows.cases import HIDDEN, sequence_flow
from tests.flows.test_scalar import hostile, ulps_off

# A few roundings, of sums of up to a hundred terms.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}


@pytest.fixture(params=[False, True], ids=["torch", "numba"])
def _kernels(request, monkeypatch):
    if request.param:
        pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "AVAILABLE", request.param)


def randomise(module: torch.nn.Module, std: float = 0.3) -> None:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scalar", [NLSq(scale=(0.4, 0.3, 0.4)), Affine(0.4)])
@pytest.mark.parametrize("depth", [1, 2])
def test_unit_by_unit_equals_a_full_pass_per_dimension(scalar, dtype, depth):
    flow = Autoregressive(7, 3, scalar, context_size=4, units=16, depth=depth).to(dtype)
    randomise(flow)
    for n in (1, 3, 40):  # dot products, a last row, and two blocks of different width
        eps, context = torch.randn(n, 7, dtype=dtype), torch.randn(n, 4, dtype=dtype)
        with torch.no_grad():
            z, logdet = flow(eps, context)
            with off():
                expected_z, expected_logdet = flow(eps, context)
            back, _ = flow.inverse(z, context)
        scale = 1 + expected_z.abs().max()
        assert (z - expected_z).abs().max() < TOLERANCE[dtype] * scale
        assert (logdet - expected_logdet).abs().max() < 10 * TOLERANCE[dtype]
        assert (back - eps).abs().max() < 10 * TOLERANCE[dtype] * scale


@pytest.mark.usefixtures("_kernels")
def test_a_flow_without_context_takes_any_leading_axes():
    flow = Autoregressive(5, 2, units=8)
    randomise(flow)
    eps = torch.randn(2, 3, 5)
    with torch.no_grad():
        z, logdet = flow(eps)
        with off():
            expected = flow(eps)
    assert z.shape == (2, 3, 5)
    assert logdet.shape == (2, 3)
    torch.testing.assert_close(z, expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2.0, 40.0, 1e4])
def test_the_root_far_from_the_origin_is_that_of_torch(size):
    kernels = pytest.importorskip(
        "latflow.fast.kernels.generation", reason="needs numba", exc_type=ImportError
    )
    generator = torch.Generator().manual_seed(1)
    eps, a, log_b, log_d, g = (torch.randn(200, dtype=torch.float64, generator=generator) for _ in range(5))
    eps, g = size * eps, size * g
    c = 3 * torch.randn(200, dtype=torch.float64, generator=generator)
    scalar = NLSq()
    raw = torch.stack([a, log_b, c, log_d, g], -1)
    expected, logdet = scalar.forward(eps, raw)
    kappa = scalar.kappa_bound * torch.tanh(c)
    rows = zip(*(column.tolist() for column in (eps, a, log_b, kappa, log_d, g)), strict=True)
    found = torch.tensor([kernels.nlsq_forward(*row) for row in rows], dtype=torch.float64)
    torch.testing.assert_close(found[:, 0], expected, rtol=1e-12, atol=1e-12 * size)
    torch.testing.assert_close(found[:, 1], logdet, rtol=1e-9, atol=1e-9)


def compiled_nlsq(scalar: NLSq, eps: torch.Tensor, raw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """z and log-determinant of the kernel where each row of eps (n, H) has its own raw (n, 5) for all dimensions.

    The units are the positive and the negative parts of raw, given as context; all are known from the start.
    """
    kernels = pytest.importorskip(
        "latflow.fast.kernels.generation", reason="needs numba", exc_type=ImportError
    )
    size, zeros = eps.shape[1], eps.new_zeros
    identity = torch.eye(5, dtype=eps.dtype)
    last = torch.cat([identity, -identity], 1)[:, None].repeat(1, size, 1)
    arrays = (
        eps,
        torch.cat([raw, -raw], -1)[:, None],
        zeros(1, 10, size),
        zeros(1, 0, 10, 10),
        zeros(1, 1, 10),
        last[None],
        zeros(1, 5, size),
        torch.tensor([0] + size * [10]),
    )
    settings = (scalar.kappa_bound, *scalar.scale)
    z, logdet = kernels.made_forward(*(array.numpy() for array in arrays), kernels.NLSQ, settings)
    return torch.from_numpy(z), torch.from_numpy(logdet)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.95, 1 - 1e-9])
def test_the_compiled_root_is_backward_stable_and_finite_everywhere(dtype, alpha):
    """To 16 units in the last place, as that of torch; so near 1, some rows need bisection."""
    scalar = NLSq(alpha)
    y, raw = hostile(300_000, dtype, alpha)
    z, logdet = compiled_nlsq(scalar, y[:, None], raw)
    assert z.isfinite().all()
    assert logdet.isfinite().all()
    assert ulps_off(scalar, z[:, 0], y, raw) <= 16
    for row in range(0, 300_000, 1000):
        z, _ = compiled_nlsq(scalar, y[row : row + 1, None], raw[row : row + 1])
        assert ulps_off(scalar, z[:, 0], y[row : row + 1], raw[row : row + 1]) <= 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_log_determinants_of_many_flat_dimensions_stay_within_range(dtype, rows):
    """At the flattest point every one of 500 dimensions has deps/dz = 1 - α: together far below the least number."""
    scalar = NLSq()
    raw = torch.tensor([0.0, 0.0, 20.0, 0.0, 0.0], dtype=dtype).expand(rows, 5)
    flattest = math.sqrt(1 / 3) + 0.75 * scalar.kappa_bound
    _, logdet = compiled_nlsq(scalar, torch.full((rows, 500), flattest, dtype=dtype), raw)
    expected = torch.full_like(logdet, -500 * math.log(1 - scalar.alpha))
    torch.testing.assert_close(logdet, expected, rtol=TOLERANCE[dtype], atol=0)


def test_the_compiled_cell_equals_the_torch_cell(monkeypatch):
    pytest.importorskip("numba")
    gates, c = 4 * torch.randn(3, 4 * 13), torch.randn(3, 13)
    gates[0, 0], gates[0, 40] = 50, -50  # saturated
    with torch.no_grad():
        found = lstm_cell(gates.clone(), c)
        monkeypatch.setattr(compiled, "AVAILABLE", False)
        expected = lstm_cell(gates.clone(), c)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_the_gradients_of_the_compiled_cell_equal_those_of_torch(monkeypatch):
    pytest.importorskip("numba")
    lstm, packing = LSTM(4, 13, 2, bidirectional=True), Packing(torch.tensor([3, 5, 1]))
    randomise(lstm, 1.0)
    x, weight = torch.randn(packing.rows, 4, requires_grad=True), torch.randn(packing.rows, 26)
    found = []
    for available in (True, False):
        monkeypatch.setattr(compiled, "AVAILABLE", available)
        found.append(torch.autograd.grad((lstm(x, packing) * weight).sum(), [x, *lstm.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize(
    ("scalar", "skip", "depth"),
    [
        (NLSq(scale=(0.4, 0.3, 0.4)), False, 1),
        (NLSq(scale=(0.4, 0.3, 0.4)), False, 2),
        (NLSq(scale=(0.4, 0.3, 0.4)), True, 2),
        (Mixture(2), True, 1),
        (Mixture(3), False, 2),
    ],
    ids=["nlsq", "nlsq-deep", "nlsq-skip", "mixture-skip", "mixture"],
)
def test_the_compiled_stack_and_its_gradients_equal_those_of_torch(
    monkeypatch, dtype, hidden, scalar, skip, depth
):
    """The serial density, whose steps are one node each; walked twice, for a walk must leave the graph as it was."""
    pytest.importorskip("numba")
    stack = HIDDEN[hidden](5, 3, scalar, 6, units=8, depth=depth, skip=skip)
    flow = SequenceFlow(stack, LSTMContext(Raw(5), 6, 2, max_T=4), "iaf").to(dtype)
    randomise(flow, 0.2 if skip or isinstance(scalar, Mixture) else 0.4)
    z, lengths = 2 * torch.randn(3, 4, 5, dtype=dtype), torch.tensor([4, 2, 4])
    z.requires_grad_()
    nodes = Mock(wraps=layers.density)
    monkeypatch.setattr(layers, "density", nodes)
    found = {}
    for available in (True, False):
        monkeypatch.setattr(compiled, "AVAILABLE", available)
        eps, logdet = flow.inverse(z, lengths)
        loss = eps.sin().sum() + logdet.square().sum()
        walks = [torch.autograd.grad(loss, [z, *flow.parameters()], retain_graph=True) for _ in range(2)]
        found[available] = (eps, logdet, *walks)
    assert nodes.call_count == 4
    tolerance = 100 * TOLERANCE[dtype]
    torch.testing.assert_close(found[True], found[False], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", ["scf", "none"])
def test_compiled_generation_in_steps_equals_that_of_torch(monkeypatch, dtype, hidden):
    pytest.importorskip("numba")
    scalar = NLSq(scale=(0.4, 0.3, 0.4))
    flow = SequenceFlow(
        HIDDEN[hidden](5, 3, scalar, 6, units=8), LSTMContext(Raw(5), 6, 2, max_T=4), "af"
    ).to(dtype)
    randomise(flow, 0.4)
    eps, lengths = 2 * torch.randn(3, 4, 5, dtype=dtype), torch.tensor([4, 2, 4])
    calls = Mock(wraps=layers.generate)
    monkeypatch.setattr(layers, "generate", calls)
    with torch.no_grad():
        found = flow(eps, lengths)
        assert calls.call_count == 4
        monkeypatch.setattr(compiled, "AVAILABLE", False)
        expected = flow(eps, lengths)
    assert calls.call_count == 4
    torch.testing.assert_close(found, expected, rtol=10 * TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])


def test_the_compiled_stack_leaves_frozen_weights_alone():
    pytest.importorskip("numba")
    flow = SplitCoupling(4, 2, units=6)
    randomise(flow)
    flow.requires_grad_(False)
    z = torch.randn(3, 4, requires_grad=True)
    step = flow.stepper("inverse")
    assert isinstance(step, SerialStep)
    assert step.stack is not None
    found = torch.autograd.grad(step(z)[1].sum(), z)
    torch.testing.assert_close(found, torch.autograd.grad(flow.inverse(z)[1].sum(), z))
    assert not any(weight.tape.grads for layer in step.stack for weight in layer.network)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_lstm_without_gradients_gives_the_numbers_of_training(bidirectional):
    lstm, packing = LSTM(4, 6, 2, bidirectional=bidirectional), Packing(torch.tensor([3, 5, 1]))
    x = torch.randn(packing.rows, 4)
    with torch.no_grad():
        found = lstm(x, packing)
    torch.testing.assert_close(found, lstm(x, packing).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_kernels")
def test_steps_with_the_product_the_other_way_round_give_the_numbers_of_training(monkeypatch):
    lstm = LSTM(4, 6, 2)
    randomise(lstm)
    x, features = torch.randn(3, 20, 4), torch.randn(3, 20, 24)
    state = [(torch.randn(20, 6), torch.randn(20, 6)) for _ in range(2)]

    def run():
        outputs, now, step = [], state, lstm.stepper()
        for t, n in enumerate((20, 20, 17)):  # three sequences end before the last step
            output, now = step(x[t, :n], [(h[:n], c[:n]) for h, c in now], features[t, :n])
            outputs.append(output)
        return torch.cat(outputs)

    expected = run().detach()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with torch.no_grad():
        found = run()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_kernels")
def test_generation_of_many_rows_on_several_threads_gives_the_numbers_of_one(monkeypatch):
    flow = SequenceFlow(
        Autoregressive(4, 2, context_size=6, units=8), LSTMContext(Layer(4, 5), 6, 2, 9), "af"
    )
    randomise(flow)
    packing = Packing(torch.tensor([4] * 20 + [2] * 3))
    eps = torch.randn(packing.rows, 4)
    with torch.no_grad():
        expected = flow.forward_rows(eps, packing)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
        products = Mock(wraps=linear_across)
        monkeypatch.setattr("latflow.fast.hidden.linear_across", products)
        found = flow.forward_rows(eps, packing)
    assert products.call_count == (4 if compiled.AVAILABLE else 0)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("sequences", "samples"), [(1, 1), (3, 1), (2, 4)])
@pytest.mark.parametrize("chunk", [5, 12])
def test_torchs_fused_layer_gives_the_numbers_of_training(
    monkeypatch, bidirectional, sequences, samples, chunk
):
    monkeypatch.setattr(
        "latflow.fast.recurrent.CHUNK", chunk
    )  # 12 steps: two whole parts and one of two, or all
    lstm = LSTM(4, 6, 2, bidirectional=bidirectional)
    randomise(lstm)
    positions = Positions(20, lstm.gate_size, 0.5)
    packing = Packing(torch.full((sequences,), 12), samples)
    x, places = torch.randn(packing.rows, 4), packing.places
    features = positions(places.step, places.remaining)
    start = [(torch.randn(packing.active[0], 6), torch.randn(packing.active[0], 6)) for _ in range(2)]
    calls = Mock(wraps=torch.lstm)
    monkeypatch.setattr(torch, "lstm", calls)
    with torch.no_grad():
        found = lstm(x, packing, features, start)
    count = 1 + (lstm.directions * 3 if chunk == 5 else 1)  # the second layer has no features: it is whole
    assert calls.call_count == count
    expected = lstm(x, packing, features, start).detach()
    assert calls.call_count == count
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("lengths", "per_place"), [([2, 4], 3), ([4, 4], 6)])
def test_position_features_shared_at_a_place_equal_repeated_ones(lengths, per_place):
    lstm, packing = LSTM(3, 4, 2, bidirectional=True), Packing(torch.tensor(lengths), samples=3)
    assert packing.per_place == per_place
    positions = (packing.places.step, packing.places.remaining)
    for found, expected in zip(positions, (packing.step, packing.remaining), strict=True):
        assert torch.equal(found.repeat_interleave(per_place), expected)
    x = torch.randn(packing.rows, 3, requires_grad=True)
    features = torch.randn(packing.places.rows, lstm.gate_size, requires_grad=True)
    found, expected = lstm(x, packing, features), lstm(x, packing, features.repeat_interleave(per_place, 0))
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    grads = [
        torch.autograd.grad((y * weight).sum(), (x, features, *lstm.parameters())) for y in (found, expected)
    ]
    torch.testing.assert_close(*grads)


@pytest.mark.usefixtures("double")
def test_deferred_weights_have_the_gradients_of_autograd_however_often_the_graph_is_walked():
    matrix, bias = torch.randn(3, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    x = torch.randn(2, 3, requires_grad=True)

    def serial(product):
        y = x
        for _ in range(4):
            y = product(y).tanh()
        return y.square().sum()

    prepared = defer(matrix, bias)
    found = serial(lambda y: linear(y, prepared))
    expected = serial(lambda y: torch.nn.functional.linear(y, matrix, bias))
    of = (x, matrix, bias)
    want = torch.autograd.grad(expected, of)
    torch.autograd.grad(
        found, x, retain_graph=True
    )  # a walk that stops before the weights leaves nothing behind
    torch.testing.assert_close(torch.autograd.grad(found, of, retain_graph=True), want)
    torch.testing.assert_close(torch.autograd.grad(found, of), want)
    # Used both ways, the gradients add up.
    weight = defer(matrix, bias)
    both = torch.autograd.grad(serial(lambda y: linear(y, weight)) + weight.matrix.square().sum(), matrix)[0]
    torch.testing.assert_close(both, want[1] + 2 * matrix.detach())


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("hidden", [Autoregressive, SplitCoupling])
@pytest.mark.parametrize("time", ["af", "iaf"])
def test_gradients_of_serial_and_parallel_passes(hidden, time):
    flow = SequenceFlow(hidden(3, 2, context_size=4, units=5), LSTMContext(Raw(3), 4, 2, 6), time)
    randomise(flow, 0.4)
    lengths, y = torch.tensor([3, 1]), torch.randn(2, 3, 3, requires_grad=True)
    inputs = (y, *flow.parameters())
    assert gradcheck(lambda y, *_: flow(y, lengths), inputs, fast_mode=True)
    assert gradcheck(lambda y, *_: flow.inverse(y, lengths), inputs, fast_mode=True)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_serial_sampling_of_ragged_batches_inverts_the_density(dtype):
    flow = SequenceFlow(Autoregressive(4, 2, context_size=6, units=8), LSTMContext(Raw(4), 6, 2, 9), "af").to(
        dtype
    )
    randomise(flow)
    packing = Packing(torch.tensor([3, 6, 1, 6]))
    eps = torch.randn(packing.rows, 4, dtype=dtype)
    with torch.no_grad():
        z, forward = flow.forward_rows(eps, packing)
        back, inverse = flow.inverse_rows(z, packing)
    torch.testing.assert_close(back, eps, rtol=0, atol=100 * TOLERANCE[dtype])
    torch.testing.assert_close(forward, -inverse, rtol=0, atol=100 * TOLERANCE[dtype])


# Where the kernels must stay out of the way.


def test_numba_that_cannot_be_imported_changes_no_result(monkeypatch):
    flow = Autoregressive(3, 2, NLSq(), units=8)
    randomise(flow)
    eps = torch.randn(4, 3)
    with torch.no_grad():
        with off():
            expected = flow(eps)[0]
        monkeypatch.setattr(compiled, "_LOADED", {})
        monkeypatch.setattr(compiled, "AVAILABLE", True)
        monkeypatch.setattr(
            compiled.importlib, "import_module", Mock(side_effect=ImportError("Numba needs NumPy 2"))
        )
        with pytest.warns(RuntimeWarning, match="numba does not run here.*needs NumPy 2"):
            found = flow(eps)[0]
        assert torch.allclose(found, expected, atol=1e-5)
        assert not compiled.AVAILABLE


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, in forward mode
@torch.no_grad()
def test_torch_may_follow_what_is_computed():
    """Forward-mode tangents, vmap and another dtype than that of the weights, where kernels would see numbers alone."""
    flow = Autoregressive(3, 2, NLSq(), units=8).double()
    randomise(flow)
    eps, tangent = torch.randn(4, 3).double(), torch.randn(4, 3).double()
    step = 1e-6
    expected = (flow(eps + step * tangent)[0] - flow(eps - step * tangent)[0]) / (2 * step)
    with forward_ad.dual_level():
        z = flow(forward_ad.make_dual(eps, tangent))[0]
        found = forward_ad.unpack_dual(z).tangent
    assert found is not None
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(torch.func.vmap(lambda row: flow(row)[0])(eps), flow(eps)[0])
    assert torch.allclose(flow(eps.float())[0], flow(eps)[0], atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@torch.no_grad()
def test_torch_may_follow_the_context_too():
    flow = Autoregressive(3, 2, NLSq(), context_size=2, units=8).double()
    randomise(flow)
    eps, context, tangent = torch.randn(4, 3).double(), torch.randn(4, 2).double(), torch.randn(4, 2).double()
    step = 1e-6
    ahead, behind = flow(eps, context + step * tangent)[0], flow(eps, context - step * tangent)[0]
    found = torch.func.jvp(lambda given: flow(eps, given)[0], (context,), (tangent,))[1]
    assert torch.allclose(found, (ahead - behind) / (2 * step), atol=1e-6)


@pytest.mark.parametrize("hidden", ["af", "scf", "none"])
@torch.no_grad()
def test_forward_mode_through_the_lstm_is_refused(hidden):
    """Its backward pass is written by hand and has no forward mode: an error of torch, and no tangent lost."""
    flow, eps = sequence_flow("af", hidden, "nlsq").double(), torch.randn(2, 3, 3).double()
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        flow(forward_ad.make_dual(eps, torch.ones_like(eps)), torch.tensor([3, 1]))


def test_gradients_of_a_prepared_weight_that_is_used_in_other_ways_too():
    """What came through steps and what came directly is added, and the memory of the steps given back."""
    x, own, alone = torch.randn(2, 5, 3), torch.randn(4, 3), torch.randn(4)
    matrix, bias = torch.randn(4, 3, requires_grad=True), torch.randn(4, requires_grad=True)

    def gradients(step, matrix_used, bias_used):
        steps = sum(step(rows).square().sum() for rows in x)
        direct = (matrix_used * own).sum() + (bias_used * alone).sum()
        return torch.autograd.grad(steps + direct, (matrix, bias))

    weight = defer(matrix, bias)
    prepared = gradients(lambda rows: linear(rows, weight), weight.matrix, weight.bias)
    plain = gradients(lambda rows: torch.nn.functional.linear(rows, matrix, bias), matrix, bias)
    torch.testing.assert_close(prepared, plain)
    assert weight.tape.inputs == weight.tape.grads == []
