"""What is known of a sequence beside its length: a label, and by how much a piece was transposed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latflow.data.base import DataSpec
from latflow.shapes import Float, Int


class Condition(nn.Module):
    """e(label) + e(shift): `size` features of a sequence, which prior and baseline see at every step.

    A sequence whose label is not known has the mean of the labels' features; a shift that is not given is none.
    """

    def __init__(self, labels: int, shifts: int, size: int):
        super().__init__()
        self.shifts = shifts
        self.label = nn.Parameter(torch.empty(labels, size)) if labels else None
        self.shift = nn.Parameter(torch.empty(2 * shifts + 1, size)) if shifts else None
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    @classmethod
    def of(cls, spec: DataSpec, size: int) -> Condition | None:
        """That of the data, if it has labels or is transposed in training."""
        return cls(len(spec.labels), spec.shifts, size) if spec.labels or spec.shifts else None

    def forward(
        self, n: int, label: Int[Tensor, "b"] | None = None, shift: Int[Tensor, "b"] | None = None
    ) -> Float[Tensor, "b size"]:
        """Features of n sequences."""
        parts = []
        if self.label is not None:
            mean = self.label.mean(0).expand(n, -1)
            parts.append(
                mean if label is None else torch.where((label < 0)[:, None], mean, self.label[label])
            )
        if self.shift is not None:
            zero = torch.zeros(n, dtype=torch.int64, device=self.shift.device)
            parts.append(self.shift[(zero if shift is None else shift) + self.shifts])
        return torch.stack(parts).sum(0)
