"""The ways that the fast ones are held against: without kernels, and straightforward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import linear, one_hot

from latflow.fast import compiled, off
from latflow.flows import Packing, Positions
from latflow.flows.recurrent import State
from latflow.models import LSTMLanguageModel, SequenceModel


@contextmanager
def plain_torch() -> Iterator[None]:
    """Without the compiled kernels."""
    before, compiled.AVAILABLE = compiled.AVAILABLE, False
    try:
        yield
    finally:
        compiled.AVAILABLE = before


@contextmanager
def one_hot_positions() -> Iterator[None]:
    """Position features as the paper writes them: a product with one-hots of width max_T, no look-up."""

    def multiply(self: Positions, step: Tensor, remaining: Tensor) -> Tensor:
        pairs = ((step, self.start), (remaining, self.end))
        start, end = (one_hot(index, self.max_T).to(table) @ table for index, table in pairs)
        return start + end if self.mix is None else linear(torch.cat([start, end], -1), self.mix)

    before = Positions.forward
    Positions.forward = multiply  # type: ignore[method-assign]
    try:
        yield
    finally:
        Positions.forward = before  # type: ignore[method-assign]


@torch.no_grad()
def sample_straightforward(model: SequenceModel, lengths: Tensor) -> Tensor:
    """Generation by the definitions as they are written, positions as one-hots: eager, module after module, a full
    pass of each network per dimension."""
    with off(), one_hot_positions():
        return model.sample(lengths)


@torch.no_grad()
def sample_plain(model: SequenceModel, lengths: Tensor) -> Tensor:
    """Generation without compiled kernels; from the baseline by `nn.LSTM`, a call for each step."""
    with plain_torch():
        return (
            _sample(model, lengths, _layers)
            if isinstance(model, LSTMLanguageModel)
            else model.sample(lengths)
        )


@torch.no_grad()
def sample_by_cells(model: LSTMLanguageModel, lengths: Tensor) -> Tensor:
    """The same from the baseline by `nn.LSTMCell`, a call for each layer and step."""
    return _sample(model, lengths, _cells)


Weights = list[tuple[Tensor, Tensor, Tensor, Tensor]]
"""W, U and two biases of each layer, as torch's LSTM takes them."""


def _sample(
    model: LSTMLanguageModel, lengths: Tensor, advance: Callable[[Tensor, State, Weights], State]
) -> Tensor:
    """Generation from the baseline, one of torch's modules after the other.

    Sequences of one length share their position features, which therefore are the second bias of the first layer.
    """
    packing, lstm, drawn = Packing(lengths), model.context.lstm, []
    assert packing.active[-1] == packing.active[0], "for sequences of one length"
    noise = model.noise(packing, 1.0, False, None)
    context, carried = model.context.start(packing)
    state, features = carried.layers, carried.features
    weights = [
        (matrix, recurrent[0], bias, torch.zeros_like(bias))
        for matrix, recurrent, bias in zip(lstm.input_weight, lstm.recurrent_weight, lstm.bias, strict=True)
    ]
    for t in range(packing.steps):
        x = model.alphabet.decide(model.alphabet.scores(model.head(context)) + noise[packing.at(t)])
        drawn.append(x)
        if t + 1 < packing.steps:
            weights[0] = (*weights[0][:3], features[t][0])
            state = advance(model.alphabet.embed(x), state, weights)
            context = state[-1][0]
    return packing.unpack(torch.cat(drawn))


def _layers(x: Tensor, state: State, weights: Weights) -> State:
    h, c = (torch.stack(parts) for parts in zip(*state, strict=True))
    flat = [weight for layer in weights for weight in layer]
    _, h, c = torch.lstm(x[None], (h, c), flat, True, len(weights), 0.0, False, False, False)
    return list(zip(h, c, strict=True))


def _cells(x: Tensor, state: State, weights: Weights) -> State:
    new: State = []
    for before, layer in zip(state, weights, strict=True):
        new.append(torch.lstm_cell(x, before, *layer))
        x = new[-1][0]
    return new
