"""Every twin against its definition: values, gradients and, where something is drawn, the same draw from the same seed.

A case is the arguments of a call and what is to be compared of its result. The walk goes through the registry, so that
a twin without a case fails, and so does one that no case ever chose.
"""

import math
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from latflow.fast import compiled
from latflow.fast.linear import defer
from latflow.flows import (
    LSTM,
    Affine,
    Autoregressive,
    Elementwise,
    HiddenFlow,
    Layer,
    Mixture,
    NLSq,
    Packing,
    Positions,
    SplitCoupling,
    TiedMixture,
    TiedScalar,
)
from latflow.flows.hidden import Share
from latflow.flows.seam import REGISTRY, active
from latflow.models import LatentSequenceModel, LSTMLanguageModel, build
from latflow.models.emission.bilstm import BiLSTMEmission
from tests.fast.cases import codebook_model, rows_of_codes
from tests.models.cases import TINY, evolve, music_spec, small_model, text_spec

active()
pytest.importorskip("numba", reason="without numba the compiled twins do not run")

DTYPES = (torch.float32, torch.float64)


class Case(NamedTuple):
    args: tuple
    use: Callable[[Any], Any] = lambda result: result
    """From what the definition returns to tensors."""
    parameters: nn.Module | None = None
    """Whose gradients are compared beside those of the arguments."""
    grads: tuple[bool, ...] = (True, False)


def spread(module: nn.Module, dtype: torch.dtype, std: float = 0.4) -> Any:
    module = module.to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=std)
    return module


def linear_cases(dtype: torch.dtype) -> Iterator[Case]:
    for width in (3, 40):
        layer = spread(nn.Linear(width, 5), dtype)
        yield Case((torch.randn(7, width, dtype=dtype), layer.weight, layer.bias), parameters=layer)


def tied_scalar(dtype: torch.dtype, K: int) -> TiedScalar:
    """Components given for five dimensions, in every second in descending order; narrow in float64, as wide as they
    are apart in float32. Between narrow ones the map from eps to z is so steep that the definition itself is off by
    2e-4 of the largest gradient there, and by another 2e-4 on another processor."""
    narrow = 1.0 if dtype == torch.float64 else 0.2
    means, log_scales = torch.linspace(-1, 1, K, dtype=dtype), 0.2 * torch.randn(5, K, dtype=dtype) - narrow
    signs = torch.tensor([1, -1, 1, -1, 1], dtype=dtype)[:, None]
    return TiedScalar(lambda: (signs * means, log_scales))


def flows(dtype: torch.dtype) -> Iterator[tuple[Any, Tensor, Tensor | None]]:
    scalars = (
        NLSq(scale=(0.4, 0.3, 0.4)),
        Affine(0.4),
        Mixture(2),
        tied_scalar(dtype, 2),
        tied_scalar(dtype, 3),
    )
    for kind in (Autoregressive, SplitCoupling, Elementwise):
        for scalar in scalars:
            for context_size, skip in ((4, False), (4, True), (0, False)):
                flow = spread(kind(5, 2, scalar, context_size, units=8, skip=skip), dtype, 0.2)
                context = torch.randn(6, context_size, dtype=dtype) if context_size else None
                yield flow, torch.randn(6, 5, dtype=dtype), context


def dropping(dtype: torch.dtype) -> Iterator[tuple[Any, Tensor, Tensor | None]]:
    """Networks whose hidden units are dropped, some and all."""
    for dropout in (0.4, 1.0):
        for kind in (Autoregressive, SplitCoupling):
            for scalar in (NLSq(), Mixture(2)):
                flow = kind(5, 2, scalar, 4, units=8, skip=True, dropout=dropout)
                context = torch.randn(6, 4, dtype=dtype)
                yield spread(flow, dtype, 0.2), torch.randn(6, 5, dtype=dtype), context


def forward_cases(dtype: torch.dtype) -> Iterator[Case]:
    for flow, eps, context in flows(dtype):
        yield Case((flow, eps, context), parameters=flow)


