"""The prior: block-triangular in time, invertible, exact in its density, and blind to padding and neighbours."""

import math

import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck

from latflow.flows import Autoregressive, LSTMContext, Packing, Raw, SequenceFlow
from tests.flows.cases import SEQUENCE_FLOWS, jacobian, sequence_flow

pytestmark = pytest.mark.usefixtures("double")
flows = pytest.mark.parametrize("case", SEQUENCE_FLOWS.values(), ids=SEQUENCE_FLOWS)
LENGTHS = torch.tensor([2, 4, 1])


def gradient(f, y):
    return torch.autograd.functional.jacobian(f, y)


def mask(steps):
    return torch.arange(steps)[None] < LENGTHS[:, None]


@flows
def test_round_trip_on_ragged_batches(case):
    flow = sequence_flow(*case)
    y = torch.randn(3, 4, 3)
    for first, second in [(flow.forward, flow.inverse), (flow.inverse, flow.forward)]:
        image, logdet = first(y, LENGTHS)
        back, logdet_back = second(image, LENGTHS)
        assert torch.allclose(back[mask(4)], y[mask(4)], rtol=1e-9, atol=1e-9)
        assert torch.allclose(logdet_back, -logdet, rtol=1e-9, atol=1e-9)
        assert (image[~mask(4)] == 0).all()
        assert (logdet[~mask(4)] == 0).all()


@flows
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_second_derivatives_are_refused_or_right(case, direction):
    """A Hessian that walks past a hand-written backward pass would be wrong without a word."""
    flow, length = sequence_flow(*case), torch.tensor([2])

    def f(y):
        y, logdet = getattr(flow, direction)(y.view(1, 2, 3), length)
        return y.square().sum() + logdet.sum()

    y = torch.randn(6)
    if case[0] != "none":  # with an LSTM
        with pytest.raises(RuntimeError, match="first-order gradients only"):
            torch.autograd.functional.hessian(f, y)
        return
    found = torch.func.hessian(f)(y)
    steps = 1e-5 * torch.eye(6)
    expected = torch.stack([(gradient(f, y + d) - gradient(f, y - d)) / 2e-5 for d in steps])
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


@flows
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_log_det_is_that_of_the_jacobian_which_is_block_triangular(case, direction):
    flow = sequence_flow(*case)
    T, H = 3, 3
    length = torch.tensor([T])

    def f(y):
        return getattr(flow, direction)(y.view(1, T, H), length)[0].flatten()

    y = torch.randn(T * H)
    matrix = jacobian(f, y)
    _, logdet = getattr(flow, direction)(y.view(1, T, H), length)
    assert torch.allclose(logdet.sum(), torch.linalg.slogdet(matrix)[1], rtol=1e-8, atol=1e-8)
    blocks = matrix.view(T, H, T, H)
    for t in range(T):
        for s in range(T):
            block = blocks[t, :, s]
            if s > t or (s < t and case[0] == "none"):
                assert (block == 0).all()
            else:
                assert (block != 0).any()
        # Each step's own log-det is that of its diagonal block.
        assert torch.allclose(logdet[0, t], torch.linalg.slogdet(blocks[t, :, t])[1], rtol=1e-8, atol=1e-8)


@flows
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_gradients_of_input_and_weights(case, direction):
    flow = sequence_flow(*case)
    y = torch.randn(3, 4, 3, requires_grad=True)
    names = list(dict(flow.named_parameters()))

    def f(y, *weights):
        named = {f"flow.{name}": weight for name, weight in zip(names, weights, strict=True)}
        return torch.func.functional_call(_Call(flow, direction), named, (y,))

    weights = [weight.detach().clone().requires_grad_() for weight in flow.parameters()]
    assert gradcheck(f, (y, *weights), fast_mode=True)


class _Call(torch.nn.Module):
    def __init__(self, flow, direction):
        super().__init__()
        self.flow, self.direction = flow, direction

    def forward(self, y):
        return getattr(self.flow, self.direction)(y, LENGTHS)


@flows
def test_parallel_and_serial_computation_agree(case):
    flow = sequence_flow(*case)
    packing = Packing(LENGTHS)
    y = torch.randn(packing.rows, 3)
    if case[0] == "af":  # density is parallel: redo it one step at a time, feeding z
        parallel, logdet = flow.inverse_rows(y, packing)
        step_map = flow.hidden.inverse
    else:  # sampling is parallel: redo it one step at a time, feeding eps
        parallel, logdet = flow.forward_rows(y, packing)
        step_map = flow.hidden.forward
    context, state = flow.context.start(packing)
    for t in range(packing.steps):
        at = packing.at(t)
        serial, serial_logdet = step_map(y[at], context)
        assert torch.allclose(serial, parallel[at], atol=1e-12)
        assert torch.allclose(serial_logdet, logdet[at], atol=1e-12)
        context, state = flow.context.step(y[at], t, packing, state)


