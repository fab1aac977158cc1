"""Models as particles walk through them: one step after the other, with a weight for what is known of it.

The target is p(x_free, z | x_known, T). Where nothing is known of a step, x_t is drawn as `sample` draws it. Where
x_t is known, a codebook model draws z_t ~ q(z_t | x_t), which nearly is the posterior, and weighs it by

    p(z_t | z_<t) p(x_t | z_t) / q(z_t | x_t).

Where some notes of x_t are known, both come dimension by dimension. The baseline weighs by p(x_t | x_<t), note by note.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from latflow.errors import LatflowError
from latflow.flows import HiddenFlow, Packing, TiedMixture
from latflow.flows.sequence import AutoregressiveTime, IndependentTime, InverseAutoregressiveTime
from latflow.flows.transform import Step
from latflow.flows.walk import Walk, can_walk
from latflow.models import LatentSequenceModel, LSTMLanguageModel, SequenceModel
from latflow.models.emission.bayes import BayesEmission
from latflow.models.posterior.codebook import CodebookPosterior
from latflow.shapes import Float, Int


class Walker(ABC):
    """Particles, a row each, at a step of their sequences; `temperature` scales the noise of what is drawn freely, and
    with `argmax` x_t is the most likely given that, not a draw."""

    x: Tensor
    """x_t of every row, once `step` has gone through."""

    def __init__(self, packing: Packing, temperature: float, argmax: bool = False):
        self.packing, self.temperature, self.argmax = packing, temperature, argmax

    @abstractmethod
    def step(self, x: Tensor, known: Tensor) -> Iterator[Float[Tensor, "n"]]:
        """Draw step t given x_t of it where `known`: log weights, one after the other. Between two of them, and after
        the last, the rows may be selected."""

    @abstractmethod
    def advance(self, t: int) -> None:
        """From step t on to the next, with the rows that go on."""

    @abstractmethod
    def select(self, index: Int[Tensor, "m"], packing: Packing) -> None:
        """Go on with these rows, laid out so."""


class LSTMWalker(Walker):
    """p(x_t | x_<t, T): given the past, notes are independent, so each is drawn or weighs by itself."""

    def __init__(self, model: LSTMLanguageModel, packing: Packing, temperature: float, argmax: bool = False):
        super().__init__(packing, temperature, argmax)
        self.model = model
        self.context, self.state = model.context.start(packing)

    def step(self, x, known):
        scores, alphabet = self.model.scores(self.context), self.model.alphabet
        noise = 0 if self.argmax else self.temperature * alphabet.noise(len(scores))
        self.x = alphabet.decide(scores + noise)
        if known.any():
            self.x = torch.where(known, x.to(self.x.dtype), self.x)
            yield (
                notes_log_prob(scores, x)[:, known].sum(-1)
                if known.ndim
                else alphabet.log_prob(scores, self.x)
            )

    def advance(self, t):
        self.context, self.state = self.model.context.step(
            self.model.alphabet.embed(self.x), t, self.packing, self.state
        )

    def select(self, index, packing):
        self.state = self.model.context.select(self.state, index, packing)
        self.x, self.context, self.packing = self.x[index], self.context[index], packing


class CodebookWalker(Walker):
    """A latent model whose posterior and emission look at one step alone."""

    def __init__(
        self, model: LatentSequenceModel, packing: Packing, temperature: float, argmax: bool = False
    ):
        super().__init__(packing, temperature, argmax)
        prior, posterior, emission = model.prior, model.posterior, model.emission
        assert isinstance(posterior, CodebookPosterior)
        assert isinstance(emission, BayesEmission)
        if not isinstance(prior.time, AutoregressiveTime | InverseAutoregressiveTime | IndependentTime):
            raise LatflowError(f"no way to go step by step is known for {type(prior.time).__name__}")
        self.model, self.hidden, self.codes, self.emission = model, prior.hidden, posterior.codes, emission
        self.sees_noise = isinstance(prior.time, InverseAutoregressiveTime)
        self.walk: Walk | None = None
        self.context, self.state = prior.context.start(packing)

    @cached_property
    def forward(self) -> Step:
        return self.hidden.stepper("forward")

    @property
    def given(self) -> Tensor | None:
        """The context as the hidden flow takes it."""
        return None if self.hidden.context_size == 0 else self.context

    def step(self, x, known):
        if not known.any():
            self._draw()
            self.x = self.emission.sample(self.z, self.model.alphabet, self.packing, self.argmax)
            return
        if known.all():
            self.x = x.expand(len(self.context), *x.shape)
            self.z, log_q = self._propose(x)
            self.y = self._seen()
            log_p = self.hidden.log_prob(self.z, self.given)
            log_emission = self.model.alphabet.log_prob(self.emission.at(self.z), self.x)
            yield log_p + log_emission - log_q.sum(-1)
        else:
            yield from self._notes(x, known)
            self.y = self._seen()

    def _draw(self) -> None:
        """z_t ~ p(z_t | z_<t), by the shortest way where its eps are not asked for and their scale is 1."""
        n, flow = len(self.context), self.hidden
        if not draws_directly(self.model, self.temperature):
            eps = torch.randn(n, flow.size, dtype=self.context.dtype, device=self.context.device)
            self.z, _ = self.forward(self.temperature * eps, self.given)
            self.y = self.temperature * eps if self.sees_noise else self.z
            return
        if isinstance(flow, TiedMixture):
            self.z = flow.draw(self.context)
        else:
            assert isinstance(flow, HiddenFlow)
            walk = Walk(flow, self.given, n)
            walk.draw(flow.size)
            self.z = walk.z
        self.y = self.z

    def _seen(self) -> Tensor:
        """What the context of the next step sees of this one."""
        return self.hidden.inverse(self.z, self.given)[0] if self.sees_noise else self.z

    def _propose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z_t ~ q(z_t | x_t) of every row, and log q of every dimension."""
        mean, log_std = (part[0] for part in self.codes.of(x[None]))
        noise = torch.randn(len(self.context), len(mean), dtype=mean.dtype, device=mean.device)
        return mean + log_std.exp() * noise, -(0.5 * noise.square() + log_std + 0.5 * math.log(2 * math.pi))

    def _notes(self, x: Tensor, known: Tensor) -> Iterator[Tensor]:
        """Dimension by dimension, stretches of known notes at once; here notes stand in the order of z."""
        flow, turned = self.hidden, self.codes.turned
        if not can_walk(flow) or not isinstance(flow, HiddenFlow):
            raise LatflowError(
                "some notes of a step are kept and others free; that needs a prior with an order of the notes (hidden "
                "af or none, one layer: the presets jsb-af-af-codebook, jsb-af-none-mixture-codebook). Keep or free "
                "whole steps instead"
            )
        self.walk = Walk(flow, self.given, len(self.context))
        self.x = self.context.new_zeros(len(self.context), flow.size)
        start = 0
        for is_known, run in groupby(turned(known).tolist()):
            stop = start + len(list(run))
            here = slice(start, stop)
            if is_known:
                z, log_q = self._propose(x)
                raw = self.walk.raw(z[:, here])
                self.x[:, here] = turned(x)[here].to(self.x.dtype)
                log_p = flow.scalar.at(here).log_prob(z[:, here], raw)
                log_emission = turned(notes_log_prob(self.emission.at(self.walk.z), x))[:, here]
                yield (log_p + log_emission - log_q[:, here]).sum(-1)
            else:
                if self.temperature == 1:
                    self.walk.draw(stop)
                for d in range(self.walk.at, stop):
                    raw = self.walk.raw()[:, 0]
                    eps = self.temperature * torch.randn_like(raw[:, 0])
                    self.walk.put(flow.scalar.at(d).forward(eps, raw)[0])
                scores, alphabet = self.emission.at(self.walk.z), self.model.alphabet
                self.x[:, here] = turned(alphabet.sample(scores, self.argmax, None))[:, here]
            start = stop
        self.x, self.z, self.walk = turned(self.x), self.walk.z, None

    def advance(self, t):
        self.context, self.state = self.model.prior.context.step(self.y, t, self.packing, self.state)

    def select(self, index, packing):
        self.state = self.model.prior.context.select(self.state, index, packing)
        self.x, self.context, self.packing = self.x[index], self.context[index], packing
        if self.walk is not None:
            self.walk.select(index)
        else:
            self.z, self.y = self.z[index], self.y[index]


