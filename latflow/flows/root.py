"""The one root finder: safeguarded Newton steps inside a bracket, and the exact gradient of the root.

It serves every scalar map that has no cheap inverse. The solver itself is never differentiated: by the implicit
function theorem, f(u; θ) = 0 has du = -(∂f/∂θ dθ) / (∂f/∂u), which is the gradient of one Newton step taken
with `u` held constant; each further step is exact to twice the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Function = Callable[..., tuple[Tensor, Tensor]]
"""u, *given -> (f(u), f'(u)), elementwise; differentiable in what is given."""

FIRST_STEPS = 3
"""Steps for all elements before the first look at which have converged: a good start needs no more."""
LIMIT = 300
"""Steps after that for the few that have not. Halving alone takes a bracket 1e30 times its root to the last digit."""
ROUNDINGS = 4
"""Residuals of so many roundings of the largest term of f are as good as zero."""


def root(
    f: Function, low: Tensor, high: Tensor, start: Tensor, scale: Tensor, given: Sequence[Tensor] = ()
) -> Tensor:
    """The root of an increasing f(u, *given) in [low, high], elementwise, with its exact gradient and second
    derivatives, to machine precision: the residual is a few roundings of `scale`, the size of the largest term of f,
    or u a few roundings from where f changes its sign. Where neither is reached, an error. NaN gives NaN.

    Everything in f that differs from element to element is `given`, with the leading axes of u (an expanded view
    will do): after a few steps of all elements the finder goes on with those that need more. What it finds for one
    element does not depend on the others.

    Newton's step is taken while it stays inside the shrinking bracket, the middle of the bracket otherwise; so whatever
    `start` is, the last step, which carries the gradient, begins at a finite point of the bracket.
    """
    with torch.no_grad():
        bracket = low, high
        u = torch.minimum(torch.maximum(start, low), high)
        for _ in range(FIRST_STEPS):
            value, slope = f(u, *given)
            low = torch.where(value < 0, u, low)
            high = torch.where(value > 0, u, high)
            newton = u - value / slope
            inside = (newton >= low) & (newton <= high)
            u = torch.where(inside, newton, 0.5 * (low + high))
    value, slope = f(u, *given)
    with torch.no_grad():
        left = ~_at_rounding(u, value, slope, scale)
        some_left = bool(left.any())
    if some_left:
        with torch.no_grad():
            rest = (tensor[left] for tensor in (u, low, high, *bracket, scale, *given))
            found, done = _safeguarded(f, *rest)
            if not bool(done.all()):
                raise ArithmeticError(
                    f"{int((~done).sum())} of {u.numel()} roots not found to machine precision: f must increase, and "
                    "change its sign between `low` and `high`"
                )
            u = u.masked_scatter(left, found)
        value, slope = f(u, *given)
    u = u - value / slope
    if torch.is_grad_enabled():
        value, slope = f(u, *given)
        u = u - value / slope
    return u


def _at_rounding(u: Tensor, value: Tensor, slope: Tensor, scale: Tensor) -> Tensor:
    """Whether the residual is no more than roundings of the terms of f, or of u, account for. True of a NaN, which no
    step would mend."""
    rounding = ROUNDINGS * torch.finfo(u.dtype).eps
    return ~(value.abs() > rounding * torch.maximum(scale, slope * u.abs()))


def _safeguarded(
    f: Function,
    u: Tensor,
    low: Tensor,
    high: Tensor,
    lowest: Tensor,
    highest: Tensor,
    scale: Tensor,
    *given: Tensor,
) -> tuple[Tensor, Tensor]:
    """The root from any u, (n,), and whether it was found.

    Newton's step where it is inside the bracket and at most half as long as the last, else half of the bracket: so
    the steps shrink at least like powers of two. `lowest` and `highest` are the ends of the bracket as first given:
    to close in on an end where f was not seen to have the right sign proves nothing.
    """
    last, done = high - low, torch.zeros_like(u, dtype=torch.bool)
    for _ in range(LIMIT):
        value, slope = f(u, *given)
        low = torch.where(value < 0, u, low)
        high = torch.where(value > 0, u, high)
        closed = high - low <= torch.finfo(u.dtype).eps * u.abs()
        done = _at_rounding(u, value, slope, scale) | (closed & (low > lowest) & (high < highest))
        if bool(done.all()):
            break
        newton = u - value / slope
        short = (newton > low) & (newton < high) & (2 * (newton - u).abs() <= last)
        new = torch.where(short, newton, low + 0.5 * (high - low))
        new = torch.where(done, u, new)
        u, last = new, (new - u).abs()
    return u, done
