"""What a model of sequences promises, and the terms of its objective (paper, section 5).

    log p(x) = log p(x | T) + log p(T)
    ELBO     = E_q[ log p(x | z, T) ] - KL(q(z | x) || p(z | T)) + log p(T)
    NLL      = - log 1/K Σ_k p(x | z_k, T) p(z_k | T) / q(z_k | x) - log p(T),   z_k ~ q

A model gives the terms in nats for every sample, sequence and step; all else is derived here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from latflow.data.base import Batch, DataSpec
from latflow.flows.packing import Packing, check_lengths
from latflow.models.condition import Condition
from latflow.models.length import LengthModel
from latflow.models.symbols import Alphabet
from latflow.shapes import Float, Int


@dataclass(frozen=True)
class Terms:
    """The objective of a batch, apart, in nats. Steps behind the end of a sequence are zero."""

    log_emission: Float[Tensor, "b s t"]
    """log p(x_t | z, T); for the baseline log p(x_t | x_<t, T), with one sample."""
    kl: Float[Tensor, "b s t"]
    """log q(z_t | x) - log p(z_t | z_<t, T), one sample's estimate; zero for the baseline."""
    log_length: Float[Tensor, "b"]
    """log p(T)."""

    @property
    def reconstruction(self) -> Float[Tensor, "b"]:
        """- E_q log p(x | z, T), the mean over the samples."""
        return -self.log_emission.sum(-1).mean(-1)

    @property
    def total_kl(self) -> Float[Tensor, "b"]:
        """KL(q || p), the mean over the samples."""
        return self.kl.sum(-1).mean(-1)

    def elbo(self, kl_weight: float = 1.0) -> Float[Tensor, "b"]:
        """The evidence lower bound of log p(x), with the KL weighted."""
        return self.log_length - self.reconstruction - kl_weight * self.total_kl

    @property
    def log_weights(self) -> Float[Tensor, "b s"]:
        """log p(x, z_k | T) - log q(z_k | x) of each sample: the importance weights."""
        return (self.log_emission - self.kl).sum(-1)


@dataclass(frozen=True)
class Importance:
    """Sums of importance weights, which merge: so K samples need the memory of one chunk."""

    log_sum: Float[Tensor, "b"]
    """log Σ w_k."""
    log_sum_square: Float[Tensor, "b"]
    """log Σ w_k²."""
    samples: int

    @classmethod
    def of(cls, log_weights: Float[Tensor, "b s"]) -> Importance:
        return cls(log_weights.logsumexp(-1), (2 * log_weights).logsumexp(-1), log_weights.shape[-1])

    def __add__(self, other: Importance) -> Importance:
        return Importance(
            torch.logaddexp(self.log_sum, other.log_sum),
            torch.logaddexp(self.log_sum_square, other.log_sum_square),
            self.samples + other.samples,
        )

    def nll(self) -> Float[Tensor, "b"]:
        """- log 1/K Σ w_k."""
        return math.log(self.samples) - self.log_sum

    def effective_samples(self) -> Float[Tensor, "b"]:
        """(Σ w)² / Σ w²: K if all weights are equal, 1 if one carries everything, 0 if none carries anything."""
        return (2 * self.log_sum - self.log_sum_square).exp().masked_fill(self.log_sum == -math.inf, 0)

    def error(self) -> Float[Tensor, "b"]:
        """The standard error of `nll`, by the delta method: that of the mean of w_k over the mean itself,

            se² = 1 / (K - 1) (K Σ w² / (Σ w)² - 1),

        which is never above 1: near that a few samples carry everything, and the error may be larger than it says. NaN
        of one sample."""
        if self.samples < 2:
            return torch.full_like(self.log_sum, math.nan)
        ratio = self.samples * (self.log_sum_square - 2 * self.log_sum).exp()
        return ((ratio - 1).clamp(min=0) / (self.samples - 1)).sqrt()


