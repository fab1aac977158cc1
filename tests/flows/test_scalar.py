"""Scalar maps: inverse of each other, true derivatives, true gradients, and NLSq over the whole range of numbers."""

import math

import pytest
import torch
from scipy import integrate
from torch.autograd import gradcheck, gradgradcheck

from latflow.flows import Affine, NLSq
from tests.flows.cases import SCALARS

pytestmark = pytest.mark.usefixtures("double")
scalars = pytest.mark.parametrize("scalar", SCALARS.values(), ids=SCALARS)


def draw(scalar, n=2000, spread=1.5):
    return spread * torch.randn(n), spread * torch.randn(n, scalar.n_params)


@scalars
def test_round_trip(scalar):
    y, raw = draw(scalar)
    for first, second in [(scalar.forward, scalar.inverse), (scalar.inverse, scalar.forward)]:
        image, logdet = first(y, raw)
        back, logdet_back = second(image, raw)
        assert torch.allclose(back, y, rtol=1e-9, atol=1e-9)
        assert torch.allclose(logdet_back, -logdet, rtol=1e-9, atol=1e-9)


@scalars
def test_log_derivative_is_that_of_autograd(scalar):
    y, raw = draw(scalar)
    for direction in (scalar.forward, scalar.inverse):
        point = y.clone().requires_grad_()
        image, logdet = direction(point, raw)
        (slope,) = torch.autograd.grad(image.sum(), point)
        assert (slope > 0).all()
        assert torch.allclose(logdet, slope.log(), rtol=1e-8, atol=1e-8)


@scalars
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_gradients(scalar, direction):
    y, raw = draw(scalar, n=6, spread=1.0)
    assert gradcheck(getattr(scalar, direction), (y.requires_grad_(), raw.requires_grad_()))


@scalars
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_second_derivatives(scalar, direction):
    y, raw = draw(scalar, n=4, spread=1.0)
    assert gradgradcheck(getattr(scalar, direction), (y.requires_grad_(), raw.requires_grad_()))


@scalars
def test_raw_zeros_are_the_identity(scalar):
    y = torch.linspace(-3, 3, 7)
    image, logdet = scalar.forward(y, torch.zeros(7, scalar.n_params))
    assert torch.allclose(image, y)
    assert torch.allclose(logdet, torch.zeros(7))


def test_nlsq_without_perturbation_is_affine():
    y, raw = draw(NLSq())
    raw[:, 2] = 0
    eps, logdet = NLSq().inverse(y, raw)
    # NLSq's formula runs z -> eps, the affine map's eps -> z: the same map the other way round.
    eps_affine, logdet_affine = Affine().forward(y, raw[:, :2])
    assert torch.allclose(eps, eps_affine)
    assert torch.allclose(logdet, logdet_affine)


@pytest.mark.parametrize("sign", [-1, 1])
def test_nlsq_slope_is_smallest_at_the_corrected_critical_point(sign):
    """z = (-g ± √(1/3)) / d, where the slope is b (1 - α); the paper's (g ± √(1/3)) / d is elsewhere."""
    a, log_b, log_d, g, alpha = 0.3, 0.2, -0.4, 0.7, 0.95
    raw = torch.tensor([a, log_b, sign * 20.0, log_d, g])
    scalar = NLSq(alpha)
    z = torch.linspace(-6, 6, 200_001)
    slopes = scalar.inverse(z, raw.expand(len(z), 5))[1].exp()
    critical = (-g + sign * math.sqrt(1 / 3)) / math.exp(log_d)
    assert abs(float(z[slopes.argmin()]) - critical) < 1e-4
    at_critical = scalar.inverse(torch.tensor(critical), raw)[1].exp()
    assert torch.allclose(at_critical, torch.tensor(math.exp(log_b) * (1 - alpha)))


def test_one_nlsq_makes_a_gaussian_bimodal():
    raw = torch.tensor([0.0, 0.0, 20.0, 0.5, 0.0])
    z = torch.linspace(-4, 4, 4001)
    eps, logdet = NLSq().inverse(z, raw.expand(len(z), 5))
    density = (logdet - 0.5 * eps.square()).exp() / math.sqrt(2 * math.pi)
    assert abs(integrate.simpson(density, x=z) - 1) < 1e-3
    rises = (density.diff() > 0).int()
    modes = int((rises.diff() == -1).sum())
    assert modes == 2