def stepper_cases(dtype: torch.dtype) -> Iterator[Case]:
    for flow, point, context in chain(flows(dtype), dropping(dtype)):
        for direction in ("forward", "inverse"):

            def steps(step, point=point, context=context):
                first, logdet = step(point, context)
                second, more = step(0.1 * first + 0.1, context)
                return first, logdet, second, more

            yield Case((flow, direction), steps, flow)


def layer_forward_cases(dtype: torch.dtype) -> Iterator[Case]:
    for scalar in (NLSq(), Affine(), Mixture(3)):
        flow = spread(Autoregressive(4, 2, scalar, units=8), dtype, 0.3)
        for layer, weights in enumerate(flow.weights()):
            yield Case((flow, layer, torch.randn(3, 4, dtype=dtype), Share(), weights))


def whole_cases(dtype: torch.dtype) -> Iterator[Case]:
    for lengths in ([3, 5, 1], [9, 9]):
        packing = Packing(torch.tensor(lengths), samples=2)
        # A sum in another order may round h another way, by 2⁻⁹ of it: not in these few.
        for both, rounded in ((False, False), (True, False), (False, True), (True, True)):
            lstm = spread(LSTM(4, 6, 1, bidirectional=both), dtype)
            lstm.rounded = rounded
            positions = Positions(20, lstm.gate_size, 0.5).to(dtype)
            features = positions(packing.places.step, packing.places.remaining).detach().requires_grad_()
            state = [torch.randn(packing.active[0], 6, dtype=dtype) for _ in range(2)]
            for given in (features, None):
                x = torch.randn(packing.rows, 4, dtype=dtype)
                yield Case((lstm, 0, x, packing, given, *state), parameters=lstm)


def rounded_cases(dtype: torch.dtype) -> Iterator[Case]:
    for shape, width, outputs in (((7,), 3, 40), ((2, 20), 40, 5), ((0,), 3, 4)):
        layer = spread(nn.Linear(width, outputs), dtype)
        x = torch.randn(*shape, width, dtype=dtype)
        yield Case((x, layer.weight, layer.bias), parameters=layer)
        yield Case((x, layer.weight))


def lstm_stepper_cases(dtype: torch.dtype) -> Iterator[Case]:
    lstm = spread(LSTM(4, 6, 2), dtype)
    x, features = torch.randn(3, 5, 4, dtype=dtype), torch.randn(3, 5, 24, dtype=dtype)
    state = [(torch.randn(5, 6, dtype=dtype), torch.randn(5, 6, dtype=dtype)) for _ in range(2)]

    def steps(step):
        now, outputs = state, []
        for t in range(3):
            output, now = step(x[t], now, features[t])
            outputs.append(output)
        return torch.stack(outputs)

    yield Case((lstm,), steps, lstm)


def cell_cases(dtype: torch.dtype) -> Iterator[Case]:
    yield Case((3 * torch.randn(4, 24, dtype=dtype), torch.randn(4, 6, dtype=dtype)))


def reading_cases(dtype: torch.dtype) -> Iterator[Case]:
    layer = spread(Layer(3, 5), dtype)
    y = torch.randn(4, 3, dtype=dtype)
    yield Case((layer,), lambda read: torch.stack([read(y), read(2 * y)]), layer)


def head_cases(dtype: torch.dtype) -> Iterator[Case]:
    for symbols in ("abc", "abcdefghijklmnopqrstuvwxyz"):
        model = spread(small_model("af-af", text_spec(symbols)), dtype)
        assert isinstance(model, LatentSequenceModel)
        assert isinstance(model.emission, BiLSTMEmission)
        model.emission.scale = 2.5
        packing = Packing(torch.tensor([6, 2, 5]))
        z, past, future = (torch.randn(packing.rows, n, dtype=dtype) for n in (3, 8, 8))
        yield Case((model.emission, z, past, future, model.alphabet, packing), parameters=model.emission)


def score_cases(dtype: torch.dtype) -> Iterator[Case]:
    model = spread(small_model("lstm", text_spec()), dtype)
    yield Case((model, torch.randn(40, 8, dtype=dtype)), parameters=model)


