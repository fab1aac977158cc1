"""The mixture map: eps = Φ⁻¹( Σ_k π_k Φ((z - m_k) / s_k) ), under which a Gaussian eps gives z a mixture of Gaussians.

Everything is in logarithms of the smaller tail. On the left half (P = Σ π Φ <= ½; the right half is its mirror image,
where P is the survival function), with x_k = (z - m_k) / s_k, the hazard h = φ / Φ and M = 1 / h,

    w_k = π_k Φ(x_k) / P                        whose tail it is
    deps/dz = Σ_k w_k h(x_k) / s_k / h(eps)     no squares of x and eps that would have to cancel
    r_k = π_k N(z; m_k, s_k) / Σ_j …            whose density it is

Far out x and eps are large and their squares are larger than the digits of a number: a log-det
log Σ π N(z; m, s) - log N(eps; 0, 1) would be noise there, and its exponential, the slope, infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from latflow.flows.root import root
from latflow.flows.scalar import ScalarTransform
from latflow.shapes import Float

START_SCALE = 0.6


@dataclass(frozen=True)
class Mixture(ScalarTransform):
    """eps = Φ⁻¹( Σ_k π_k Φ((z - m_k) / s_k) ), K Gaussian components. Raw: K logits of π, K means m, K log s.

    The formula is the *inverse* direction: density is closed, sampling a root, bracketed by m_k + s_k eps, the least
    and the greatest of them.
    """

    direct = True
    components: int = 4
    n_params: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.components < 1:
            raise ValueError(f"a mixture needs at least 1 component, not {self.components}")
        object.__setattr__(self, "n_params", 3 * self.components)

    def inverse(self, z, raw):
        return mixture_inverse(z, *raw.split(self.components, -1))

    def forward(self, eps, raw):
        return mixture_forward(eps, *raw.split(self.components, -1))

    def log_prob(self, z, raw):
        return mixture_log_prob(z, *raw.split(self.components, -1))

    def draw(self, raw):
        return mixture_draw(*raw.split(self.components, -1))

    def start(self, size):
        """Equal weights, means spread over ±1, so that components are distinct from the first step on."""
        K = self.components
        means = torch.linspace(-1, 1, K) if K > 1 else torch.zeros(1)
        log_scale = math.log(START_SCALE) if K > 1 else 0.0
        return torch.cat([torch.zeros(K), means, torch.full((K,), log_scale)]).expand(size, -1)


def mixture_inverse(
    z: Float[Tensor, "*n"],
    logits: Float[Tensor, "*#n k"],
    means: Float[Tensor, "*#n k"],
    log_scales: Float[Tensor, "*#n k"],
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """eps and log deps/dz. Parameters that are the same for many points may lack axes or have axes of size 1."""
    return _Inverse.apply(z, logits, means, log_scales)


def mixture_log_prob(
    z: Float[Tensor, "*n"],
    logits: Float[Tensor, "*#n k"],
    means: Float[Tensor, "*#n k"],
    log_scales: Float[Tensor, "*#n k"],
) -> Float[Tensor, "*n"]:
    """log Σ_k π_k N(z; m_k, s_k): the density of z, without the map."""
    x = (z[..., None] - means) * (-log_scales).exp()
    joint = logits.log_softmax(-1) - 0.5 * x.square() - log_scales
    return joint.logsumexp(-1) - 0.5 * math.log(2 * math.pi)


def mixture_draw(
    logits: Float[Tensor, "*n k"], means: Float[Tensor, "*#n k"], log_scales: Float[Tensor, "*#n k"]
) -> Float[Tensor, "*n"]:
    """z = m_k + s_k ξ with k ~ π, ξ ~ N(0, 1): what `mixture_forward` makes of a normal eps, without a root."""
    gumbel = -torch.empty_like(logits).exponential_().log()
    k = (logits + gumbel).argmax(-1, keepdim=True)
    mean, log_scale = (p.expand_as(logits).gather(-1, k).squeeze(-1) for p in (means, log_scales))
    return mean + log_scale.exp() * torch.randn_like(mean)


def mixture_forward(
    eps: Float[Tensor, "*n"],
    logits: Float[Tensor, "*#n k"],
    means: Float[Tensor, "*#n k"],
    log_scales: Float[Tensor, "*#n k"],
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """z and log dz/deps, as `mixture_inverse`."""
    parameters = [p.expand(*eps.shape, -1) for p in (logits, means, log_scales)]
    with torch.no_grad():
        candidates = means + log_scales.exp() * eps[..., None]
        rounding = 8 * torch.finfo(eps.dtype).eps * candidates.abs().amax(-1)
        low, high = candidates.amin(-1) - rounding, candidates.amax(-1) + rounding
        start = _separated(eps, *parameters)
        scale = 4 * eps.abs().clamp(min=1)
        noise = 4 * torch.finfo(eps.dtype).eps * scale

    def f(z, eps, noise, width, *parameters):
        value, logdet = mixture_inverse(z, *parameters)
        # Between components far apart all z have one eps: dz/deps is beyond the numbers, and a step would follow the
        # noise.
        value, slope = value - eps, logdet.exp().clamp(min=math.sqrt(torch.finfo(z.dtype).tiny))
        flat = (value.abs() <= noise) & (slope * width <= noise)
        return torch.where(flat, value - value.detach(), value), slope

    z = root(f, low, high, start, scale, (eps, noise, high - low, *parameters))
    return z, -mixture_inverse(z, logits, means, log_scales)[1]


def _separated(eps: Tensor, logits: Tensor, means: Tensor, log_scales: Tensor) -> Tensor:
    """The root as it would be if the components did not overlap: Φ(eps) falls to one of them, in the order of their
    means, and to a quantile of that one."""
    means, order = means.sort(-1)
    weights = logits.softmax(-1).gather(-1, order)
    upto = weights.cumsum(-1)
    p = torch.special.ndtr(eps)[..., None]
    k = (upto[..., :-1] < p).sum(-1, keepdim=True)
    weight, upto = weights.gather(-1, k), upto.gather(-1, k)
    quantile = torch.special.ndtri((1 - (upto - p) / weight).clamp(1e-4, 1 - 1e-4))
    mean, scale = means.gather(-1, k), log_scales.gather(-1, order).gather(-1, k).exp()
    return (mean + scale * quantile).squeeze(-1)


class _Inverse(torch.autograd.Function):
    """`mixture_inverse` with its derivatives: with E = d loss/deps + eps d loss/dlogdet, and g = d loss/dlogdet,

        c_k = r_k (e^logdet E - g x_k / s_k)
        d/dz = Σ_k c_k,   d/dm_k = -c_k,   d/dlog s_k = -(z - m_k) c_k - g r_k
        d/dlogit_k = ±M (w_k - π_k) E + g (r_k - π_k)

    which are bounded where a chain through Φ, its logarithm and its inverse would be 0 · ∞.
    """

    @staticmethod
    def forward(ctx, z, logits, means, log_scales):
        eps, logdet, side, tail, density = _evaluate(z, logits, means, log_scales)
        ctx.save_for_backward(z, logits, means, log_scales, eps, logdet, side, tail, density)
        return eps, logdet

    @staticmethod
    def backward(ctx, *grads):
        grad_eps, grad_logdet = grads
        z, logits, means, log_scales, eps, logdet, side, tail, density = ctx.saved_tensors
        difference, log_weights = z[..., None] - means, logits.log_softmax(-1)
        x = difference * (-log_scales).exp()
        if torch.is_grad_enabled():  # derivatives of these are wanted too
            tail = (log_weights + torch.special.log_ndtr(side[..., None] * x)).softmax(-1)
            density = (log_weights - log_scales - 0.5 * x.square()).softmax(-1)
        weights = log_weights.exp()
        through_eps, grad_logdet = (grad_eps + eps * grad_logdet)[..., None], grad_logdet[..., None]
        c = density * (logdet.exp()[..., None] * through_eps - grad_logdet * x * (-log_scales).exp())
        mills = (side * math.sqrt(math.pi / 2) * torch.special.erfcx(eps.abs() * math.sqrt(0.5)))[..., None]
        grad_logits = through_eps * mills * (tail - weights) + grad_logdet * (density - weights)
        grad_log_scales = -difference * c - grad_logdet * density
        return (
            c.sum(-1),
            grad_logits.sum_to_size(logits.shape),
            (-c).sum_to_size(means.shape),
            grad_log_scales.sum_to_size(log_scales.shape),
        )


def _evaluate(
    z: Tensor, logits: Tensor, means: Tensor, log_scales: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """eps, log deps/dz, the side (1 left, -1 right), w and r."""
    log_weights = logits.log_softmax(-1)
    x = (z[..., None] - means) * (-log_scales).exp()
    half_square, negative = 0.5 * x.square(), x < 0
    log_mills = _log_mills(x)
    log_small = log_mills - half_square
    small = log_small.exp()
    below = (log_weights.exp() * torch.where(negative, small, 1 - small)).sum(-1)
    side = torch.where(below > 0.5, -1.0, 1.0).to(z)
    inside = negative == (side > 0)[..., None]  # in the tail of this side
    log_tail = torch.where(inside, log_small, torch.log1p(-small))
    log_hazard = torch.where(inside, -log_mills, -half_square - log_tail)
    joint = log_weights + log_tail
    log_p = joint.logsumexp(-1)
    joint = joint - log_p[..., None]
    y = _log_ndtri(log_p)
    slopes = joint + log_hazard - log_scales
    log_slope = slopes.logsumexp(-1)
    return (
        side * y,
        log_slope + _log_mills(y),
        side,
        joint.exp(),
        (slopes - log_slope[..., None]).exp(),
    )


def _log_mills(x: Tensor) -> Tensor:
    """log(Φ(-|x|) / φ(x)) - log √(2π): what is left of the logarithm of the smaller tail besides -x²/2."""
    return (0.5 * torch.special.erfcx(x.abs() * math.sqrt(0.5))).log()


def _log_ndtri(log_p: Tensor) -> Tensor:
    """The y with log Φ(y) = log p, for p <= ½ however small, to machine precision.

    From a rational function of √(-2 log p) (Abramowitz and Stegun 26.2.23, off by 4.5e-4 at most) two steps of
    Halley's method on log Φ(y) - log p, whose first two derivatives are h and -h (y + h). For y + h, which cancels
    far out, the step has a fraction that is near enough.
    """
    t = (-2 * log_p).clamp(min=0).sqrt()
    t = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    for _ in range(2):
        erfcx = torch.special.erfcx(t * math.sqrt(0.5))
        newton = math.sqrt(math.pi / 2) * erfcx * ((0.5 * erfcx).log() - 0.5 * t.square() - log_p)
        t = t + newton / (1 + 0.5 * newton / (t + 2 / (t + 1.596)))
    return -t
