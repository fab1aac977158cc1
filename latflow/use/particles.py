"""Sequential Monte Carlo: weighted particles, resampled when few of them carry all the weight.

    Z_t = Z_(t-1) Σ_i W_i w_i,   W_i ∝ W_i w_i,   ESS = 1 / Σ_i W_i²

Z is an unbiased estimate of p(x_known | T), whenever particles are resampled. Who descends from whom is kept: where all
particles share an ancestor at some step, that step is one draw and not many.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from latflow.errors import LatflowError
from latflow.shapes import Float, Int


class Particles:
    """n weights, what has been seen of their sum, and the ancestors of each particle at every step so far."""

    def __init__(self, n: int, steps: int, threshold: float, device: torch.device):
        self.threshold = threshold
        """Resample where fewer than this share of the particles is effective."""
        self.log_weights = torch.full((n,), -math.log(n), dtype=torch.float64, device=device)
        """Normalized."""
        self.log_z = torch.zeros(steps, dtype=torch.float64)
        """What each step adds to log Z: log p(known of step t | known before)."""
        self.ess = torch.full((steps,), float(n), dtype=torch.float64)
        """The smallest number of effective particles within each step, before resampling."""
        self.ancestors = torch.zeros(n, steps, dtype=torch.int64, device=device)
        self.resampled = 0

    def weigh(self, t: int, log_w: Float[Tensor, "n"]) -> Int[Tensor, "n"] | None:
        """Multiply weights; if too few are left, the particles to go on with, all of one weight again."""
        joint = self.log_weights + log_w.double().nan_to_num(nan=-math.inf, neginf=-math.inf)
        total = joint.logsumexp(0)
        self.log_z[t] += total.cpu()
        if total == -math.inf:
            raise LatflowError(
                f"impossible: what is known of step {t + 1} has no probability after what is known before it "
                f"(log p = -inf with {len(log_w)} particles); see that step, or free it"
            )
        self.log_weights = joint - total
        ess = self.effective()
        self.ess[t] = torch.minimum(self.ess[t], ess.cpu())
        if ess >= self.threshold * len(self.log_weights):
            return None
        self.resampled += 1
        return self.select(len(self.log_weights))

    def select(self, n: int) -> Int[Tensor, "n"]:
        """n of the particles, each as often as its weight has it (systematic resampling), in their order."""
        cumulative = self.log_weights.exp().cumsum(0)
        places = (torch.arange(n, device=cumulative.device) + torch.rand((), device=cumulative.device)) / n
        index = torch.searchsorted(cumulative / cumulative[-1], places.double()).clamp(
            max=len(cumulative) - 1
        )
        self.ancestors = self.ancestors[index]
        self.log_weights = torch.full_like(index, -math.log(n), dtype=torch.float64)
        return index

    def mark(self, t: int) -> None:
        """Step t is drawn: from here on each particle is an ancestor of those after it."""
        self.ancestors[:, t] = torch.arange(len(self.ancestors), device=self.ancestors.device)

    def effective(self) -> Float[Tensor, ""]:
        """1 / Σ W²."""
        return (-(2 * self.log_weights).logsumexp(0)).exp()

    def effective_draws(self, steps: int) -> Float[Tensor, "steps"]:
        """1 / Σ_a (Σ_{i of a} W_i)² over the ancestors a of each of the first steps: what is left of its draws."""
        weights = self.log_weights.exp()
        found = []
        for ancestor in self.ancestors[:, :steps].unbind(1):
            found.append(1 / torch.zeros_like(weights).index_add(0, ancestor, weights).square().sum())
        return torch.stack(found).cpu() if found else torch.zeros(0, dtype=torch.float64)


class Drawn(NamedTuple):
    """What a walk with particles comes back with."""

    found: Tensor
    """(n, t, …) of which each sequence has its own length."""
    lengths: Int[Tensor, "n"]
    cloud: Particles
    effective: Float[Tensor, "steps"]
    """Draws of each step that were left at the last known one."""
