"""The layer before an LSTM in a serial pass: its weight gradients are one GEMM over all steps."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from latflow.fast.linear import defer, linear
from latflow.flows.reading import Layer


@Layer.stepper.twin(lambda *_: True)
def deferred_layer(layer: Layer) -> Callable[[Tensor], Tensor]:
    weight = defer(layer.weight, layer.bias)
    return lambda y: linear(y, weight).tanh()
