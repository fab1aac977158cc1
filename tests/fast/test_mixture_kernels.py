"""The compiled mixture map is the one of torch."""

import math

import numpy as np
import pytest
import torch

from latflow.flows import Mixture
from tests.flows.test_mixture import draw, hostile

kernels = pytest.importorskip("latflow.fast.kernels.mixture", reason="needs numba")


def compiled(eps, raw):
    K = raw.shape[-1] // 3
    parameters = [part.contiguous().numpy() for part in raw.split(K, -1)]
    work = np.empty((kernels.WORK, K))
    rows = [
        kernels.mixture_forward(eps[i].item(), *(part[i] for part in parameters), work)
        for i in range(len(eps))
    ]
    z, logdet = torch.tensor(rows, dtype=torch.float64).unbind(-1)
    return z, logdet


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("spread", ["usual", "hostile"])
def test_equal_to_rounding(K, spread):
    """Put back into torch's formula, z gives eps to sixteen roundings, or eps lies between what neighbouring z give;
    the log-det is that of the formula at this z."""
    if spread == "usual":
        eps, raw = draw(K, 20_000)
    else:
        eps, raw = 4 * torch.randn(20_000, dtype=torch.float64), hostile(K, 20_000, torch.float64)
    z, logdet = compiled(eps, raw)
    allowed = 16 * torch.finfo(torch.float64).eps * eps.abs().clamp(min=1)
    neighbours = 2 * torch.finfo(torch.float64).eps * z.abs()
    residual, below, above = (Mixture(K).inverse(z + h, raw)[0] - eps for h in (0, -neighbours, neighbours))
    assert ((residual.abs() <= allowed) | ((below <= allowed) & (above >= -allowed))).all()
    assert torch.allclose(logdet, -Mixture(K).inverse(z, raw)[1], rtol=1e-8, atol=1e-8)
    if spread == "usual":
        expected, expected_logdet = Mixture(K).forward(eps, raw)
        assert torch.allclose(logdet, expected_logdet, rtol=0, atol=1e-9)
        assert ((z - expected).abs() * (-logdet).exp() <= 2 * allowed + neighbours * (-logdet).exp()).all()


@pytest.mark.parametrize("t", [0.0, 1e-9, 0.3, 0.46875, 0.5, 3.9, 4.0, 4.1, 30.0, 1e7])
def test_scaled_complementary_error_function(t):
    expected = torch.special.erfcx(torch.tensor(t, dtype=torch.float64)).item() / 2
    assert math.isclose(math.exp(kernels._log_half_erfcx(t)), expected, rel_tol=1e-14)


def test_far_out_and_not_a_number():
    raw = torch.tensor([0.0, -70.0, -1.0, 1.0, math.log(1e-6), math.log(1e6)], dtype=torch.float64)
    eps = torch.tensor([-40.0, 40.0, 0.0, math.nan, math.inf], dtype=torch.float64)
    z, logdet = compiled(eps, raw.expand(5, 6))
    assert z.isfinite().tolist() == logdet.isfinite().tolist() == [True, True, True, False, False]
    back, _ = Mixture(2).inverse(z[:3], raw.expand(3, 6))
    assert torch.allclose(back, eps[:3], rtol=1e-14, atol=1e-9)


density = pytest.importorskip("latflow.fast.kernels.layers", reason="needs numba")


def inverse_and_gradients(z, raw, grad_eps, grad_logdet):
    """eps, log-det and the gradients of both kernels, for numbers that are one dimension each."""
    K, n = raw.shape[-1] // 3, len(z)
    eps, logdet = np.empty((n, 1)), np.zeros(n)
    given = z.numpy()[:, None], raw.numpy()[:, :, None].copy()
    density.mixture_density(*given, 0, K, eps, logdet)
    grad = grad_eps.numpy()[:, None].copy()
    density.mixture_density_gradient(*given, 0, K, grad, grad_logdet.numpy())
    return tuple(torch.from_numpy(part) for part in (eps[:, 0], logdet, grad[:, 0], given[1][:, :, 0]))


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("spread", ["usual", "hostile", "far"])
def test_the_density_and_its_gradients_are_those_of_the_formula(K, spread):
    """Also where z is 40 units out, π is 1e-30 and s is 1e-6 or 1e6, to what float64 has there."""
    z, raw = draw(K, 5_000)
    if spread != "usual":
        raw = hostile(K, 5_000, torch.float64)
    if spread == "far":
        z = 40 * torch.randn(5_000, dtype=torch.float64)
    grad_eps, grad_logdet = torch.randn(2, 5_000, dtype=torch.float64)
    z, raw = z.requires_grad_(), raw.requires_grad_()
    eps, logdet = Mixture(K).inverse(z, raw)
    expected = torch.autograd.grad((eps * grad_eps + logdet * grad_logdet).sum(), [z, raw])
    found = inverse_and_gradients(z.detach(), raw.detach(), grad_eps, grad_logdet)
    # Far out eps and x are large, and what they are multiplied by cancels: roundings are of the terms.
    reach = 1 + z.abs() + raw[:, K : 2 * K].abs().amax(-1)
    terms = 1 + logdet.exp() * (grad_eps.abs() + (eps * grad_logdet).abs()) * reach
    sizes = (eps.abs() + 1, logdet.abs() + 1, terms, terms[:, None])
    for one, other, size in zip(found, (eps, logdet, *expected), sizes, strict=True):
        assert other.isfinite().all()
        assert ((one - other).abs() <= 1e-11 * (size + other.abs())).all()
