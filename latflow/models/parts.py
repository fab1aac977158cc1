"""The parts of a latent model: what a posterior and an emission promise, and the order in which all are made."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor, nn

from latflow.config import ModelConfig
from latflow.data.base import DataSpec
from latflow.errors import LatflowError
from latflow.flows import Context, Packing, Reading, ScalarTransform, SequenceFlow, Time, Transform
from latflow.models.symbols import Alphabet
from latflow.shapes import Float


class Posterior(nn.Module, ABC):
    """q(z | x), from which z can be drawn with gradients."""

    latent_size: int
    """H."""
    keyed = False
    """Whether all its random numbers are `packing.noise`, so that they depend on each sequence's key alone."""

    @abstractmethod
    def rsample(
        self, x: Tensor, alphabet: Alphabet, packing: Packing, samples: int
    ) -> tuple[Float[Tensor, "ns h"], Float[Tensor, "ns"]]:
        """`samples` draws of z for each row of x, side by side as in `packing.repeat(samples)`, and log q(z_t | x)."""

    @abstractmethod
    def mode(self, x: Tensor, alphabet: Alphabet, packing: Packing) -> Float[Tensor, "n h"]:
        """The most likely z of every row."""


class GaussianPosterior(Posterior):
    """q(z | x) = Π_t N(z_t; μ_t(x), diag σ_t²(x))."""

    keyed = True

    @abstractmethod
    def forward(
        self, x: Tensor, alphabet: Alphabet, packing: Packing
    ) -> tuple[Float[Tensor, "n h"], Float[Tensor, "n h"]]:
        """Mean and log standard deviation of every row."""

    def rsample(self, x, alphabet, packing, samples):
        mean, log_std = self(x, alphabet, packing)
        mean, log_std = mean[:, None], log_std[:, None]
        noise = packing.noise(samples, mean.shape[-1], mean)
        z = mean + log_std.exp() * noise
        log_q = -(0.5 * noise.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)
        return z.flatten(0, 1), log_q.flatten()

    def mode(self, x, alphabet, packing):
        return self(x, alphabet, packing)[0]


class Emission(nn.Module, ABC):
    """p(x | z, T) = Π_t p(x_t | z, T): inputless, so that all dynamics live in the prior (section 4.1).

    It gives scores, which the model's alphabet makes a distribution of: a softmax over symbols, a sigmoid a note.
    """

    local = False
    """Whether step t reads z_t alone."""

    @abstractmethod
    def scores(
        self, z: Float[Tensor, "n h"], alphabet: Alphabet, packing: Packing
    ) -> Float[Tensor, "n v"]: ...

    def log_prob(
        self, x: Tensor, z: Float[Tensor, "n h"], alphabet: Alphabet, packing: Packing
    ) -> Float[Tensor, "n"]:
        """log p(x_t | z, T) of every row."""
        return alphabet.log_prob(self.scores(z, alphabet, packing), x)

    def sample(
        self,
        z: Float[Tensor, "n h"],
        alphabet: Alphabet,
        packing: Packing,
        argmax: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Rows of x given z."""
        scores = self.scores(z, alphabet, packing)
        if not scores.isfinite().all():
            raise LatflowError(
                "z leaves the range of its numbers, so there is no x to draw; a lower temperature keeps it within "
                "(1 is the model's own)"
            )
        return alphabet.sample(scores, argmax, generator)


class Parts:
    """A latent model while it is made: each part when it is first asked for, by the choice of the config.

    The constructors of the axes (`latflow.axes`) are given their options and this, so that a part can be made to
    fit others: a reading that asks for the emission gets the one of the model.
    """

    def __init__(self, config: ModelConfig, spec: DataSpec, alphabet: Alphabet, condition_size: int):
        self.config, self.spec, self.alphabet, self.condition_size = config, spec, alphabet, condition_size

    @property
    def max_T(self) -> int:
        """The longest length that has a position."""
        return self.spec.max_T

    @property
    def rank(self) -> int | None:
        """Of the position embedding."""
        return self.config.position_rank

    @property
    def latent_size(self) -> int:
        """H."""
        return self.posterior.latent_size if self.config.latent_size is None else self.config.latent_size

    @cached_property
    def reading(self) -> Reading:
        return self.config.prior.reading.build(self)

    @cached_property
    def context(self) -> Context:
        return self.config.prior.context.build(self)

    @cached_property
    def scalar(self) -> ScalarTransform:
        return self.config.prior.scalar.build(self)

    @cached_property
    def hidden(self) -> Transform:
        return self.config.prior.hidden.build(self)

    @cached_property
    def time(self) -> Time:
        return self.config.prior.time.build(self)

    @cached_property
    def prior(self) -> SequenceFlow:
        context = self.context  # made before the hidden flow, whose size of context it decides
        return SequenceFlow(self.hidden, context, self.time)

    @cached_property
    def posterior(self) -> Posterior:
        return self.config.posterior.build(self)

    @cached_property
    def emission(self) -> Emission:
        return self.config.emission.build(self)
