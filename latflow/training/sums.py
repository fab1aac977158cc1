"""What a training step adds up over its sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any


@dataclass(frozen=True)
class Sums:
    """Sums over sequences: of steps, of a group of batches, of all processes."""

    loss: float = 0.0
    """What is minimized, in nats: -ELBO(x; KL weight) / (T + 1), or -ELBO(x; KL weight) where steps weigh the same."""
    reconstruction: float = 0.0
    """The three terms of -ELBO, in nats."""
    kl: float = 0.0
    length: float = 0.0
    steps: float = 0.0
    """Σ (T + 1)."""
    sequences: float = 0.0
    """How many."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(self.values, other.values, strict=True)))

    @property
    def values(self) -> tuple[float, ...]:
        """All in their order, as a tensor or a file can hold them."""
        return astuple(self)

    @property
    def negative_elbo(self) -> float:
        return self.reconstruction + self.kl + self.length

    @classmethod
    def read(cls, raw: Any) -> Sums:
        """From a checkpoint: by name, or as a list of `values`, which is what early ones hold."""
        if isinstance(raw, Mapping):
            return cls(**raw)
        if isinstance(raw, list):
            return cls(*raw)
        raise TypeError(f"sums are {raw!r}")