def notes_log_prob(scores: Float[Tensor, "... v"], x: Tensor) -> Float[Tensor, "... v"]:
    """log p of each note."""
    return F.logsigmoid(torch.where(x > 0, scores, -scores))


def stepwise(model: SequenceModel) -> bool:
    """Whether what the model says of a step hangs on that step and those before it alone."""
    if isinstance(model, LatentSequenceModel):
        return isinstance(model.posterior, CodebookPosterior) and isinstance(model.emission, BayesEmission)
    return isinstance(model, LSTMLanguageModel)


def draws_directly(model: SequenceModel, temperature: float) -> bool:
    """Whether the model goes step by step and what is free is drawn there from its distribution, with no map of a noise
    to find roots of."""
    if not isinstance(model, LatentSequenceModel):
        return stepwise(model)
    prior = model.prior
    direct = can_walk(prior.hidden) or isinstance(prior.hidden, TiedMixture)
    return (
        stepwise(model)
        and temperature == 1
        and direct
        and not isinstance(prior.time, InverseAutoregressiveTime)
    )


def walker_of(model: SequenceModel, packing: Packing, temperature: float, argmax: bool = False) -> Walker:
    """The way through this model; a model without one is a LatflowError that says what to use."""
    if isinstance(model, LSTMLanguageModel):
        return LSTMWalker(model, packing, temperature, argmax)
    if isinstance(model, LatentSequenceModel):
        return CodebookWalker(model, packing, temperature, argmax)
    raise LatflowError(f"no way to go step by step is known for {type(model).__name__}")
