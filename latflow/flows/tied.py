"""Mixtures whose components are given, by a codebook: the network says only how likely each is.

`TiedScalar` has some components a dimension. `TiedMixture` is a mixture over a whole codebook as a triangular map,
Σ_v π_v N(z; μ_v, diag σ_v²) of vectors, one code a symbol. With the conditional weights
w^(d)_v ∝ π_v Π_{j<d} N(z_j; μ_vj, σ_vj), carried from dimension to dimension,

    eps_d = Φ⁻¹( Σ_v w^(d)_v Φ((z_d - μ_vd) / σ_vd) ),
    log |det deps/dz| + log N(eps; 0, I) = log Σ_v π_v N(z; μ_v, σ_v).

Where the codes lie far apart beside their σ, each z belongs to one v, and that is the discrete model with the
probabilities π: with an LSTM as context, the language model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows.mixture import mixture_draw, mixture_forward, mixture_inverse, mixture_log_prob
from latflow.flows.scalar import ScalarTransform
from latflow.flows.seam import replaceable
from latflow.flows.transform import Direction, Step, Transform
from latflow.shapes import Float

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


Components = Callable[[], tuple[Tensor, Tensor]]
"""Means and log scales (H, K), as they are now: they may be weights that are trained."""


@replaceable
def log_normals(
    z: Float[Tensor, "*n h"], means: Float[Tensor, "v h"], log_scales: Float[Tensor, "v h"]
) -> Float[Tensor, "*n v"]:
    """log N(z; μ_v, diag σ_v²) of every v."""
    x = (z[..., None, :] - means) * (-log_scales).exp()  # (*n, V, H)
    return -0.5 * x.square().sum(-1) - (log_scales + _LOG_ROOT_2PI).sum(-1)


class TiedScalar(ScalarTransform):
    """eps_d = Φ⁻¹( Σ_k π_k Φ((z_d - m_dk) / s_dk) ) with m and s given for each dimension d. Raw: K - 1 logits of π,
    that of the first component being 0.

    `start` (H,) of two components is where the logit of the second begins.
    """

    direct = True

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

    def log_prob(self, z, raw):
        if self.n_params > 1:
            return mixture_log_prob(z, *self._parameters(raw))
        # Of two components the sum is one of two tensors: an axis of two would cost a third of a step on music.
        means, log_scales = (part[self.dimensions].unbind(-1) for part in self.components())
        first, second = (
            -0.5 * ((z - mean) * (-log_scale).exp()).square() - log_scale
            for mean, log_scale in zip(means, log_scales, strict=True)
        )
        logit = raw[..., 0]
        return torch.logaddexp(first, logit + second) - F.softplus(logit) - _LOG_ROOT_2PI

    def draw(self, raw):
        return mixture_draw(*self._parameters(raw))

    def drawing(self, dimensions, like):
        """Of two components, z_d = m_1 + s_1 ξ where the logit exceeds log E_1 - log E_0 of two exponentials, which is
        logistic, and m_0 + s_0 ξ elsewhere: all but the comparison beforehand."""
        if self.n_params > 1:
            return None
        first, shape = dimensions.start, (len(dimensions), len(like))
        noise = like.new_empty(*shape, 2).exponential_().log()
        threshold = (noise[..., 1] - noise[..., 0]).t()
        xi = torch.randn(shape, dtype=like.dtype, device=like.device).t()
        means, log_scales = (part[first : dimensions.stop] for part in self.components())
        off, on = (
            mean + s.exp() * xi for mean, s in zip(means.unbind(-1), log_scales.unbind(-1), strict=True)
        )

        def decide(which: slice, raw: Tensor) -> Tensor:
            here = slice(which.start - first, which.stop - first)
            return torch.where(raw[..., 0] > threshold[:, here], on[:, here], off[:, here])

        return decide

    def _parameters(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        means, log_scales = self.components()
        logits = torch.cat([torch.zeros_like(raw[..., :1]), raw], -1)
        return logits, means[self.dimensions], log_scales[self.dimensions]


class TiedMixture(Transform):
    """Logits of π from the context by one linear layer or by a `network` (n, c) -> (n, V), without context a bias
    alone; components from `codes`, a module with `means` and `log_scales` (V, H), which may be that of the posterior:
    it is not copied."""

    def __init__(
        self,
        codes: nn.Module,
        context_size: int = 0,
        start: Float[Tensor, "v"] | None = None,
        network: nn.Module | None = None,
    ):
        """`start` is where the bias of the logits begins; zeros if it is not given."""
        super().__init__()
        self.codes, self.context_size = codes, context_size
        means, log_scales = self.codebook()
        if means.ndim != 2 or means.shape != log_scales.shape:
            raise ValueError(
                "a codebook has `means` and `log_scales` of one shape (V, H), was given "
                f"{tuple(means.shape)} and {tuple(log_scales.shape)}"
            )
        symbols, self.size = means.shape
        self.bias = nn.Parameter(means.new_zeros(symbols) if start is None else start.clone())
        self.weight, self.network = None, network
        if context_size and network is None:
            self.weight = nn.Parameter(means.new_empty(symbols, context_size))
            nn.init.uniform_(self.weight, -1 / math.sqrt(context_size), 1 / math.sqrt(context_size))

    def logits(self, context: Float[Tensor, "*n c"] | None = None) -> Float[Tensor, "*n v"]:
        """log π up to a constant."""
        given = 0 if context is None else context.shape[-1]
        if given != self.context_size:
            raise ValueError(
                f"this flow was built for a context of size {self.context_size}, was given {given}"
            )
        if context is None:
            return self.bias
        if self.network is not None:
            return self.network(context) + self.bias
        assert self.weight is not None
        return F.linear(context, self.weight, self.bias)

    @replaceable
    def forward(self, eps, context=None):
        return self._walk(eps, context, forward=True)

    def inverse(self, z, context=None):
        return self._walk(z, context, forward=False)

    @replaceable
    def stepper(self, direction: Direction) -> Step:
        return self.forward if direction == "forward" else self.inverse

    def log_prob(self, z, context=None):
        """log Σ_v π_v N(z; μ_v, σ_v), without the map."""
        return (self.logits(context).log_softmax(-1) + log_normals(z, *self.codebook())).logsumexp(-1)

    def draw(self, context: Float[Tensor, "n c"]) -> Float[Tensor, "n h"]:
        """z = μ_v + σ_v ξ with v ~ π, ξ ~ N(0, I): what `forward` makes of a normal eps, without its roots."""
        means, log_scales = self.codebook()
        v = torch.multinomial(self.logits(context).softmax(-1), 1).squeeze(-1)
        return means[v] + log_scales[v].exp() * torch.randn_like(means[v])

    def _walk(self, y: Tensor, context: Tensor | None, forward: bool) -> tuple[Tensor, Tensor]:
        means, log_scales = self.codebook()
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

    def codebook(self) -> tuple[Tensor, Tensor]:
        """Means and log scales, (V, H)."""
        means, log_scales = self.codes.means, self.codes.log_scales
        assert isinstance(means, Tensor)
        assert isinstance(log_scales, Tensor)
        return means, log_scales
