"""One dict of named flows; every property test runs over all of them."""

import torch
from torch import Tensor, nn

from latflow.flows import (
    Affine,
    Autoregressive,
    Elementwise,
    HiddenFlow,
    Layer,
    LSTMContext,
    NLSq,
    PositionContext,
    Raw,
    SequenceFlow,
    SplitCoupling,
)

SCALARS = {
    "affine": Affine(),
    "affine-scaled": Affine(0.4),
    "nlsq": NLSq(),
    "nlsq-scaled": NLSq(0.9675, (0.4, 0.3, 0.4)),
}
HIDDEN = {"af": Autoregressive, "scf": SplitCoupling, "none": Elementwise}


def randomise(module: nn.Module, spread: float = 0.25) -> nn.Module:
    """Weights far from the near-identity start, so that a wrong term shows."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=spread)
    return module


def hidden_flow(hidden: str, scalar: str, size: int, layers: int, context_size: int) -> HiddenFlow:
    flow = HIDDEN[hidden](size, layers, SCALARS[scalar], context_size, units=24, depth=2)
    randomise(flow)
    return flow


HIDDEN_FLOWS = {
    f"{hidden}-{scalar}-H{size}-J{layers}-{'context' if context else 'alone'}": (
        hidden,
        scalar,
        size,
        layers,
        context,
    )
    for hidden in HIDDEN
    for scalar in ("affine", "nlsq")
    for size, layers, context in [(1, 2, 3), (2, 1, 0), (5, 3, 3), (4, 2, 0)]
}

SEQUENCE_FLOWS = {
    f"{time}/{hidden}-{scalar}": (time, hidden, scalar)
    for time in ("af", "iaf", "none")
    for hidden in HIDDEN
    for scalar in ("affine", "nlsq")
} | {
    f"{time}/{hidden}-nlsq-input": (time, hidden, "nlsq", 5)
    for time, hidden in [("af", "af"), ("iaf", "scf")]
}
"""Time, hidden and scalar; then the units of a layer before the LSTM."""


def sequence_flow(
    time: str,
    hidden: str,
    scalar: str,
    input_units: int = 0,
    size: int = 3,
    max_T: int = 6,
    spread: float = 0.25,
) -> SequenceFlow:
    reading = Layer(size, input_units) if input_units else Raw(size)
    lstm = LSTMContext(reading, 4, 2, max_T)
    context = PositionContext(4, max_T) if time == "none" else lstm
    flow = SequenceFlow(HIDDEN[hidden](size, 2, SCALARS[scalar], 4, units=6, depth=2), context, time)
    randomise(flow, spread)
    return flow


def jacobian(f, x: Tensor) -> Tensor:
    """df/dx of a map between tensors of one shape, flattened to a matrix."""
    matrix = torch.autograd.functional.jacobian(f, x)
    return matrix.reshape(x.numel(), x.numel())  # type: ignore[union-attr]
