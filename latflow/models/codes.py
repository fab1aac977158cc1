"""A codebook: a Gaussian of its own for each symbol, or for each note on and off.

    text, tokens   a row for each of V symbols, H numbers: q(z_t | x_t) = N(μ(x_t), diag σ²(x_t))
    music          H = 88, one number a note, from the lowest up or from the highest down: row 0 for a note that is off,
                   row 1 for one that is on

Codes start apart, at ±1: the binary digits of a symbol's rank by frequency, H = ⌈log2 V⌉ of them or more; a note's
number at -1 or 1. So there is nothing to invent before the prior can learn, and no KL weight to raise.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.data.base import NOTES, DataSpec
from latflow.errors import LatflowError
from latflow.flows.tied import log_normals
from latflow.models.symbols import Alphabet
from latflow.shapes import Float


class Codes(nn.Module):
    """Means and log standard deviations, (V, H), or (2, 88) of notes."""

    means: Tensor
    log_scales: Tensor

    def __init__(
        self, spec: DataSpec, size: int | None, sigma: float = 0.3, learned: bool = True, notes: str = "up"
    ):
        super().__init__()
        self.music, self.down = spec.emission == "bernoulli", notes == "down"
        if self.down and not self.music:
            raise LatflowError(f"model.posterior.notes is {notes}; only music has notes, {spec.kind} none")
        if self.music and size not in (None, NOTES):
            raise LatflowError(
                f"model.latent_size is {size}; a codebook of music has one number a note: leave it unset, or {NOTES}"
            )
        digits = max(1, math.ceil(math.log2(spec.size)))
        if not self.music and size is not None and size < digits:
            raise LatflowError(
                f"model.latent_size is {size}; codes of {spec.size} symbols that are to start apart have "
                f"{digits} numbers at least: leave it unset, or {digits} or more"
            )
        self.size = NOTES if self.music else size or digits
        start = _note_codes() if self.music else _symbol_codes(spec, self.size, digits)
        for name, value in (("means", start), ("log_scales", torch.full_like(start, math.log(sigma)))):
            if learned:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    def turned(self, notes: Tensor) -> Tensor:
        """What stands for each note (…, 88), in the order of z; or back."""
        return notes.flip(-1) if self.down else notes

    def of(self, x: Tensor) -> tuple[Float[Tensor, "n h"], Float[Tensor, "n h"]]:
        """Mean and log standard deviation of each row of x."""
        if self.music:
            on = self.turned(x).to(self.means.dtype)
            return tuple(off + on * (sounds - off) for off, sounds in (self.means, self.log_scales))  # type: ignore[return-value]
        return F.embedding(x.long(), self.means), F.embedding(x.long(), self.log_scales)

    def pairs(self) -> tuple[Float[Tensor, "h 2"], Float[Tensor, "h 2"]]:
        """Of music: means and log standard deviations of each number of z, its note off and on."""
        return self.means.t(), self.log_scales.t()

    def log_likelihoods(self, z: Float[Tensor, "n h"]) -> Float[Tensor, "n v"]:
        """log q(z_t | x) of each symbol x; of each note, that of on minus that of off."""
        if self.music:
            off, on = (
                -0.5 * ((z - m) * (-s).exp()).square() - s
                for m, s in zip(self.means, self.log_scales, strict=True)
            )
            return self.turned(on - off)
        return log_normals(z, self.means, self.log_scales)


class EmbeddedLogits(nn.Module):
    """Logits of symbols as a language model has them: features W c of the context times each symbol's embedding."""

    def __init__(self, alphabet: Alphabet, context_size: int):
        super().__init__()
        self.alphabet = (alphabet,)  # a tuple: it is the model's own, not a part of this one
        self.head = nn.Linear(context_size, alphabet.embedding.shape[1])

    def forward(self, context: Float[Tensor, "n c"]) -> Float[Tensor, "n v"]:
        return F.linear(self.head(context), self.alphabet[0].output_matrix)


def log_odds(spec: DataSpec) -> Float[Tensor, "v"]:
    """Where the logits of symbols begin: the logarithms of their counts in the training data, half a count added to
    each; of notes, the log-odds of sounding. Zeros where nothing was counted."""
    if not spec.symbol_counts:
        return torch.zeros(spec.size)
    counts = torch.tensor(spec.symbol_counts, dtype=torch.float64) + 0.5
    odds = counts / (spec.train_steps + 1 - counts) if spec.emission == "bernoulli" else counts / counts.sum()
    return odds.log().to(torch.get_default_dtype())


def _symbol_codes(spec: DataSpec, size: int, digits: int) -> Float[Tensor, "v h"]:
    counts = torch.tensor(spec.symbol_counts or [0] * spec.size)
    rank = torch.empty(spec.size, dtype=torch.int64)
    rank[counts.argsort(descending=True, stable=True)] = torch.arange(spec.size)
    bits = (rank[:, None] >> (torch.arange(size) % digits)) & 1
    return 2.0 * bits - 1


def _note_codes() -> Float[Tensor, "2 h"]:
    return torch.tensor([[-1.0], [1.0]]).repeat(1, NOTES)
