"""p(x | z): inputless, so that all dynamics live in the prior (section 4.1)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.errors import LatflowError
from latflow.flows.lstm import LSTM
from latflow.flows.packing import Packing
from latflow.flows.positions import Positions
from latflow.models.symbols import Alphabet
from latflow.shapes import Float


class Emission(nn.Module):
    """p(x | z, T) = Π_t p(x_t | z, T): a BiLSTM over z, then the (tied) embedding.

    Step t reads z_t / `scale` itself, the forward state up to t-1 and the backward state from t+1.
    """

    def __init__(
        self,
        alphabet: Alphabet,
        latent_size: int,
        units: int,
        layers: int,
        max_T: int,
        *,
        dropout: float = 0.0,
        rank: int | None = None,
        scale: float = 1.0,
    ):
        super().__init__()
        self.alphabet, self.units, self.dropout, self.scale = alphabet, units, dropout, scale
        self.lstm = LSTM(latent_size, units, layers, bidirectional=True, dropout=dropout)
        self.positions = Positions(max_T, self.lstm.gate_size, 1 / math.sqrt(units), rank)
        self.head = nn.Linear(latent_size + 2 * units, alphabet.embedding.shape[1])

    def scores(self, z: Float[Tensor, "n h"], packing: Packing) -> Float[Tensor, "n v"]:
        hidden = self.lstm(z, packing, self.positions(packing.places.step, packing.places.remaining))
        past, future = F.dropout(hidden, self.dropout, self.training).chunk(2, -1)
        # The head of (z_t, past_{t-1}, future_{t+1}): steps are shifted behind its products, where rows are shorter.
        matrix, bias, scores = self.alphabet.behind(self.head, packing.rows)
        own, of_past, of_future = matrix.split([z.shape[-1], self.units, self.units], 1)
        features = F.linear(z, own / self.scale, bias) + packing.before(F.linear(past, of_past))
        return scores(features + packing.after(F.linear(future, of_future)))

    def log_prob(self, x: Tensor, z: Float[Tensor, "n h"], packing: Packing) -> Float[Tensor, "n"]:
        """log p(x_t | z, T) of every row."""
        return self.alphabet.log_prob(self.scores(z, packing), x)

    def sample(
        self,
        z: Float[Tensor, "n h"],
        packing: Packing,
        argmax: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Rows of x given z."""
        scores = self.scores(z, packing)
        if not scores.isfinite().all():
            raise LatflowError(
                "z leaves the range of its numbers, so there is no x to draw; a lower temperature keeps it within "
                "(1 is the model's own)"
            )
        return self.alphabet.sample(scores, argmax, generator)
