"""Position features (supplement D): two one-hots per step, the distance from the start and from the end.

A one-hot of width max_T times a weight matrix is a row of that matrix, so rows are looked up and the cost of a step
does not grow with max_T.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.shapes import Float, Int


class Positions(nn.Module):
    """p(t, T) = start[t] + end[T - 1 - t], of `size` features.

    With `rank` r the two tables have r columns and one r-to-`size` matrix each: max_T · r numbers instead of
    max_T · size, for corpora with very long pieces (the paper's presets leave it off). With `cap` c both distances are
    counted up to c only, min(t, c) and min(T - 1 - t, c): then nothing is known of T but near the end, and there
    is no longest length.
    """

    def __init__(self, max_T: int, size: int, bound: float, rank: int | None = None, cap: int | None = None):
        super().__init__()
        self.max_T, self.size, self.cap = max_T, size, cap
        columns = size if rank is None else rank
        self.start, self.end = (nn.Parameter(torch.empty(self.rows, columns)) for _ in range(2))
        self.mix = None if rank is None else nn.Parameter(torch.empty(size, 2 * rank))
        if self.mix is None:
            for table in (self.start, self.end):
                nn.init.uniform_(table, -bound, bound)
        else:
            for table in (self.start, self.end):
                nn.init.normal_(table, std=1 / math.sqrt(columns))
            nn.init.uniform_(self.mix, -math.sqrt(3) * bound, math.sqrt(3) * bound)

    @property
    def rows(self) -> int:
        """Of each table."""
        return self.max_T if self.cap is None else self.cap + 1

    def forward(self, step: Int[Tensor, "n"], remaining: Int[Tensor, "n"]) -> Float[Tensor, "n size"]:
        """Features of the steps `step` (from 0) that have `remaining` steps after them."""
        if self.cap is not None:
            step, remaining = step.clamp(max=self.cap), remaining.clamp(max=self.cap)
        start = F.embedding(step, self.start)
        end = F.embedding(remaining, self.end)
        if self.mix is None:
            return start.add_(end)
        return F.linear(torch.cat([start, end], -1), self.mix)
