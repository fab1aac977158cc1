"""What step t may see of the other steps.

A context has two faces of the same numbers: `whole`, all steps at once from a known sequence, and `start`/`step`, one
step at a time with a carried state.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows.deferred import DeferredWeight, defer, linear
from latflow.flows.lstm import LSTM, State
from latflow.flows.packing import Packing
from latflow.flows.positions import Positions
from latflow.shapes import Float


class Context(nn.Module, ABC):
    """Context vectors of `size` features; that of step t depends on y_<t, its position and T."""

    size: int
    sees_steps = True
    """Whether it depends on y at all."""

    @abstractmethod
    def whole(self, y: Float[Tensor, "n h"], packing: Packing) -> Float[Tensor, "n c"]:
        """The contexts of all rows."""

    @abstractmethod
    def start(self, packing: Packing) -> tuple[Float[Tensor, "n0 c"], Any]:
        """The context of the first step and the state to carry."""

    @abstractmethod
    def step(self, y: Float[Tensor, "nt h"], t: int, packing: Packing, state: Any) -> tuple[Tensor, Any]:
        """From y_t, the context of step t+1 (its rows only) and the new state."""


class _Carried(NamedTuple):
    """What an LSTM context carries from step to step, and what it computed once for all of them."""

    layers: State
    features: Sequence[Tensor]
    """Position features of step t+1, for t = 0, 1, …"""
    weights: list[DeferredWeight]
    entry: DeferredWeight | None
    """The layer before the LSTM."""


class LSTMContext(Context):
    """An LSTM over y_<t, which also knows the position of the step it speaks to.

    The state before the first step is a function of the first step's position features, hence of T; the input of
    step t is y_t with the position features of step t+1, as in the authors' code. Dropout acts between the layers
    and on the result.

    With `input_units` the LSTM reads tanh(A y_t + b) of that size instead of y_t. A linear map of few numbers hardly
    tells apart the many modes of their density, and an LSTM that reads them so learns slowly. A starts so large that
    the units divide the region of a standard normal in different places.
    """

    def __init__(
        self,
        input_size: int,
        units: int,
        layers: int,
        max_T: int,
        *,
        dropout: float = 0.0,
        rank: int | None = None,
        input_units: int = 0,
    ):
        super().__init__()
        self.size, self.dropout = units, dropout
        self.entry = nn.Linear(input_size, input_units) if input_units else None
        if self.entry is not None:
            nn.init.normal_(self.entry.weight)
            nn.init.uniform_(self.entry.bias, -2, 2)
        self.lstm = LSTM(input_units or input_size, units, layers, dropout=dropout)
        bound = 1 / math.sqrt(units)
        self.positions = Positions(max_T, self.lstm.gate_size, bound, rank)
        self.start_positions = Positions(max_T, units, bound, rank)
        self.start_state = nn.Linear(units, 2 * layers * units)

    def whole(self, y, packing):
        # Every step but the last of a sequence feeds the next one.
        places = packing.places
        following = (places.remaining - 1).clamp(min=0)
        features = self.positions(places.step + (places.remaining > 0), following)
        start = self._initial(packing)
        if self.entry is not None:
            y = linear(y, self.entry.weight, self.entry.bias).tanh()
        return self._drop(packing.before(self.lstm(y, packing, features, start), first=start[-1][0]))

    def start(self, packing):
        layers, places = self._initial(packing), packing.places
        later = slice(places.active[0], None)
        by_step = self.positions(places.step[later], places.remaining[later]).split(places.active[1:])
        entry = None if self.entry is None else defer(self.entry.weight, self.entry.bias)
        return self._drop(layers[-1][0]), _Carried(layers, by_step, self.lstm.prepare(), entry)

    def step(self, y, t, packing, state):
        if t + 1 == packing.steps:
            return y.new_empty(0, self.size), state
        y = y[: packing.active[t + 1]]
        if state.entry is not None:
            y = linear(y, state.entry).tanh()
        return self._advance(y, None, t, packing, state)

    def step_given(
        self, gates: Float[Tensor, "n gates"], t: int, packing: Packing, state: Any
    ) -> tuple[Tensor, Any]:
        """`step` from W y_t + b of the first layer, for the rows of step t+1."""
        return self._advance(None, gates, t, packing, state)

    def _advance(self, y: Tensor | None, gates: Tensor | None, t: int, packing: Packing, state: _Carried):
        features, n = state.features[t], packing.active[t + 1]
        if 1 < len(features) < n:  # one alone serves all rows as it is
            features = features.repeat_interleave(packing.per_place, 0)
        features = features if gates is None else gates + features
        output, layers = self.lstm.step(y, [(h[:n], c[:n]) for h, c in state.layers], features, state.weights)
        return self._drop(output), state._replace(layers=layers)

    def _initial(self, packing: Packing) -> State:
        places, first = packing.places, packing.places.at(0)
        hidden = F.relu(self.start_positions(places.step[first], places.remaining[first]))
        parts = (
            self.start_state(hidden).repeat_interleave(packing.per_place, 0).chunk(2 * self.lstm.layers, -1)
        )
        return [
            (parts[2 * layer].contiguous(), parts[2 * layer + 1].contiguous())
            for layer in range(self.lstm.layers)
        ]

    def _drop(self, context: Tensor) -> Tensor:
        return F.dropout(context, self.dropout, self.training)


class PositionContext(Context):
    """The position alone: no dependence across time (the paper's AF-only model)."""

    sees_steps = False

    def __init__(self, size: int, max_T: int, rank: int | None = None):
        super().__init__()
        self.size = size
        self.positions = Positions(max_T, size, 1 / math.sqrt(size), rank)

    def whole(self, y, packing):
        return self.positions(packing.step, packing.remaining)

    def start(self, packing):
        return self._at(0, packing), None

    def step(self, y, t, packing, state):
        if t + 1 == packing.steps:
            return y.new_empty(0, self.size), None
        return self._at(t + 1, packing), None

    def _at(self, t: int, packing: Packing) -> Tensor:
        rows = packing.at(t)
        return self.positions(packing.step[rows], packing.remaining[rows])
