"""The latent normalizing flow: p(T) p(z | T) p(x | z, T), trained with q(z | x) (sections 4 and 5)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from latflow.data.base import Batch, DataSpec
from latflow.flows.packing import Packing
from latflow.flows.sequence import SequenceFlow
from latflow.models.base import SequenceModel
from latflow.models.condition import Condition
from latflow.models.length import LengthModel
from latflow.models.parts import Emission, Posterior
from latflow.models.symbols import Alphabet
from latflow.shapes import Float


class Draw(NamedTuple):
    """z ~ q(z | x) for every row of a packing, and what the model and q say of it."""

    z: Float[Tensor, "n h"]
    log_q: Float[Tensor, "n"]
    """log q(z_t | x)."""
    log_p: Float[Tensor, "n"]
    """log p(z_t | z_<t, T)."""
    log_emission: Float[Tensor, "n"]
    """log p(x_t | z, T)."""
    packing: Packing


class LatentSequenceModel(SequenceModel):
    """T ~ p(T), eps ~ N(0, I), z = f(eps; T), x_t ~ p(x_t | z, T)  (supplement D)."""

    exact = False

    def __init__(
        self,
        spec: DataSpec,
        prior: SequenceFlow,
        posterior: Posterior,
        alphabet: Alphabet,
        emission: Emission,
        condition: Condition | None = None,
    ):
        super().__init__()
        self.spec = spec
        self.length = LengthModel(spec.length_counts)
        self.prior, self.posterior = prior, posterior
        self.alphabet, self.emission, self.condition = alphabet, emission, condition

    def draw(self, x: Tensor, packing: Packing, samples: int = 1) -> Draw:
        """`samples` draws of z for each row of x, side by side: the one walk through posterior, prior and emission."""
        z, log_q = self.posterior.rsample(x, self.alphabet, packing, samples)
        # Here the sample axis folds into the rows, and nowhere else.
        packing = packing.repeat(samples)
        log_p = self.prior.log_prob_rows(z, packing)
        x = x if samples == 1 else x.repeat_interleave(samples, 0)
        return Draw(z, log_q, log_p, self.emission.log_prob(x, z, self.alphabet, packing), packing)

    def _terms(self, x: Tensor, packing: Packing, samples: int) -> tuple[Tensor, Tensor]:
        draw = self.draw(packing.pack(x), packing, samples)
        return _per_sample(draw.log_emission, draw.packing), _per_sample(draw.log_q - draw.log_p, draw.packing)

    def _sample(self, packing, temperature, argmax, generator):
        z = self.prior.sample_rows(packing, temperature, generator)
        return self.emission.sample(z, self.alphabet, packing, argmax, generator)

    # What z is good for.

    @torch.no_grad()
    def encode(self, batch: Batch, *, sample: bool = False) -> Float[Tensor, "b t h"]:
        """z of sequences: the most likely under q(z | x), or a draw from it; zero behind the end."""
        self._check(batch)
        packing = self.packing(batch)
        x = packing.pack(batch.x)
        if sample:
            return packing.unpack(self.posterior.rsample(x, self.alphabet, packing, 1)[0])
        return packing.unpack(self.posterior.mode(x, self.alphabet, packing))

    @torch.no_grad()
    def decode(self, z: Float[Tensor, "b t h"], lengths: Tensor, *, argmax: bool = True) -> Tensor:
        """x given z: the most likely, or a draw from p(x | z, T)."""
        packing = Packing(lengths)
        return packing.unpack(self.emission.sample(packing.pack(z), self.alphabet, packing, argmax))

    def reconstruct(self, batch: Batch) -> Tensor:
        """The most likely x given the most likely z of x: what a model keeps of a sequence."""
        return self.decode(self.encode(batch), batch.lengths)

    @torch.no_grad()
    def between(self, first: Batch, last: Batch, steps: int) -> list[tuple[Tensor, int]]:
        """`steps` sequences from one to another, ends included: x (1, t, …) and its length each.

        The way is one in eps, where the prior is a standard normal: eps = cos θ eps_1 + sin θ eps_2 for θ from 0 to
        π/2 keeps it one, so that all on the way is as likely as the ends. Where only one of the two has a step, that
        is its own.
        """
        if steps < 2:
            raise ValueError(f"a way has two ends at least, not {steps}")
        eps = [self.noise(one) for one in (first, last)]
        longer, both = max(eps, key=len), min(map(len, eps))
        points = longer.repeat(steps, 1, 1)
        lengths = torch.empty(steps, dtype=torch.int64, device=longer.device)
        for k in range(steps):
            theta, share = 0.5 * math.pi * k / (steps - 1), k / (steps - 1)
            lengths[k] = round((1 - share) * len(eps[0]) + share * len(eps[1]))
            points[k, :both] = math.cos(theta) * eps[0][:both] + math.sin(theta) * eps[1][:both]
        packing = self.layout(lengths)
        x = self.from_noise(packing.pack(points), packing)
        return [(one[None, :T], T) for one, T in zip(x, lengths.tolist(), strict=True)]

    def noise(self, batch: Batch) -> Float[Tensor, "n h"]:
        """The eps behind the most likely z of x, in rows: where the prior is a standard normal."""
        self._check(batch)
        packing = self.packing(batch)
        z = self.posterior.mode(packing.pack(batch.x), self.alphabet, packing)
        return self.prior.inverse_rows(z, packing)[0]

    @torch.no_grad()
    def from_noise(self, eps: Float[Tensor, "n h"], packing: Packing) -> Tensor:
        """The most likely x given z = f(eps; T), padded."""
        z = self.prior.forward_rows(eps, packing)[0]
        return packing.unpack(self.emission.sample(z, self.alphabet, packing, argmax=True))


def _per_sample(rows: Tensor, packing: Packing) -> Tensor:
    """Rows to (b, s, t)."""
    values = packing.unpack(rows)
    return values[:, None] if packing.samples == 1 else values
