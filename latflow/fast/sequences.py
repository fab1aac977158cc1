"""Twins of what the models compute behind an LSTM: matrices multiplied out, and the baseline's loop of generation."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.fast.recurrent import GateStep
from latflow.flows import Packing, Raw
from latflow.models.baseline import LSTMLanguageModel
from latflow.models.emission.bilstm import BiLSTMEmission
from latflow.models.symbols import Alphabet


def behind(
    alphabet: Alphabet, head: nn.Linear, rows: int
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """`scores` of what `head` makes of so many rows: a matrix and a bias to apply first, and what remains to do.

    Between head and scores there is nothing, so the two matrices are multiplied out where that saves operations.
    """
    (e, f), v = head.weight.shape, alphabet.size
    if rows * f * v + e * f * v > rows * e * (f + v):
        return head.weight, head.bias, alphabet.scores
    bias = F.linear(head.bias, alphabet.output_matrix, alphabet.bias)
    return alphabet.output_matrix @ head.weight, bias, lambda scores: scores


@BiLSTMEmission.head_scores.twin(lambda *_: True)
def multiplied_out(
    emission: BiLSTMEmission, z: Tensor, past: Tensor, future: Tensor, alphabet: Alphabet, packing: Packing
) -> Tensor:
    """Steps are shifted behind the head's products, where rows are shorter."""
    matrix, bias, scores = behind(alphabet, emission.head, packing.rows)
    own, of_past, of_future = matrix.split([z.shape[-1], emission.units, emission.units], 1)
    features = F.linear(z, own / emission.scale, bias) + packing.before(F.linear(past, of_past))
    return scores(features + packing.after(F.linear(future, of_future)))


@LSTMLanguageModel.scores.twin(lambda *_: True)
def multiplied_scores(model: LSTMLanguageModel, context: Tensor) -> Tensor:
    matrix, bias, scores = behind(model.alphabet, model.head, len(context))
    return scores(F.linear(context, matrix, bias))


def _reads_symbols(model: LSTMLanguageModel, packing: Packing, *_: object) -> bool:
    """Whether what the LSTM reads of a step is its embedded symbol and nothing else."""
    return packing.condition is None and type(model.context.reading) is Raw


@LSTMLanguageModel._sample.twin(_reads_symbols)
def tabulated_sample(
    model: LSTMLanguageModel,
    packing: Packing,
    temperature: float,
    argmax: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """What does not depend on the steps drawn is multiplied out: a symbol's share of the first gates is a row of a
    table, and the two matrices behind the LSTM are one."""
    noise = model.noise(packing, temperature, argmax, generator)
    alphabet, lstm = model.alphabet, model.context.lstm
    gates = F.linear(alphabet.embedding, lstm.input_weight[0])
    matrix, bias, scores = behind(alphabet, model.head, packing.rows)
    drawn = []
    context, state = model.context.start(packing)
    advance = state.advance
    assert isinstance(advance, GateStep)
    for t in range(packing.steps):
        x = alphabet.decide(scores(F.linear(context, matrix, bias)) + noise[packing.at(t)])
        drawn.append(x)
        if t + 1 < packing.steps:
            n = packing.active[t + 1]
            given = alphabet.look_up(x[:n], gates) + lstm.bias[0]
            layers = [(h[:n], c[:n]) for h, c in state.layers]
            context, layers = advance(None, layers, given + model.context.features(t, packing, state))
            state = state._replace(layers=layers)
    return torch.cat(drawn)
