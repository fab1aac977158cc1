"""The one root finder: safeguarded Newton steps inside a bracket, and the exact gradient of the root.

It serves every scalar map that has no cheap inverse. The solver itself is never differentiated: by the implicit
function theorem, f(u; θ) = 0 has du = -(∂f/∂θ dθ) / (∂f/∂u), which is the gradient of one Newton step taken
with `u` held constant; each further step is exact to twice the order.
"""

from __future__ import annotations

import math
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
    or u a rounding from where f changes its sign. Where neither is reached, an error. NaN gives NaN.

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
        left = ~_at_rounding(value, scale)
        some_left = _any(left)
    if some_left:
        with torch.no_grad():
            start, *rest = (tensor[left] for tensor in (u, low, high, *bracket, scale, *given))
            found, missing = _safeguarded(f, start, rest)
            if missing:
                raise ArithmeticError(
                    f"{missing} of {u.numel()} roots not found to machine precision: f must increase, and change its "
                    "sign between `low` and `high`"
                )
            u = u.masked_scatter(left, found)
        value, slope = f(u, *given)
    for last in (False, True) if torch.is_grad_enabled() else (True,):
        if some_left:  # those are found, and step for the gradient only
            value = torch.where(left, value - value.detach(), value)
        u = u - value / slope
        if not last:
            value, slope = f(u, *given)
    return u


def _any(mask: Tensor) -> bool:
    """Whether any is. Within torch.func.vmap, where values may not be looked at, it is taken that none is left: there a
    root has the steps that a good start needs, and no more."""
    try:
        return bool(mask.any())
    except RuntimeError:
        return False


def _at_rounding(value: Tensor, scale: Tensor) -> Tensor:
    """Whether the residual is no more than roundings of the terms of f. True of a NaN, which no step would mend.

    A Newton step that is too short to move u would not do: at the edge of a steep part of f the root may be far off in
    the flat part beside it.
    """
    return ~(value.abs() > ROUNDINGS * torch.finfo(value.dtype).eps * scale)


def _safeguarded(f: Function, start: Tensor, rest: Sequence[Tensor]) -> tuple[Tensor, int]:
    """The roots from any start (n,), and how many were not found; `rest` is the bracket as it has shrunk, the bracket
    as first given, the scale and what f is given.

    Newton's step, of at least a rounding of u, where it is inside the bracket and at most half as long as the last,
    else half of the bracket: so the steps shrink at least like powers of two. To close in on an end of the first
    bracket, where f was not seen to have the right sign, proves nothing.
    """
    roots, left = start.clone(), torch.arange(len(start), device=start.device)
    u, last, best, least = start, rest[1] - rest[0], start, torch.full_like(start, math.inf)
    for _ in range(LIMIT):
        low, high, lowest, highest, scale, *given = rest
        value, slope = f(u, *given)
        low = torch.where(value < 0, u, low)
        high = torch.where(value > 0, u, high)
        rounding = torch.finfo(u.dtype).eps * u.abs()
        closed = (high - low <= rounding) & (low > lowest) & (high < highest)
        # One step more from a residual at rounding, and the better of the two.
        done = least.isfinite() | closed | ~(value.abs() > 0)
        best = torch.where(value.abs() > least, best, u)
        least = torch.where(_at_rounding(value, scale), value.abs(), least)
        newton = u - torch.copysign(torch.maximum((value / slope).abs(), rounding), value)
        short = (newton > low) & (newton < high) & (2 * (newton - u).abs() <= last)
        new = torch.where(short, newton, low + 0.5 * (high - low))
        last, rest = (new - u).abs(), (low, high, *rest[2:])
        if bool(done.any()):
            roots[left[done]] = best[done]
            state = (left, new, last, best, least, *rest)
            left, new, last, best, least, *rest = (tensor[~done] for tensor in state)
        u = new
        if not len(left):
            break
    return roots, len(left)
