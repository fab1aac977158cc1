"""The latent normalizing flow: p(T) p(z | T) p(x | z, T), trained with q(z | x) (sections 4 and 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latflow.data.base import Batch, DataSpec, collate
from latflow.flows.packing import Packing
from latflow.flows.sequence import SequenceFlow
from latflow.models.base import SequenceModel
from latflow.models.condition import Condition
from latflow.models.length import LengthModel
from latflow.models.parts import Emission, Posterior
from latflow.models.symbols import Alphabet
from latflow.shapes import Float, Int

Given = Batch | str | np.ndarray | Sequence[Any]
"""Sequences as people have them."""


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
        return _per_sample(draw.log_emission, draw.packing), _per_sample(
            draw.log_q - draw.log_p, draw.packing
        )

    def _sample(self, packing, temperature, argmax, generator):
        z = self.prior.sample_rows(packing, temperature, generator)
        return self.emission.sample(z, self.alphabet, packing, argmax, generator)

    # What z is good for. `x` is given as a batch, as a list of what `DataSpec.encode` takes (strings,
    # lists of tokens, rolls), or as one string or array.

    @torch.no_grad()
    def encode(self, x: Given, *, sample: bool = False) -> Float[Tensor, "b t h"]:
        """z of sequences: the most likely under q(z | x), or a draw from it; zero behind the end."""
        batch = self._batch(x)
        packing = self.packing(batch)
        rows = packing.pack(batch.x)
        if sample:
            return packing.unpack(self.posterior.rsample(rows, self.alphabet, packing, 1)[0])
        return packing.unpack(self.posterior.mode(rows, self.alphabet, packing))

    @torch.no_grad()
    def decode(
        self, z: Float[Tensor, "b t h"], lengths: Int[Tensor, "b"], *, argmax: bool = True
    ) -> list[np.ndarray]:
        """x given z: the most likely, or a draw from p(x | z, T). A sequence each, as `DataSpec.decode` takes it."""
        packing = Packing(lengths)
        self.length.check_positions(lengths)
        x = packing.unpack(self.emission.sample(packing.pack(z), self.alphabet, packing, argmax))
        return [one[:T].cpu().numpy() for one, T in zip(x, lengths.tolist(), strict=True)]

    def reconstruct(self, x: Given) -> list[np.ndarray]:
        """The most likely x given the most likely z of x: what a model keeps of a sequence."""
        batch = self._batch(x)
        return self.decode(self.encode(batch), batch.lengths)

    @torch.no_grad()
    def between(self, first: Given, last: Given, steps: int) -> list[np.ndarray]:
        """`steps` sequences from one to another; the ends are what `reconstruct` makes of the two.

        The way is one in eps, where the prior is a standard normal: eps = cos θ eps_1 + sin θ eps_2 for θ from 0 to
        π/2 keeps it one, so that all on the way is as likely as the ends. Where only one of the two has a step, that
        is its own; T and the features of labels go from those of the one to those of the other in a straight line.
        """
        if steps < 2:
            raise ValueError(f"a way has two ends at least, not {steps}")
        (eps, condition), (other, other_condition) = map(self._noise, (first, last))
        both, longer = min(len(eps), len(other)), max(eps, other, key=len)
        share = torch.linspace(0, 1, steps, dtype=torch.float64, device=eps.device)
        theta = (0.5 * math.pi * share).to(eps.dtype)[:, None, None]
        points = longer.repeat(steps, 1, 1)
        points[:, :both] = theta.cos() * eps[:both] + theta.sin() * other[:both]
        lengths = torch.lerp(len(eps) * torch.ones_like(share), len(other) * torch.ones_like(share), share)
        known = None
        if condition is not None and other_condition is not None:
            known = torch.lerp(condition, other_condition, share.to(condition.dtype)[:, None])
        packing = Packing(lengths.round().long(), condition=known)
        z = self.prior.forward_rows(packing.pack(points), packing)[0]
        return self.decode(packing.unpack(z), packing.lengths)

    def _noise(self, x: Given) -> tuple[Float[Tensor, "t h"], Tensor | None]:
        """eps of one sequence, and the features of what is known of it."""
        batch = self._batch(x)
        if len(batch.lengths) != 1:
            raise ValueError(f"a way leads from one sequence to one, not from or to {len(batch.lengths)}")
        return self.noise(batch), self.packing(batch).condition

    def _batch(self, x: Given) -> Batch:
        if not isinstance(x, Batch):
            items = [x] if isinstance(x, (str, np.ndarray)) else x
            x = collate(items, self.spec).to(self.alphabet.bias.device)
        self._check(x)
        self.length.check_positions(x.lengths)
        return x

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
