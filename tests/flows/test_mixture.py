"""The mixture map: a mixture's density, inverse of each other, true derivatives, and all that far out in the tails."""

import itertools
import math

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from latflow.flows import Mixture, standard_normal_log_prob
from latflow.flows.mixture import _log_ndtri, mixture_forward, mixture_inverse

DTYPES = [torch.float32, torch.float64]
both_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
components = pytest.mark.parametrize("K", [1, 2, 5])


def draw(K, n=2000, spread=1.0, dtype=torch.float64):
    return 1.5 * torch.randn(n, dtype=dtype), spread * torch.randn(n, 3 * K, dtype=dtype)


def hostile(K, n, dtype):
    """Weights down to e^-140, means up to ±40, scales from 1e-6 to 1e6."""
    bounds = torch.tensor([70.0, 40.0, math.log(1e6)], dtype=dtype).repeat_interleave(K)
    return (2 * torch.rand(n, 3 * K, dtype=dtype) - 1) * bounds


def tails(dtype):
    """z up to a thousand units out, weights of e^-140, scales of 1e-6 and 1e6, in every combination of two."""
    z = [0.0, 0.5, 1.0, 40.0, 1000.0]
    logits, means = [-70.0, 0.0, 70.0], [-1.0, 1.0]
    log_scales = [math.log(1e-6), 0.0, math.log(1e6)]
    grid = itertools.product([-1, 1], z, logits, logits, log_scales, log_scales)
    rows = [
        (sign * y, *weights, *means, *scales)
        for sign, y, *rest in grid
        for weights, scales in [(rest[:2], rest[2:])]
    ]
    z, raw = torch.tensor(rows, dtype=dtype).tensor_split([1], -1)
    return z.squeeze(-1), raw


@components
def test_round_trip(K):
    y, raw = draw(K)
    z, logdet = Mixture(K).forward(y, raw)
    eps, logdet_back = Mixture(K).inverse(z, raw)
    assert torch.allclose(eps, y, rtol=0, atol=1e-13)
    assert torch.allclose(logdet_back, -logdet, rtol=1e-12, atol=1e-12)
    z, logdet = Mixture(K).inverse(y, raw)
    back, logdet_back = Mixture(K).forward(z, raw)
    # Between components eps hardly moves with z, and does not say more of z than its own digits.
    assert torch.allclose((back - y) * logdet.exp(), torch.zeros_like(y), atol=1e-13)
    assert torch.allclose(Mixture(K).inverse(back, raw)[0], z, rtol=1e-14, atol=1e-13)


@components
def test_log_derivative_is_that_of_autograd(K):
    """Of the formula as it stands, without logarithms: nothing of the code's own derivative."""
    z, raw = draw(K)
    z.requires_grad_()
    logits, means, log_scales = raw.split(K, -1)
    p = (logits.softmax(-1) * torch.special.ndtr((z[:, None] - means) / log_scales.exp())).sum(-1)
    near = (p > 1e-3) & (p < 1 - 1e-3)
    expected = torch.special.ndtri(p)
    (slope,) = torch.autograd.grad(expected.sum(), z)
    eps, logdet = Mixture(K).inverse(z, raw)
    assert near.sum() > 1000
    assert torch.allclose(eps[near], expected[near], rtol=0, atol=1e-11)
    assert torch.allclose(logdet[near], slope.log()[near], rtol=0, atol=1e-11)


