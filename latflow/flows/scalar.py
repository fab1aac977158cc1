"""Invertible scalar maps, applied elementwise with parameters from a network (paper, sections 3, 4.3, C).

A scalar transform has no weights of its own: `raw` is what the network puts out, unrestricted, with a last axis of
`n_params`. Where the output bias of a network begins is the map's `start`; raw zeros are the identity of Affine and
NLSq, so a network that starts near zero starts every flow near the identity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from latflow.flows.root import root
from latflow.shapes import Float

Drawing = Callable[[slice, Tensor], Tensor]


class ScalarTransform(ABC):
    """An increasing map of R for every value of its `n_params` raw parameters."""

    n_params: int
    """How many; a property of the instance (a mixture has three a component)."""

    direct = False
    """Whether `log_prob` needs no map: a closed density of its own."""

    def log_prob(self, z: Float[Tensor, "*n"], raw: Float[Tensor, "*n p"]) -> Float[Tensor, "*n"]:
        """The log density of z where eps is a standard normal."""
        eps, logdet = self.inverse(z, raw)
        return logdet - 0.5 * (eps.square() + math.log(2 * math.pi))

    def draw(self, raw: Float[Tensor, "*n p"]) -> Float[Tensor, "*n"]:
        """z where eps is a standard normal, drawn by the shortest way, without gradients and without its eps."""
        return self.forward(torch.randn_like(raw[..., 0]), raw)[0]

    def drawing(self, dimensions: range, like: Float[Tensor, "n h"]) -> Drawing | None:
        """`draw` of some dimensions for rows `like` these, all noise drawn beforehand: (k of them, raw) -> z (n, k),
        one of few values each. None where z has no such choice."""
        return None

    def start(self, size: int) -> Float[Tensor, "h p"] | None:
        """Raw parameters to begin with for `size` dimensions; None: zeros."""
        return None

    def at(self, dimensions: slice | int) -> ScalarTransform:
        """The map of some of the dimensions, for one that is not the same in all."""
        return self

    @abstractmethod
    def forward(
        self, eps: Float[Tensor, "*n"], raw: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """z and log dz/deps, elementwise."""

    @abstractmethod
    def inverse(
        self, z: Float[Tensor, "*n"], raw: Float[Tensor, "*n p"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """eps and log deps/dz, elementwise."""


@dataclass(frozen=True)
class Affine(ScalarTransform):
    """z = a + b eps,  b = exp(scale b')  (section 3). Raw: a, b'."""

    scale: float = 1.0
    n_params = 2

    def forward(self, eps, raw):
        a, log_b = self._parameters(raw)
        return a + log_b.exp() * eps, log_b

    def inverse(self, z, raw):
        a, log_b = self._parameters(raw)
        return (z - a) * (-log_b).exp(), -log_b

    def _parameters(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        a, log_b = raw.unbind(-1)
        return a, self.scale * log_b


@dataclass(frozen=True)
class NLSq(ScalarTransform):
    """The non-linear squared map (section 4.3, supplement C). Raw: a, b', c', d', g.

        eps = a + b z + c / (1 + u²),   u = d z + g,
        b = exp(b'),  d = exp(d'),  c = κ b / d,  κ = (8√3/9) α tanh(c')

    The formula is the *inverse* direction, as in the paper's own practice (end of supplement C): density is the
    closed formula, sampling the root of the cubic.

    The slope b (1 - 2κ u / (1 + u²)²) has its extremes at u = ±√(1/3), that is at z = (-g ± √(1/3)) / d (the paper
    drops the sign of g), so it lies within b (1 ± α) and the map is increasing for every raw value.

    `scale` multiplies b', c', d' as they come from the network (the authors' code: 0.4, 0.3, 0.4).
    """

    alpha: float = 0.95
    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    n_params = 5

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(
                f"alpha must lie strictly between 0 and 1 for NLSq to be invertible, not {self.alpha}"
            )

    def inverse(self, z, raw):
        a, log_b, kappa, log_d, g = self._parameters(raw)
        b, d = log_b.exp(), log_d.exp()
        u = d * z + g
        r = 1 / (1 + u.square())
        eps = a + b * z + (b / d) * (kappa * r)
        return eps, log_b + _log_relative_slope(kappa, u, r)

    def forward(self, eps, raw):
        # In δ = d z the equation has one shape parameter and a slope within 1 ± α:
        #     h(δ) = δ + κ / (1 + (g + δ)²) - w = 0,   w = (eps - a) d / b.
        # Solving for δ, not for u = g + δ, keeps the digits of z when g is large beside it.
        a, log_b, kappa, log_d, g = self._parameters(raw)
        w = (eps - a) * log_d.exp() * (-log_b).exp()

        low = w - kappa.clamp(min=0)
        high = w - kappa.clamp(max=0)
        with torch.no_grad():
            start = _cubic_root(g + w, kappa) - g
            scale = torch.maximum(w.abs(), kappa.abs())
        delta = root(_nlsq_in_delta, low, high, start, scale, (w, kappa, g))
        u = g + delta
        r = 1 / (1 + u.square())
        return delta * (-log_d).exp(), -(log_b + _log_relative_slope(kappa, u, r))

    @property
    def kappa_bound(self) -> float:
        """The largest |κ|: 8√3/9 · α."""
        return 8 * math.sqrt(3) / 9 * self.alpha

    def _parameters(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        a, b, c, d, g = raw.unbind(-1)
        scale_b, scale_c, scale_d = self.scale
        kappa = self.kappa_bound * torch.tanh(scale_c * c)
        return a, scale_b * b, kappa, scale_d * d, g


def _nlsq_in_delta(delta: Tensor, w: Tensor, kappa: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """h(δ) of `NLSq.forward` and its slope."""
    u = g + delta
    r = 1 / (1 + u.square())
    return delta + kappa * r - w, 1 - 2 * kappa * (u * r) * r


def _log_relative_slope(kappa: Tensor, u: Tensor, r: Tensor) -> Tensor:
    """log(1 - 2κ u r²), r = 1 / (1 + u²): multiplied out in this order no square of a square arises."""
    return torch.log1p(-2 * kappa * (u * r) * r)


def _cubic_root(w: Tensor, kappa: Tensor) -> Tensor:
    """A starting point for u + κ / (1 + u²) = w, that is u³ - w u² + u + (κ - w) = 0: Cardano's formula.

    With u = t + w/3 the cubic is t³ + p t + q = 0, whose single real root is t = s - p / (3 s) with
    s³ = -q/2 ∓ √(q²/4 + p³/27), the sign chosen so that nothing cancels. Beyond |w| = 20, where the digits of w³
    would run out, the first-order expansion u = w - κ / (1 + w²) is closer.
    """
    near = w.clamp(-20, 20)
    p = 1 - near.square() / 3
    q = kappa - near * (2 / 3 + near.square() * (2 / 27))
    radical = (q.square() / 4 + p.pow(3) / 27).clamp(min=0).sqrt()
    cube = -(q / 2 + torch.copysign(radical, q))
    s = torch.copysign(cube.abs().pow(1 / 3), cube)
    s = torch.where(s.abs() < 1e-6, torch.full_like(s, 1e-6), s)
    t = s - p / (3 * s)
    return torch.where(w.abs() <= 20, t + near / 3, w - kappa / (1 + w.square()))