def sample_cases(dtype: torch.dtype) -> Iterator[Case]:
    model = spread(build(evolve(TINY, {"kind": "lstm"}), text_spec("abcde", 9)), torch.float64)
    assert isinstance(model, LSTMLanguageModel)
    for argmax in (False, True):
        yield Case((model, Packing(torch.tensor([4, 9, 1])), 0.7, argmax, None), grads=(False,))


def tied_cases(dtype: torch.dtype) -> Iterator[Case]:
    for context_size in (0, 4):
        flow = tied_flow(dtype, context_size)
        context = torch.randn(2, 9, context_size, dtype=dtype) if context_size else None
        yield Case((flow, torch.randn(2, 9, 3, dtype=dtype), context), parameters=flow)


def tied_stepper_cases(dtype: torch.dtype) -> Iterator[Case]:
    flow = tied_flow(dtype, 4)
    for direction in ("forward", "inverse"):
        point, context = torch.randn(5, 3, dtype=dtype), torch.randn(2, 5, 4, dtype=dtype)

        def steps(step, point=point, context=context):
            first, logdet = step(point, context[0])
            second, more = step(0.1 * first + 0.1, context[1])
            return first, logdet, second, more

        yield Case((flow, direction), steps, flow)


def tied_flow(dtype: torch.dtype, context_size: int) -> TiedMixture:
    codes = nn.Module()
    codes.means, codes.log_scales = (nn.Parameter(torch.empty(7, 3)) for _ in range(2))
    return spread(TiedMixture(codes, context_size), dtype, 0.8)


def symbols_cases(dtype: torch.dtype) -> Iterator[Case]:
    for spec, notes in ((text_spec("abcdef"), "up"), (music_spec(), "up"), (music_spec(), "down")):
        model = codebook_model("af-af", spec, dtype, notes=notes)
        z = rows_of_codes(model, 5)
        yield Case(
            (model.prior.context.reading,), lambda read, z=z: torch.stack([read(z), read(0.5 * z)]), model
        )


def start_cases(dtype: torch.dtype) -> Iterator[Case]:
    """With a table where there are more rows than symbols; then with a condition of each sequence."""
    for spec, size in ((text_spec("abcdef"), 0), (text_spec("abcdef"), 3), (music_spec(), 0)):
        model = codebook_model("af-af", spec, dtype, condition_size=size)
        context = model.prior.context
        for lengths in ([4, 3, 2], [2, 1]):
            condition = torch.randn(len(lengths), size, dtype=dtype) if size else None
            packing = Packing(torch.tensor(lengths), condition=condition)
            z = rows_of_codes(model, packing.rows)

            def contexts(started, context=context, packing=packing, z=z):
                (first, state), found = started, []
                for t in range(packing.steps):
                    found.append(first)
                    first, state = context.step(z[packing.at(t)], t, packing, state)
                return torch.cat(found)

            yield Case((context, packing), contexts, model)


def log_normal_cases(dtype: torch.dtype) -> Iterator[Case]:
    """Codes of the usual σ, of a small one, and z far from all."""
    for sigma, shape, size in ((0.3, (9,), 1.5), (0.02, (2, 9), 1.5), (0.3, (9,), 40.0)):
        means, log_scales = torch.randn(7, 3, dtype=dtype), torch.full((7, 3), math.log(sigma), dtype=dtype)
        yield Case((size * torch.randn(*shape, 3, dtype=dtype), means, log_scales))


CASES: dict[str, Callable[[torch.dtype], Iterator[Case]]] = {
    "linear": linear_cases,
    "rounded_linear": rounded_cases,
    "HiddenFlow.forward": forward_cases,
    "HiddenFlow.stepper": stepper_cases,
    "Autoregressive.layer_forward": layer_forward_cases,
    "LSTM.whole": whole_cases,
    "LSTM.stepper": lstm_stepper_cases,
    "lstm_cell": cell_cases,
    "Layer.stepper": reading_cases,
    "BiLSTMEmission.head_scores": head_cases,
    "LSTMLanguageModel.scores": score_cases,
    "LSTMLanguageModel._sample": sample_cases,
    "log_normals": log_normal_cases,
    "TiedMixture.forward": tied_cases,
    "TiedMixture.stepper": tied_stepper_cases,
    "SymbolsReading.stepper": symbols_cases,
    "LSTMContext.start": start_cases,
}
# In float64 of each entry. In float32 of the largest (of 1, where all are smaller): a gradient is a sum, and what its
# terms are rounded by stays where they cancel. Sums of up to a hundred terms; kernels that compute a tanh as a quotient
# of polynomials, to 3e-7.
TOLERANCE = {torch.float32: 5e-5, torch.float64: 1e-9}


