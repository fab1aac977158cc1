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
