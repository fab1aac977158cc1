"""The LSTM language model with the same T conditioning: the paper's sentence-wise baseline (section 6)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.data.base import DataSpec
from latflow.flows import LSTMContext, Packing
from latflow.flows.seam import replaceable
from latflow.models.base import SequenceModel
from latflow.models.condition import Condition
from latflow.models.length import LengthModel
from latflow.models.symbols import Alphabet
from latflow.shapes import Float


class LSTMLanguageModel(SequenceModel):
    """p(x | T) = Π_t p(x_t | x_<t, T): the context of the flow prior, over embedded symbols instead of z."""

    exact = True

    def __init__(
        self,
        spec: DataSpec,
        alphabet: Alphabet,
        context: LSTMContext,
        condition: Condition | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.spec = spec
        self.length = LengthModel(spec.length_counts)
        self.alphabet, self.context, self.dropout = alphabet, context, dropout
        self.head = nn.Linear(context.size, alphabet.embedding.shape[1])
        self.condition = condition

    def _terms(self, x: Tensor, packing: Packing, samples: int) -> tuple[Tensor, Tensor]:
        rows = packing.pack(x)
        embedded = F.dropout(self.alphabet.embed(rows), self.dropout, self.training)
        scores = self.scores(self.context.whole(embedded, packing))
        log_p = packing.unpack(self.alphabet.log_prob(scores, rows))[:, None]
        return log_p, torch.zeros_like(log_p)

    @replaceable
    def scores(self, context: Float[Tensor, "n c"]) -> Float[Tensor, "n v"]:
        """Of x_t from the context of step t."""
        return self.alphabet.scores(self.head(context))

    @replaceable
    def _sample(self, packing, temperature, argmax, generator):
        noise = self.noise(packing, temperature, argmax, generator)
        drawn = []
        context, state = self.context.start(packing)
        for t in range(packing.steps):
            x = self.alphabet.decide(self.scores(context) + noise[packing.at(t)])
            drawn.append(x)
            context, state = self.context.step(self.alphabet.embed(x), t, packing, state)
        return torch.cat(drawn)

    def noise(self, packing, temperature, argmax, generator) -> Tensor:
        """The noise of this model is the draw itself: temperature flattens or sharpens its distribution."""
        if argmax or temperature == 0:
            return self.head.weight.new_zeros(packing.rows, 1)
        return temperature * self.alphabet.noise(packing.rows, generator)
