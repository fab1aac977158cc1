"""p(x | z): inputless, so that all dynamics live in the prior (section 4.1)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows import LSTM, Packing, Positions
from latflow.flows.seam import replaceable
from latflow.models.parts import Emission
from latflow.models.symbols import Alphabet


class BiLSTMEmission(Emission):
    """p(x | z, T) = Π_t p(x_t | z, T): a BiLSTM over z, then the (tied) embedding.

    Step t reads z_t / `scale` itself, the forward state up to t-1 and the backward state from t+1.
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
    ):
        super().__init__()
        self.units, self.dropout, self.scale = units, dropout, scale
        self.lstm = LSTM(latent_size, units, layers, bidirectional=True, dropout=dropout)
        self.positions = Positions(max_T, self.lstm.gate_size, 1 / math.sqrt(units), rank)
        self.head = nn.Linear(latent_size + 2 * units, embedding_size)

    def scores(self, z, alphabet, packing):
        places = packing.places
        hidden = self.lstm(z, packing, self.positions(places.step, places.remaining))
        past, future = F.dropout(hidden, self.dropout, self.training).chunk(2, -1)
        return self.head_scores(z, past, future, alphabet, packing)

    @replaceable
    def head_scores(
        self, z: Tensor, past: Tensor, future: Tensor, alphabet: Alphabet, packing: Packing
    ) -> Tensor:
        """Those of (z_t, past_{t-1}, future_{t+1})."""
        features = torch.cat([z / self.scale, packing.before(past), packing.after(future)], -1)
        return alphabet.scores(self.head(features))