@flows
def test_a_sequence_alone_and_in_any_batch_is_the_same(case):
    """Whatever stands behind the end of a sequence, NaN included, and whoever its neighbours are."""
    flow = sequence_flow(*case)
    y = torch.randn(3, 4, 3)
    poisoned = torch.where(mask(4)[..., None], y, torch.tensor(math.nan))
    wider = torch.cat([poisoned, torch.full((3, 2, 3), math.inf)], 1)
    for method in (flow.forward, flow.inverse):
        together, logdet = method(wider, LENGTHS)
        assert together.shape == wider.shape
        assert together.isfinite().all()
        for i, T in enumerate(LENGTHS.tolist()):
            alone, logdet_alone = method(y[i : i + 1, :T], torch.tensor([T]))
            assert torch.allclose(together[i, :T], alone[0], atol=1e-12)
            assert torch.allclose(logdet[i, :T], logdet_alone[0], atol=1e-12)


@flows
def test_samples_pushed_back_are_standard_normal(case):
    flow = sequence_flow(*case, size=2, spread=0.2)
    lengths = torch.tensor([4, 2]).repeat(800)
    eps, _ = flow.inverse(flow.sample(lengths), lengths)
    for i, t in [(0, 0), (0, 3), (1, 1)]:
        values = eps[i::2, t].detach().flatten().numpy()
        assert stats.kstest(values, "norm").pvalue > 1e-3


@pytest.mark.parametrize("time", ["af", "iaf", "none"])
@pytest.mark.parametrize("hidden", ["af", "scf", "none"])
def test_log_prob_integrates_to_one_over_two_steps(time, hidden):
    flow = sequence_flow(time, hidden, "nlsq", size=1, spread=0.3)
    axis = torch.linspace(-14, 14, 561)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2, 1)
    with torch.no_grad():
        density = flow.log_prob(grid, torch.full((len(grid),), 2)).sum(-1).exp().view(561, 561)
    assert abs(float(torch.trapezoid(torch.trapezoid(density, axis), axis)) - 1) < 1e-3


@pytest.mark.parametrize("scalar", ["affine", "nlsq"])
def test_a_density_below_the_smallest_number_is_zero(scalar):
    """Scales are exponentials: between one layer and the next eps can leave the range of the numbers."""
    flow = sequence_flow("none", "af", scalar, spread=40)
    log_p = flow.log_prob(torch.randn(50, 4, 3), torch.full((50,), 4))
    assert (log_p == -math.inf).any()
    assert not log_p.isnan().any()


def test_what_is_not_a_number_has_no_density():
    flow, z = sequence_flow("af", "af", "nlsq"), torch.randn(2, 3, 3)
    z[1, 1] = math.nan
    log_p = flow.log_prob(z, torch.tensor([3, 3])).sum(-1)
    assert log_p[0].isfinite()
    assert log_p[1].isnan()
    assert flow.hidden.log_prob(z[1], torch.randn(3, flow.hidden.context_size)).isnan().tolist() == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("time", ["af", "iaf"])
def test_temperature_scales_the_noise(time):
    """The eps of a sample is that of the generator times the temperature, to rounding."""
    flow, lengths = sequence_flow(time, "af", "nlsq"), torch.tensor([4, 4])
    found = {}
    for temperature in (0.0, 0.5, 1.0, 2.0):
        z = flow.sample(lengths, temperature, torch.Generator().manual_seed(3))
        found[temperature] = flow.inverse(z, lengths)[0]
    assert found[1.0].std() > 0.3
    for temperature, eps in found.items():
        torch.testing.assert_close(eps, temperature * found[1.0], rtol=1e-7, atol=1e-9)


def test_a_generator_makes_samples_repeatable():
    flow = sequence_flow("iaf", "scf", "nlsq")
    first, second = (flow.sample(LENGTHS, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)


def test_rsample_is_differentiable_and_sample_is_not():
    flow = sequence_flow("af", "scf", "nlsq")
    draw = flow.rsample(LENGTHS, generator=torch.Generator().manual_seed(7))
    sample = flow.sample(LENGTHS, generator=torch.Generator().manual_seed(7))
    # Where no gradient is kept, kernels do the work: the same to rounding.
    torch.testing.assert_close(draw.detach(), sample, rtol=1e-12, atol=1e-12)
    draw.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in flow.parameters())
    assert not flow.sample(LENGTHS).requires_grad


def test_errors_name_what_does_not_fit():
    hidden = Autoregressive(3, context_size=4)
    with pytest.raises(ValueError, match="context of size 4, the context gives 5"):
        SequenceFlow(hidden, LSTMContext(Raw(3), 5, 1, 6))
    with pytest.raises(ValueError, match="needs a context that sees no steps, not LSTMContext"):
        SequenceFlow(hidden, LSTMContext(Raw(3), 4, 1, 6), "none")
    flow = sequence_flow("af", "scf", "affine")
    with pytest.raises(ValueError, match="length of 4 does not fit a tensor with 2 steps"):
        flow.log_prob(torch.randn(1, 2, 3), torch.tensor([4]))
    with pytest.raises(ValueError, match=r"\(2, t, 3\).*was given shape \(2, 4, 5\)"):
        flow.log_prob(torch.randn(2, 4, 5), torch.tensor([4, 4]))
