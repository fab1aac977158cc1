"""The LSTM language model with the same T conditioning: the paper's sentence-wise baseline (section 6)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.data.base import DataSpec
from latflow.flows.context import LSTMContext
from latflow.flows.packing import Packing
from latflow.models.base import SequenceModel
from latflow.models.length import LengthModel
from latflow.models.symbols import Alphabet


class LSTMLanguageModel(SequenceModel):
    """p(x | T) = Π_t p(x_t | x_<t, T): the context of the flow prior, over embedded symbols instead of z."""

    exact = True

    def __init__(self, spec: DataSpec, alphabet: Alphabet, context: LSTMContext, dropout: float = 0.0):
        super().__init__()
        self.spec = spec
        self.length = LengthModel(spec.length_counts)
        self.alphabet, self.context, self.dropout = alphabet, context, dropout
        self.head = nn.Linear(context.size, alphabet.embedding.shape[1])

    def _terms(self, x: Tensor, packing: Packing, samples: int) -> tuple[Tensor, Tensor]:
        rows = packing.pack(x)
        embedded = F.dropout(self.alphabet.embed(rows), self.dropout, self.training)
        matrix, bias, scores = self.alphabet.behind(self.head, packing.rows)
        scores = scores(F.linear(self.context.whole(embedded, packing), matrix, bias))
        log_p = packing.unpack(self.alphabet.log_prob(scores, rows))[:, None]
        return log_p, torch.zeros_like(log_p)

    def _sample(self, packing, temperature, argmax, generator):
        noise = self._noise(packing, temperature, argmax, generator)
        # What does not depend on the steps drawn is multiplied out: a symbol's share of the first gates is a row of a
        # table, and the two matrices behind the LSTM are one.
        alphabet, lstm = self.alphabet, self.context.lstm
        gates = F.linear(alphabet.embedding, lstm.input_weight[0])
        matrix, bias, scores = alphabet.behind(self.head, packing.rows)
        drawn = []
        context, state = self.context.start(packing)
        for t in range(packing.steps):
            x = alphabet.decide(scores(F.linear(context, matrix, bias)) + noise[packing.at(t)])
            drawn.append(x)
            if t + 1 < packing.steps:
                given = alphabet.look_up(x[: packing.active[t + 1]], gates) + lstm.bias[0]
                context, state = self.context.step_given(given, t, packing, state)
        return torch.cat(drawn)

    def _sample_plain(self, packing, temperature, argmax, generator):
        """The straightforward way, one module after the other at each step: the reference in tests."""
        noise = self._noise(packing, temperature, argmax, generator)
        drawn = []
        context, state = self.context.start(packing)
        for t in range(packing.steps):
            x = self.alphabet.decide(self.alphabet.scores(self.head(context)) + noise[packing.at(t)])
            drawn.append(x)
            context, state = self.context.step(self.alphabet.embed(x), t, packing, state)
        return torch.cat(drawn)

    def _noise(self, packing, temperature, argmax, generator) -> Tensor:
        """The noise of this model is the draw itself: temperature flattens or sharpens its distribution."""
        if argmax or temperature == 0:
            return self.head.weight.new_zeros(packing.rows, 1)
        return temperature * self.alphabet.noise(packing.rows, generator)
