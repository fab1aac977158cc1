"""The one root finder: safeguarded Newton steps inside a bracket, and the exact gradient of the root.

It serves every scalar map that has no cheap inverse. The solver itself is never differentiated: by the implicit
function theorem, f(u; θ) = 0 has du = -(∂f/∂θ dθ) / (∂f/∂u), which is the gradient of one Newton step taken
with `u` held constant; each further step is exact to twice the order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor], tuple[Tensor, Tensor]]
"""u -> (f(u), f'(u)), elementwise; differentiable in whatever parameters it closes over."""


def root(f: Function, low: Tensor, high: Tensor, start: Tensor, steps: int = 3) -> Tensor:
    """The root of an increasing f in [low, high], elementwise, with its exact gradient and second derivatives.

    Newton's step is taken while it stays inside the shrinking bracket, the middle of the bracket otherwise; so whatever
    `start` is, the last step, which carries the gradient, begins at a finite point of the bracket. It is exact to
    rounding once Newton's steps have converged.
    """
    with torch.no_grad():
        u = torch.minimum(torch.maximum(start, low), high)
        for _ in range(steps):
            value, slope = f(u)
            low = torch.where(value < 0, u, low)
            high = torch.where(value > 0, u, high)
            newton = u - value / slope
            inside = (newton >= low) & (newton <= high)
            u = torch.where(inside, newton, 0.5 * (low + high))
    for _ in range(2 if torch.is_grad_enabled() else 1):
        value, slope = f(u)
        u = u - value / slope
    return u