@components
def test_density_is_the_mixture(K):
    z, raw = draw(K)
    logits, means, log_scales = raw.split(K, -1)
    eps, logdet = Mixture(K).inverse(z, raw)
    normals = torch.distributions.Normal(means, log_scales.exp())
    expected = (logits.log_softmax(-1) + normals.log_prob(z[:, None])).logsumexp(-1)
    assert torch.allclose(standard_normal_log_prob(eps[:, None]) + logdet, expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(
        Mixture(K).log_prob(z, raw), expected, rtol=1e-12, atol=1e-12
    )  # the closed way to it


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("direction", ["forward", "inverse"])
@pytest.mark.parametrize("far", [1.0, 20.0], ids=["near", "far"])
def test_gradients(K, direction, far):
    y, raw = draw(K, n=3, spread=0.5)
    inputs = (far * y).requires_grad_(), raw.requires_grad_()
    assert gradcheck(getattr(Mixture(K), direction), inputs)
    assert gradgradcheck(getattr(Mixture(K), direction), inputs)


def test_raw_zeros_are_the_identity():
    y = torch.linspace(-30, 30, 61, dtype=torch.float64)
    for direction in (Mixture(3).forward, Mixture(3).inverse):
        image, logdet = direction(y, torch.zeros(61, 9, dtype=torch.float64))
        assert torch.allclose(image, y, rtol=1e-14, atol=1e-14)
        assert torch.allclose(logdet, torch.zeros_like(y), atol=1e-13)


def test_starts_with_distinct_components_and_about_unit_variance():
    for K in range(1, 9):
        logits, means, log_scales = Mixture(K).start(1)[0].split(K)
        weights = logits.softmax(-1)
        variance = (weights * (log_scales.exp().square() + means.square())).sum()
        assert Mixture(K).start(5).shape == (5, Mixture(K).n_params)
        assert len(means.unique()) == K
        assert 0.7 < variance < 1.4


def test_refuses_a_mixture_of_nothing():
    with pytest.raises(ValueError, match="at least 1 component, not 0"):
        Mixture(0)


@both_dtypes
def test_inverse_of_the_logarithm_of_phi(dtype):
    """Put back, the result gives log p to eight roundings, from ½ to e^-1e14."""
    log_p = -torch.logspace(math.log10(math.log(2)), 14, 400, dtype=torch.float64).to(dtype)
    with mpmath.workdps(40):
        for given, y in zip(log_p.tolist(), _log_ndtri(log_p).tolist(), strict=True):
            back = mpmath.log(mpmath.ncdf(mpmath.mpf(y)))
            assert abs(back / mpmath.mpf(given) - 1) < 8 * torch.finfo(dtype).eps


def exact(z, raw):
    """eps and log deps/dz in sixty digits."""
    K = len(raw) // 3
    logits, means, log_scales = (
        [mpmath.mpf(number) for number in part] for part in (raw[:K], raw[K : 2 * K], raw[2 * K :])
    )
    total = sum(mpmath.exp(logit) for logit in logits)
    weights = [mpmath.exp(logit) / total for logit in logits]
    scales = [mpmath.exp(log_scale) for log_scale in log_scales]
    x = [(mpmath.mpf(z) - m) / s for m, s in zip(means, scales, strict=True)]
    density = sum(w * mpmath.npdf(u) / s for w, u, s in zip(weights, x, scales, strict=True))
    below, above = (
        sum(w * mpmath.ncdf(sign * u) for w, u in zip(weights, x, strict=True)) for sign in (1, -1)
    )
    side, log_p = (1, mpmath.log(below)) if below < above else (-1, mpmath.log(above))
    y = -mpmath.sqrt(-2 * log_p)
    for _ in range(60):
        step = (mpmath.log(mpmath.ncdf(y)) - log_p) * mpmath.ncdf(y) / mpmath.npdf(y)
        y -= step
        if abs(step) <= abs(y) * mpmath.mpf(10) ** -45:
            break
    return side * y, mpmath.log(density / mpmath.npdf(y))


@both_dtypes
def test_tails_to_the_last_digits(dtype):
    """eps and its log-det against sixty digits, to what a few roundings of z and of the parameters account for: 16 for
    eps; 256 for the log-det, for the squares of x = 40 where two components share a tail."""
    z, raw = tails(dtype)
    chosen = torch.randperm(len(z))[:150]
    z, raw = z[chosen].requires_grad_(), raw[chosen].requires_grad_()
    for result, allowed in enumerate([16, 256]):
        found = Mixture(2).inverse(z, raw)[result]
        gradients = torch.autograd.grad(found.sum(), [z, raw])
        reach = (z * gradients[0]).abs() + (raw * gradients[1]).abs().sum(-1) + found.abs() + 1
        for i in range(len(z)):
            with mpmath.workdps(60):
                error = abs(float(found[i].item() - exact(z[i].item(), raw[i].tolist())[result]))
            assert error <= allowed * torch.finfo(dtype).eps * reach[i].item(), (z[i], raw[i])


@both_dtypes
@pytest.mark.parametrize("direction", ["inverse", "forward"])
def test_tails_are_finite(dtype, direction):
    """Values and gradients; forward is given the eps that belong to those z, and eps forty units out."""
    z, raw = tails(dtype)
    y = (
        z
        if direction == "inverse"
        else torch.cat([Mixture(2).inverse(z, raw)[0].clamp(-50, 50), z.clamp(-40, 40)])
    )
    raw = raw if direction == "inverse" else raw.repeat(2, 1)
    y.requires_grad_()
    raw.requires_grad_()
    image, logdet = getattr(Mixture(2), direction)(y, raw)
    assert image.isfinite().all()
    assert logdet.isfinite().all()
    for result in (image, logdet, logdet - 0.5 * image.square()):
        gradients = torch.autograd.grad(result.sum(), [y, raw], retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)


@both_dtypes
def test_density_falls_far_out(dtype):
    _, raw = tails(dtype)
    z = (
        torch.tensor([1e3, 1e4, 1e5, 1e6], dtype=dtype)[:, None]
        * torch.tensor([-1.0, 1.0], dtype=dtype)[:, None, None]
    )
    z, raw = torch.broadcast_tensors(z, raw[:, 0])[0], raw.expand(2, 4, -1, -1)
    eps, logdet = Mixture(2).inverse(z, raw)
    log_p = standard_normal_log_prob(eps[..., None]) + logdet
    assert (log_p.diff(dim=1) <= 0).all()
    z = z.clone().requires_grad_()
    eps, logdet = Mixture(2).inverse(z, raw)
    (gradient,) = torch.autograd.grad((logdet - 0.5 * eps.square()).sum(), z)
    assert (gradient * z <= 0).all()
    assert gradient.isfinite().all()


@both_dtypes
@components
def test_root_is_backward_stable(K, dtype):
    """Put back into the formula, the root gives eps to sixteen roundings, or eps lies between what two neighbouring z
    give: scales of 1e-6 beside means of 40 are less than a float32 can tell apart."""
    raw = hostile(K, 100_000, dtype)
    eps = 4 * torch.randn(len(raw), dtype=dtype)
    with torch.no_grad():
        z, logdet = Mixture(K).forward(eps, raw)
        allowed = 16 * torch.finfo(dtype).eps * eps.abs().clamp(min=1)
        neighbours = 2 * torch.finfo(dtype).eps * z.abs()
        residual, below, above = (
            Mixture(K).inverse(z + h, raw)[0] - eps for h in (0, -neighbours, neighbours)
        )
    assert z.isfinite().all()
    assert logdet.isfinite().all()
    assert ((residual.abs() <= allowed) | ((below <= allowed) & (above >= -allowed))).all()


def test_given_components_need_no_axes_of_the_points():
    """Means and scales of shape (H, K) beside logits (n, H, K): the same numbers and gradients as written out."""
    n, H, K = 7, 3, 2
    y, logits = torch.randn(n, H, dtype=torch.float64), torch.randn(n, H, K, dtype=torch.float64)
    given = [torch.randn(H, K, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    for function in (mixture_inverse, mixture_forward):
        short = function(y, logits, *given)
        long = function(y, logits, *(part.expand(n, H, K) for part in given))
        for a, b in zip(short, long, strict=True):
            assert torch.equal(a, b)
        gradients = (torch.autograd.grad(torch.stack(result).sum(), given) for result in (short, long))
        for a, b in zip(*gradients, strict=True):
            assert a.shape == (H, K)
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)