def test_nlsq_refuses_an_alpha_that_would_not_be_invertible():
    with pytest.raises(ValueError, match=r"alpha must lie strictly between 0 and 1.*1.5"):
        NLSq(alpha=1.5)


def hostile(n: int, dtype: torch.dtype, alpha: float = 0.95) -> tuple[torch.Tensor, torch.Tensor]:
    """Raw parameters up to ±20 and inputs up to ±1e6 of every magnitude, a third of them at the flattest point."""
    raw = (torch.rand(n, 5, dtype=dtype) * 2 - 1) * 20
    y = torch.randn(n, dtype=dtype).sign() * 10 ** (torch.rand(n, dtype=dtype) * 14 - 8)
    flat = slice(0, n // 3)
    u = raw[flat, 2].sign() * math.sqrt(1 / 3) * (1 + 0.1 * torch.randn(n // 3, dtype=dtype))
    z = (u - raw[flat, 4]) * (-raw[flat, 3]).exp()
    y[flat] = NLSq(alpha).inverse(z, raw[flat])[0].clamp(-1e6, 1e6)
    return y, raw


def ulps_off(scalar: NLSq, z: torch.Tensor, y: torch.Tensor, raw: torch.Tensor) -> float:
    """How far z put back into the formula is from y, in units in the last place of the largest term."""
    back, _ = scalar.inverse(z, raw)
    a, log_b, c, log_d, g = raw.unbind(-1)
    b, d = log_b.exp(), log_d.exp()
    bump = scalar.kappa_bound * (b / d) * c.tanh() / (1 + (d * z + g).square())
    largest = torch.stack([a.abs(), (b * z).abs(), bump.abs()]).amax(0)
    ulp = torch.nextafter(largest, torch.full_like(largest, math.inf)) - largest
    return float(((back - y).abs() / ulp).max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nlsq_root_is_backward_stable_and_finite_everywhere(dtype):
    """Put back into the formula, the root gives the input to 16 units in the last place of the largest term."""
    y, raw = hostile(1_200_000, dtype)
    y.requires_grad_()
    raw.requires_grad_()
    z, logdet = NLSq().forward(y, raw)
    gradients = torch.autograd.grad(z.sum() + logdet.sum(), [y, raw])
    assert all(tensor.isfinite().all() for tensor in (z, logdet, *gradients))

    with torch.no_grad():
        assert ulps_off(NLSq(), z, y, raw) <= 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nlsq_formula_is_finite_everywhere(dtype):
    z, raw = hostile(1_200_000, dtype)
    z.requires_grad_()
    raw.requires_grad_()
    eps, logdet = NLSq().inverse(z, raw)
    gradients = torch.autograd.grad(eps.sum() + logdet.sum(), [z, raw])
    assert all(tensor.isfinite().all() for tensor in (eps, logdet, *gradients))


def test_nlsq_root_gradient_survives_the_flattest_slope():
    """At slope b (1 - α) the derivative of the root is 1 / (b (1 - α)), which the solver's own branches would spoil."""
    raw = torch.tensor([0.0, 0.0, 20.0, 0.0, 0.0])
    eps, _ = NLSq().inverse(torch.tensor(math.sqrt(1 / 3)), raw)
    eps.requires_grad_()
    z, _ = NLSq().forward(eps, raw)
    (gradient,) = torch.autograd.grad(z, eps)
    assert torch.allclose(gradient, torch.tensor(20.0), rtol=1e-6)


def test_the_scale_of_the_affine_map_is_in_its_exponent():
    eps, raw = torch.tensor([2.0, -1.0]), torch.tensor([[0.5, 2.0], [1.0, -4.0]])
    z, logdet = Affine(scale=0.25).forward(eps, raw)
    expected = torch.tensor([0.5 + 2 * math.exp(0.5), 1 - math.exp(-1.0)])
    torch.testing.assert_close(z, expected)
    torch.testing.assert_close(logdet, torch.tensor([0.5, -1.0]))
    torch.testing.assert_close(Affine(scale=0.25).inverse(z, raw)[0], eps)
