"""A mixture whose components are given, two or more a dimension: the network says only how likely each is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from latflow.flows.mixture import mixture_forward, mixture_inverse
from latflow.flows.scalar import ScalarTransform
from latflow.shapes import Float

Components = Callable[[], tuple[Tensor, Tensor]]
"""Means and log scales (H, K), as they are now: they may be weights that are trained."""


class TiedScalar(ScalarTransform):
    """eps_d = Φ⁻¹( Σ_k π_k Φ((z_d - m_dk) / s_dk) ) with m and s given for each dimension d. Raw: K - 1 logits of π,
    that of the first component being 0.

    `start` (H,) of two components is where the logit of the second begins.
    """

    def __init__(
        self,
        components: Components,
        start: Float[Tensor, "h"] | None = None,
        dimensions: slice | int = slice(None),
    ):
        self.components, self.begin, self.dimensions = components, start, dimensions
        self.n_params = components()[0].shape[-1] - 1

    def start(self, size: int) -> Tensor | None:
        return None if self.begin is None else self.begin[:, None].expand(-1, self.n_params)

    def at(self, dimensions: slice | int) -> TiedScalar:
        return TiedScalar(self.components, self.begin, dimensions)

    def forward(self, eps, raw):
        return mixture_forward(eps, *self._parameters(raw))

    def inverse(self, z, raw):
        return mixture_inverse(z, *self._parameters(raw))

    def _parameters(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        means, log_scales = self.components()
        logits = torch.cat([torch.zeros_like(raw[..., :1]), raw], -1)
        return logits, means[self.dimensions], log_scales[self.dimensions]