class SequenceModel(nn.Module, ABC):
    """A distribution over sequences x of length T: p(T) p(x | T)."""

    spec: DataSpec
    length: LengthModel
    alphabet: Alphabet
    condition: Condition | None
    exact: bool
    """Whether `terms` gives the exact log-likelihood, so that one sample says all (the baseline)."""

    @abstractmethod
    def _terms(self, x: Tensor, packing: Packing, samples: int) -> tuple[Tensor, Tensor]:
        """log_emission and kl (b, s, t) of checked input."""

    @abstractmethod
    def _sample(
        self, packing: Packing, temperature: float, argmax: bool, generator: torch.Generator | None
    ) -> Tensor:
        """Rows of x."""

    def terms(self, batch: Batch, samples: int = 1, *, given_length: bool = False) -> Terms:
        """The terms of the objective with `samples` samples of z for each sequence; with `given_length` those of
        p(x | T) alone, which has no log p(T) and wants none of T."""
        if samples < 1:
            raise ValueError(f"the number of samples must be at least 1, not {samples}")
        self._check(batch)
        if (dtype := self.alphabet.bias.dtype) in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"the weights are {dtype}, in which sums over steps and dimensions lose more than what is measured; "
                "model.float() computes with the same weights in full precision"
            )
        if given_length:
            self.length.check_positions(batch.lengths)
            log_length = torch.zeros(len(batch.lengths), device=batch.x.device)
        else:
            log_length = self.length.log_prob(batch.lengths)
        log_emission, kl = self._terms(batch.x, self.packing(batch), samples)
        return Terms(log_emission, kl, log_length)

    def packing(self, batch: Batch) -> Packing:
        """The layout of a batch, with what is known of its sequences."""
        return self.layout(batch.lengths, batch.label, batch.shift, batch.key)

    def layout(
        self,
        lengths: Int[Tensor, "b"],
        label: Int[Tensor, "b"] | None = None,
        shift: Int[Tensor, "b"] | None = None,
        key: Int[Tensor, "b"] | None = None,
    ) -> Packing:
        """The layout of sequences of these lengths, with what else is known of them."""
        condition = None if self.condition is None else self.condition(len(lengths), label, shift)
        return Packing(lengths, condition=condition, keys=key)

    def draws(
        self, batch: Batch, marks: Sequence[int], chunk: int = 10, *, given_length: bool = False
    ) -> Iterator[tuple[Terms, Importance]]:
        """The last of `marks` samples, `chunk` at a time and none across a mark: the terms of each chunk, and the
        importance weights of all samples so far, in float64."""
        if min(marks) < 1 or chunk < 1:
            raise ValueError(f"samples and chunk must be at least 1, not {min(marks)} and {chunk}")
        total: Importance | None = None
        done = 0
        for mark in [1] if self.exact else marks:
            while done < mark:
                part = min(chunk, mark - done)
                with torch.no_grad():
                    terms = self.terms(batch, part, given_length=given_length)
                    new = Importance.of(terms.log_weights.double())
                    total = new if total is None else total + new
                done += part
                yield terms, total

    def importance(
        self, batch: Batch, samples: int = 50, chunk: int = 10
    ) -> tuple[Importance, Float[Tensor, "b"]]:
        """Importance weights of `samples` samples, `chunk` at a time, and log p(T)."""
        log_length = self.length.log_prob(batch.lengths)
        (total,) = deque((weights for _, weights in self.draws(batch, [samples], chunk)), maxlen=1)
        return total, log_length

    def nll(self, batch: Batch, samples: int = 50, chunk: int = 10) -> Float[Tensor, "b"]:
        """- log p(x, T) in nats by importance sampling; exact for the baseline."""
        total, log_length = self.importance(batch, samples, chunk)
        return total.nll() - log_length

    @torch.no_grad()
    def sample(
        self,
        lengths: Int[Tensor, "b"],
        temperature: float = 1.0,
        argmax: bool = False,
        generator: torch.Generator | None = None,
        label: Int[Tensor, "b"] | None = None,
    ) -> Tensor:
        """x ~ p(x | T): (b, t) symbols or (b, t, 88) notes, zero behind the end of a sequence; of these labels, if
        the model knows labels.

        `temperature` scales the noise that the dynamics are driven by; `argmax` takes the most likely x given z (for
        the baseline, the most likely next symbol) instead of drawing it.
        """
        if not temperature >= 0 or math.isinf(temperature):
            raise ValueError(f"temperature must be a number of at least 0, not {temperature}")
        check_lengths(lengths)
        self.length.check_positions(lengths)
        packing = self.layout(lengths, label)
        return packing.unpack(self._sample(packing, temperature, argmax, generator))

    def _check(self, batch: Batch) -> None:
        x, lengths = batch.x, batch.lengths
        check_lengths(lengths)
        categorical = self.spec.emission == "categorical"
        if x.ndim != (2 if categorical else 3) or (not categorical and x.shape[2] != self.spec.size):
            wanted = "(b, t)" if categorical else f"(b, t, {self.spec.size})"
            raise ValueError(f"x must be of shape {wanted} for {self.spec.kind}, not {tuple(x.shape)}")
        if len(lengths) != len(x):
            raise ValueError(f"{len(x)} sequences, but {len(lengths)} lengths")
        if (longest := int(lengths.max())) > x.shape[1]:
            which = int(lengths.argmax())
            raise ValueError(f"length {longest} of sequence {which} does not fit x with {x.shape[1]} steps")
        if x.is_floating_point() and x.isnan().any():
            which = int(x.isnan().flatten(1).any(-1).nonzero()[0, 0])
            raise ValueError(f"NaN in sequence {which} of x")
        low, high = (0, self.spec.size - 1) if categorical else (0, 1)
        outside = (x < low) | (x > high)
        if x.is_floating_point():
            outside |= x != x.round()
        if outside.any():
            where = tuple(outside.nonzero()[0].tolist())
            what = f"a symbol is a whole number from 0 to {high}" if categorical else "a note is 0 or 1"
            raise ValueError(f"{x[where].item()} at sequence {where[0]}, step {where[1]}: {what}")
