"""q(z | x): a diagonal Gaussian per step from a BiLSTM over the whole of x (section 5)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows.lstm import LSTM
from latflow.flows.packing import Packing
from latflow.flows.positions import Positions
from latflow.models.symbols import EMBEDDING_RANGE
from latflow.shapes import Float


class Posterior(nn.Module):
    """q(z | x) = Π_t N(z_t; μ_t(x), diag σ_t²(x)), with position features in the LSTM.

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
        self.dropout, self.scale = dropout, scale
        self.lstm = LSTM(embedding_size, units, layers, bidirectional=True, dropout=dropout)
        self.positions = Positions(max_T, self.lstm.gate_size, 1 / math.sqrt(units), rank)
        self.head = nn.Linear(2 * units, 2 * latent_size)
        nn.init.uniform_(self.head.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        nn.init.zeros_(self.head.bias)
        with torch.no_grad():
            self.head.weight[:latent_size] *= gain

    def forward(
        self, embedded: Float[Tensor, "n e"], packing: Packing
    ) -> tuple[Float[Tensor, "n h"], Float[Tensor, "n h"]]:
        """Mean and log standard deviation of every row."""
        hidden = self.lstm(embedded, packing, self.positions(packing.places.step, packing.places.remaining))
        mean, log_variance = self.head(F.dropout(hidden, self.dropout, self.training)).chunk(2, -1)
        return self.scale * mean, 0.5 * log_variance + math.log(self.scale)

    def rsample(
        self, embedded: Float[Tensor, "n e"], packing: Packing, samples: int
    ) -> tuple[Float[Tensor, "ns h"], Float[Tensor, "ns"]]:
        """`samples` draws of z for each row, side by side as in `packing.repeat(samples)`, and their log q(z_t | x)."""
        mean, log_std = self(embedded, packing)
        mean, log_std = mean[:, None], log_std[:, None]
        noise = torch.randn(len(mean), samples, mean.shape[-1], dtype=mean.dtype, device=mean.device)
        z = mean + log_std.exp() * noise
        log_q = -(0.5 * noise.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)
        return z.flatten(0, 1), log_q.flatten()