def test_every_definition_has_cases():
    assert CASES.keys() == REGISTRY.keys()


def results(function: Callable, case: Case, grad: bool) -> list[Tensor]:
    """Values, then gradients of a weighted sum of them, from the same seed."""
    args = [
        a.detach().clone().requires_grad_(grad) if isinstance(a, Tensor) and a.is_floating_point() else a
        for a in case.args
    ]
    torch.default_generator.manual_seed(
        3
    )  # the processor's alone: torch.manual_seed asks every kind of device
    with torch.set_grad_enabled(grad):
        found = case.use(function(*args))
        found = list(found) if isinstance(found, tuple) else [found]
        if not grad:
            return found
        torch.default_generator.manual_seed(4)
        loss = sum((value * torch.randn_like(value)).sum() for value in found)
        inputs = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        inputs += list(case.parameters.parameters()) if case.parameters is not None else []
        grads = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)  # type: ignore[arg-type]
    return [*(value.detach() for value in found), *grads]


@pytest.mark.parametrize("name", CASES)
def test_twins_give_the_numbers_of_their_definition(name):
    definition = REGISTRY[name]
    chosen = set()
    for dtype in DTYPES:
        torch.manual_seed(0)
        for case in CASES[name](dtype):
            for grad in case.grads:
                with torch.set_grad_enabled(grad):
                    twin = definition.chosen(*case.args)
                chosen.add(twin)
                if twin is definition.definition:  # no twin for this, and nothing to compare
                    continue
                found, expected = results(twin, case, grad), results(definition.definition, case, grad)
                for one, other in zip(found, expected, strict=True):
                    each, atol = TOLERANCE[dtype], TOLERANCE[dtype]
                    if dtype == torch.float32 and other.numel():
                        each, atol = 0.0, atol * max(1.0, other.abs().max().item())
                    torch.testing.assert_close(one, other, rtol=each, atol=atol)
    elsewhere = {"step_linear"} if compiled.multiplies() else {"step_linear", "compiled_rounded_linear"}
    missed = {twin.name for twin in definition.twins if twin.function not in chosen} - elsewhere
    assert not missed, f"no case chose {missed}"


def test_prepared_weights_multiply_as_weights_do():
    """`step_linear` takes what only `defer` makes."""
    layer = nn.Linear(3, 4)
    x = torch.randn(2, 3)
    found = REGISTRY["linear"](x, defer(layer.weight, layer.bias), None)
    torch.testing.assert_close(found, layer(x))


def test_off_leaves_the_definitions(monkeypatch):
    from latflow.fast import off

    cell = REGISTRY["lstm_cell"]
    gates, c = torch.randn(2, 8), torch.randn(2, 2)
    assert cell.chosen(gates, c) is not cell.definition
    with off():
        assert cell.chosen(gates, c) is cell.definition
    monkeypatch.setenv("LATFLOW_FAST", "off")
    assert cell.chosen(gates, c) is cell.definition


class OwnMap(Affine):
    """A map that no kernel knows: they ask for the class itself."""


def test_a_map_without_kernels_has_the_paths_that_do_not_depend_on_it():
    flow = Autoregressive(3, 2, OwnMap(), units=8)
    assert REGISTRY["HiddenFlow.forward"].chosen(flow, torch.randn(2, 3)) is HiddenFlow.forward.definition
    assert REGISTRY["HiddenFlow.stepper"].chosen(flow, "forward").__name__ == "serial_step"
    layer = REGISTRY["Autoregressive.layer_forward"].chosen(
        flow, 0, torch.randn(2, 3), Share(), flow.weights()[0]
    )
    assert layer.__name__ == "incremental_layer"
    assert compiled.AVAILABLE
