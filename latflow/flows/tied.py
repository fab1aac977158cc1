"""A mixture over a whole codebook as a triangular map: Σ_v π_v N(z; μ_v, diag σ_v²) of vectors, one code a symbol.

With the conditional weights w^(d)_v ∝ π_v Π_{j<d} N(z_j; μ_vj, σ_vj), carried from dimension to dimension,

    eps_d = Φ⁻¹( Σ_v w^(d)_v Φ((z_d - μ_vd) / σ_vd) ),
    log |det deps/dz| + log N(eps; 0, I) = log Σ_v π_v N(z; μ_v, σ_v).

Where the codes lie far apart beside their σ, each z belongs to one v, and that is the discrete model with the
probabilities π: with an LSTM as context, the language model.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows.base import Transform
from latflow.flows.mixture import mixture_forward, mixture_inverse
from latflow.shapes import Float

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


class TiedMixture(Transform):
    """Logits of π from the context by one linear layer, without context a bias alone; components from `codes`, a module
    with `means` and `log_scales` (V, H), which may be that of the posterior: it is not copied."""

    def __init__(self, codes: nn.Module, context_size: int = 0):
        super().__init__()
        self.codes, self.context_size = codes, context_size
        means, log_scales = self._codes()
        if means.ndim != 2 or means.shape != log_scales.shape:
            raise ValueError(
                "a codebook has `means` and `log_scales` of one shape (V, H), was given "
                f"{tuple(means.shape)} and {tuple(log_scales.shape)}"
            )
        symbols, self.size = means.shape
        self.bias = nn.Parameter(means.new_zeros(symbols))
        self.weight = None
        if context_size:
            self.weight = nn.Parameter(means.new_empty(symbols, context_size))
            nn.init.uniform_(self.weight, -1 / math.sqrt(context_size), 1 / math.sqrt(context_size))

    def logits(self, context: Float[Tensor, "*n c"] | None = None) -> Float[Tensor, "*n v"]:
        """log π up to a constant."""
        given = 0 if context is None else context.shape[-1]
        if given != self.context_size:
            raise ValueError(
                f"this flow was built for a context of size {self.context_size}, was given {given}"
            )
        return (
            self.bias if context is None or self.weight is None else F.linear(context, self.weight, self.bias)
        )

    def forward(self, eps, context=None):
        return self._walk(eps, context, forward=True)

    def inverse(self, z, context=None):
        return self._walk(z, context, forward=False)

    def log_prob(self, z, context=None):
        """log Σ_v π_v N(z; μ_v, σ_v), without the map."""
        means, log_scales = self._codes()
        x = (z[..., None, :] - means) * (-log_scales).exp()
        log_normal = -0.5 * x.square().sum(-1) - (log_scales + _LOG_ROOT_2PI).sum(-1)
        return (self.logits(context).log_softmax(-1) + log_normal).logsumexp(-1)

    def _walk(self, y: Tensor, context: Tensor | None, forward: bool) -> tuple[Tensor, Tensor]:
        means, log_scales = self._codes()
        logits, columns, total = self.logits(context), [], y.new_zeros(y.shape[:-1])
        logits = logits.expand(*y.shape[:-1], -1)
        scalar_map = mixture_forward if forward else mixture_inverse
        for d, (mean, log_scale) in enumerate(zip(means.unbind(-1), log_scales.unbind(-1), strict=True)):
            image, logdet = scalar_map(y[..., d], logits, mean, log_scale)
            columns.append(image)
            total = total + logdet
            z = image if forward else y[..., d]
            x = (z[..., None] - mean) * (-log_scale).exp()
            logits = (logits - 0.5 * x.square() - log_scale).log_softmax(-1)
        return torch.stack(columns, -1), total

    def _codes(self) -> tuple[Tensor, Tensor]:
        means, log_scales = self.codes.means, self.codes.log_scales
        assert isinstance(means, Tensor)
        assert isinstance(log_scales, Tensor)
        return means, log_scales
