"""p(T): the histogram of lengths (supplement D)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latflow.shapes import Float, Int


class LengthModel(nn.Module):
    """p(T) ∝ counts[T] for T = 0 … max_T. Not trained."""

    log_p: Tensor
    bounded = True
    """Whether the model that it belongs to has a longest length: not if positions are capped."""

    def __init__(self, counts: tuple[int, ...]):
        super().__init__()
        p = torch.tensor(counts, dtype=torch.float64)
        if p.ndim != 1 or p.sum() <= 0 or (p < 0).any() or p[0] != 0:
            raise ValueError(
                "counts of lengths must be non-negative, with none for length 0 and at least one in all"
            )
        self.register_buffer("log_p", (p / p.sum()).log(), persistent=False)

    @property
    def max_T(self) -> int:
        """The longest length that has a position."""
        return len(self.log_p) - 1

    def log_prob(self, lengths: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
        """log p(T) in nats. A length that p(T) gives no probability is an error that names it."""
        lengths = lengths.to(self.log_p.device, torch.int64)
        inside = (lengths >= 0) & (lengths <= self.max_T)
        log_p = self.log_p[lengths.clamp(0, self.max_T)].to(torch.get_default_dtype())
        impossible = ~inside | log_p.isinf()
        if impossible.any():
            which = int(impossible.nonzero()[0, 0])
            support = self.log_p.isfinite().nonzero().flatten()
            raise ValueError(
                f"length {int(lengths[which])} of sequence {which} has no probability under p(T), which was counted on "
                f"the training and validation data: {len(support)} lengths from {int(support[0])} to {int(support[-1])}"
            )
        return log_p

    def check_positions(self, lengths: Int[Tensor, "b"]) -> None:
        """Every length must have position features, whether or not p(T) gives it probability."""
        if self.bounded and (longest := int(lengths.max())) > self.max_T:
            raise ValueError(
                f"length {longest} is longer than the longest the model knows, {self.max_T}; one that is trained with "
                "model.position_cap (16, say) and a codebook knows no longest"
            )

    def sample(self, n: int, generator: torch.Generator | None = None) -> Int[Tensor, "n"]:
        """n lengths from p(T)."""
        return torch.multinomial(self.log_p.exp(), n, replacement=True, generator=generator)
