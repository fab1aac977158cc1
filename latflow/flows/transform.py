"""Invertible maps with their Jacobians: the contract of every flow, and composition (paper, section 3).

Two words, everywhere: **forward** is eps -> z (generation), **inverse** is z -> eps (density). Each returns its
result and the log |det| *of the map it applied*, so the two log-dets of one point are negatives of each other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from latflow.shapes import Float

Direction = Literal["forward", "inverse"]
Step = Callable[..., tuple[Tensor, Tensor]]
"""(point, context) -> (image, log-det): one direction of a transform, ready to be called at every step of a pass."""


class Transform(nn.Module, ABC):
    """An invertible map of R^H, conditional on an optional context vector.

    Log-dets are summed over H. `context` has the same leading axes as the point.
    """

    size: int
    """H."""
    context_size: Any = None
    """Features of the context it takes; 0: it takes none; None: whatever it is given."""

    @abstractmethod
    def forward(
        self, eps: Float[Tensor, "*n h"], context: Float[Tensor, "*n c"] | None = None
    ) -> tuple[Float[Tensor, "*n h"], Float[Tensor, "*n"]]:
        """z = f(eps; context) and log |det dz/deps|."""

    @abstractmethod
    def inverse(
        self, z: Float[Tensor, "*n h"], context: Float[Tensor, "*n c"] | None = None
    ) -> tuple[Float[Tensor, "*n h"], Float[Tensor, "*n"]]:
        """eps = f^-1(z; context) and log |det deps/dz|."""

    def stepper(self, direction: Direction) -> Step:
        """One direction, holding what all steps of a serial pass share. Here nothing is shared."""
        return self.forward if direction == "forward" else self.inverse

    def log_prob(
        self, z: Float[Tensor, "*n h"], context: Float[Tensor, "*n c"] | None = None
    ) -> Float[Tensor, "*n"]:
        """log p_Z(z) = log N(f^-1(z); 0, I) + log |det df^-1/dz|: the change of variables (section 3).

        Slopes are exponentials of what networks make of z, and layers of them grow beyond the numbers. Where
        log p_Z(z) is further down than the root of the largest number, no derivative can be told: it is a
        constant there, often -inf, with gradient zero.
        """
        log_p = change_of_variables(z, *self.inverse(z, context))
        beyond = log_p.detach() < -math.sqrt(torch.finfo(log_p.dtype).max)
        if not (log_p.requires_grad and bool(beyond.any())):
            return log_p
        z = z.masked_fill(beyond[..., None], 0)
        context = None if context is None else context.masked_fill(beyond[..., None], 0)
        return torch.where(beyond, log_p.detach(), change_of_variables(z, *self.inverse(z, context)))

    @torch.no_grad()
    def sample(
        self,
        shape: tuple[int, ...] = (),
        context: Float[Tensor, "*n c"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """z = f(eps), eps ~ N(0, I): `shape` points, for each context vector if there is a context."""
        return self.rsample(shape, context, generator)

    def rsample(
        self,
        shape: tuple[int, ...] = (),
        context: Float[Tensor, "*n c"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """`sample`, differentiable in the weights and the context."""
        reference = next(self.parameters(), torch.empty(0))
        leading = tuple(shape)
        if context is not None:
            leading += tuple(context.shape[:-1])
            context = context.expand(*leading, -1)
        eps = torch.randn(
            *leading, self.size, generator=generator, dtype=reference.dtype, device=reference.device
        )
        return self(eps, context)[0]


class Compose(Transform):
    """f = f_n ∘ … ∘ f_1: the first transform is next to eps, the last next to z. Log-dets add up.

    All see the same context, but for those that take none.
    """

    def __init__(self, transforms: Iterable[Transform]):
        super().__init__()
        transforms = list(transforms)
        if not transforms:
            raise ValueError("Compose needs at least one transform, was given none")
        sizes = [transform.size for transform in transforms]
        if len(set(sizes)) > 1:
            raise ValueError(f"Compose needs transforms of one size, was given sizes {sizes}")
        contexts = {transform.context_size for transform in transforms} - {0, None}
        if len(contexts) > 1:
            raise ValueError(
                f"Compose needs transforms of one context, was given sizes {sorted(map(str, contexts))}"
            )
        self.size = sizes[0]
        takes_any = any(transform.context_size is None for transform in transforms)
        self.context_size = next(iter(contexts), None if takes_any else 0)
        self.transforms = nn.ModuleList(transforms)

    def forward(self, eps, context=None):
        return self.stepper("forward")(eps, context)

    def inverse(self, z, context=None):
        return self.stepper("inverse")(z, context)

    def stepper(self, direction):
        order = self.transforms if direction == "forward" else reversed(self.transforms)
        steps = [
            (part.stepper(direction), part.context_size == 0) for part in order if isinstance(part, Transform)
        ]

        def step(point: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
            total = point.new_zeros(point.shape[:-1])
            for one, alone in steps:
                point, logdet = one(point, None if alone else context)
                total = total + logdet
            return point, total

        return step


def change_of_variables(
    z: Float[Tensor, "*n h"], eps: Float[Tensor, "*n h"], logdet: Float[Tensor, "*n"]
) -> Float[Tensor, "*n"]:
    """log N(eps; 0, I) + log |det deps/dz|. Where eps of a finite z is beyond the range of the numbers, the density is
    as good as zero: -inf and not NaN. A z that is not finite has no density: NaN stays NaN."""
    log_p = standard_normal_log_prob(eps) + logdet
    return log_p.masked_fill(log_p.isnan() & z.isfinite().all(-1), -math.inf)


def standard_normal_log_prob(eps: Float[Tensor, "*n h"]) -> Float[Tensor, "*n"]:
    """log N(eps; 0, I), summed over the last axis."""
    return -0.5 * (eps.square().sum(-1) + eps.shape[-1] * math.log(2 * math.pi))
