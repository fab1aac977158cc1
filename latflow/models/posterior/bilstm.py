"""q(z | x): a diagonal Gaussian per step from a BiLSTM over the whole of x (section 5)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from latflow.flows import LSTM, Positions
from latflow.models.parts import GaussianPosterior
from latflow.models.symbols import EMBEDDING_RANGE


class BiLSTMPosterior(GaussianPosterior):
    """μ_t(x) and σ_t(x) from a BiLSTM over the embedded x, with position features in it.

    The head puts out μ and log σ² of z / `scale`. An optimizer moves its weights as fast whatever `scale` is, so the
    smaller that is, the nearer to its start z stays while the KL counts little. `gain` multiplies the initial weights
    to μ.
    """

    def __init__(
        self,
        embedding_size: int,
        latent_size: int,
        units: int,
        layers: int,
        max_T: int,
        *,
        dropout: float = 0.0,
        rank: int | None = None,
        scale: float = 1.0,
        gain: float = 1.0,
    ):
        super().__init__()
        self.latent_size, self.dropout, self.scale = latent_size, dropout, scale
        self.lstm = LSTM(embedding_size, units, layers, bidirectional=True, dropout=dropout)
        self.positions = Positions(max_T, self.lstm.gate_size, 1 / math.sqrt(units), rank)
        self.head = nn.Linear(2 * units, 2 * latent_size)
        nn.init.uniform_(self.head.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        nn.init.zeros_(self.head.bias)
        with torch.no_grad():
            self.head.weight[:latent_size] *= gain

    def forward(self, x, alphabet, packing):
        places = packing.places
        hidden = self.lstm(alphabet.embed(x), packing, self.positions(places.step, places.remaining))
        mean, log_variance = self.head(F.dropout(hidden, self.dropout, self.training)).chunk(2, -1)
        return self.scale * mean, 0.5 * log_variance + math.log(self.scale)
