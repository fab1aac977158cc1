"""What step t may see of the other steps.

A context has two faces of the same numbers: `whole`, all steps at once from a known sequence, and `start`/`step`, one
step at a time with a carried state. It reads y_t through a `Reading`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows.packing import Packing
from latflow.flows.positions import Positions
from latflow.flows.reading import Reading
from latflow.flows.recurrent import LSTM, LSTMStep, State
from latflow.flows.seam import replaceable
from latflow.shapes import Float, Int


class Context(nn.Module, ABC):
    """Context vectors of `size` features; that of step t depends on y_<t, its position, T and, where the packing has
    one, the condition of its sequence."""

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

    def select(self, state: Any, index: Int[Tensor, "m"], packing: Packing) -> Any:
        """The state of the rows `index`, any of them and as often as they stand there, now laid out as `packing`.

        For as long as no sequence has ended: rows are sequences then, and row i of `packing` is sequence index[i] as
        it was. What a state holds that is not a row of step t (features of positions) is that of the new layout. Only
        sampling given what is known asks for it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `select`, so its states cannot be resampled")


class Carried(NamedTuple):
    """What an LSTM context carries from step to step, and what it computed once for all of them."""

    layers: State
    features: Sequence[Tensor]
    """Position features of step t+1, for t = 0, 1, …"""
    read: Callable[[Tensor], Tensor]
    advance: LSTMStep
    condition: Tensor | None
    """What the condition adds to the reading, for the rows of step 0."""


class LSTMContext(Context):
    """An LSTM over y_<t, which also knows the position of the step it speaks to.

    The state before the first step is a function of the first step's position features, hence of T; the input of
    step t is its reading of y_t with the position features of step t+1, as in the authors' code. Dropout acts between
    the layers and on the result, `input_dropout` on the reading, `recurrent_dropout` on the LSTM's U. A condition of
    `condition_size` features is added, by a matrix each, to the reading of every step and the state before the first.
    """

    def __init__(
        self,
        reading: Reading,
        units: int,
        layers: int,
        max_T: int,
        *,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        rank: int | None = None,
        cap: int | None = None,
        condition_size: int = 0,
    ):
        super().__init__()
        self.size, self.dropout, self.input_dropout = units, dropout, input_dropout
        self.reading = reading
        self.lstm = LSTM(reading.size, units, layers, dropout=dropout, recurrent_dropout=recurrent_dropout)
        bound = 1 / math.sqrt(units)
        self.positions = Positions(max_T, self.lstm.gate_size, bound, rank, cap)
        self.start_positions = Positions(max_T, units, bound, rank, cap)
        self.start_state = nn.Linear(units, 2 * layers * units)
        self.condition = self.start_condition = None
        if condition_size:
            self.condition = nn.Linear(condition_size, reading.size, bias=False)
            self.start_condition = nn.Linear(condition_size, 2 * layers * units, bias=False)

    def whole(self, y, packing):
        # Every step but the last of a sequence feeds the next one.
        places = packing.places
        following = (places.remaining - 1).clamp(min=0)
        features = self.positions(places.step + (places.remaining > 0), following)
        start, read = self._initial(packing), self._drop_input(self.reading(y))
        if self.condition is not None and packing.condition is not None:
            read = read + self.condition(packing.condition)[packing.sequence]
        return self._drop(packing.before(self.lstm(read, packing, features, start), first=start[-1][0]))

    @replaceable
    def start(self, packing):
        layers, condition = self._initial(packing), None
        if self.condition is not None and packing.condition is not None:
            condition = self.condition(packing.condition)[packing.sequence[packing.at(0)]]
        later = self._later(packing)
        carried = Carried(layers, later, self.reading.stepper(), self.lstm.stepper(), condition)
        return self._drop(layers[-1][0]), carried

    def select(self, state, index, packing):
        condition = None if state.condition is None else state.condition[index]
        layers = [(h[index], c[index]) for h, c in state.layers]
        return state._replace(layers=layers, features=self._later(packing), condition=condition)

    def step(self, y, t, packing, state):
        if t + 1 == packing.steps:
            return y.new_empty(0, self.size), state
        n = packing.active[t + 1]
        read = self._drop_input(state.read(y[:n]))
        read = read if state.condition is None else read + state.condition[:n]
        layers = [(h[:n], c[:n]) for h, c in state.layers]
        output, layers = state.advance(read, layers, self.features(t, packing, state))
        return self._drop(output), state._replace(layers=layers)

    def features(self, t: int, packing: Packing, state: Carried) -> Tensor:
        """Position features of step t+1: one row for all, or a row each."""
        features, n = state.features[t], packing.active[t + 1]
        if 1 < len(features) < n:  # one alone serves all rows as it is
            features = features.repeat_interleave(packing.per_place, 0)
        return features

    def _later(self, packing: Packing) -> Sequence[Tensor]:
        """Position features of every step but the first, a row for each place."""
        places = packing.places
        later = slice(places.active[0], None)
        return self.positions(places.step[later], places.remaining[later]).split(places.active[1:])

    def _initial(self, packing: Packing) -> State:
        places, first = packing.places, packing.places.at(0)
        hidden = F.relu(self.start_positions(places.step[first], places.remaining[first]))
        start = self.start_state(hidden).repeat_interleave(packing.per_place, 0)
        if self.start_condition is not None and packing.condition is not None:
            start = start + self.start_condition(packing.condition)[packing.sequence[packing.at(0)]]
        parts = start.chunk(2 * self.lstm.layers, -1)
        return [
            (parts[2 * layer].contiguous(), parts[2 * layer + 1].contiguous())
            for layer in range(self.lstm.layers)
        ]

    def _drop(self, context: Tensor) -> Tensor:
        return F.dropout(context, self.dropout, self.training)

    def _drop_input(self, read: Tensor) -> Tensor:
        return F.dropout(read, self.input_dropout, self.training) if self.input_dropout else read


class PositionContext(Context):
    """The position alone: no dependence across time (the paper's AF-only model)."""

    sees_steps = False

    def __init__(
        self,
        size: int,
        max_T: int,
        rank: int | None = None,
        cap: int | None = None,
        condition_size: int = 0,
    ):
        super().__init__()
        self.size = size
        self.positions = Positions(max_T, size, 1 / math.sqrt(size), rank, cap)
        self.condition = nn.Linear(condition_size, size, bias=False) if condition_size else None

    def whole(self, y, packing):
        return self._at(slice(0, packing.rows), packing)

    def start(self, packing):
        return self._at(packing.at(0), packing), None

    def step(self, y, t, packing, state):
        if t + 1 == packing.steps:
            return y.new_empty(0, self.size), None
        return self._at(packing.at(t + 1), packing), None

    def select(self, state, index, packing):
        return None

    def _at(self, rows: slice, packing: Packing) -> Tensor:
        context = self.positions(packing.step[rows], packing.remaining[rows])
        if self.condition is not None and packing.condition is not None:
            context = context + self.condition(packing.condition)[packing.sequence[rows]]
        return context
