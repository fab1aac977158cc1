"""Compiled generation from a codebook: the functions it is made of, roots to rounding however hostile the mixture, and
the draws of the definitions from the same seed."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from latflow import fast
from latflow.fast.tied import ACCURACY, TiedStep
from latflow.flows import Autoregressive, TiedMixture, TiedScalar
from tests.fast.cases import codebook_model
from tests.models.cases import music_spec, text_spec

normal = pytest.importorskip("latflow.fast.kernels.normal", reason="needs numba")
ROUNDING = torch.finfo(torch.float64).eps
pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("t", [0.0, 1e-9, 0.5, 1.0, 3.9, 4.0, 8.0, 30.0, 1e7])
def test_scaled_tail(t):
    expected = 0.5 * torch.special.erfcx(torch.tensor(t / math.sqrt(2))).item()
    assert math.isclose(normal.scaled_tail(t), expected, rel_tol=8 * ROUNDING)


@pytest.mark.parametrize("x", [1e-300, 1e-5, 0.5, math.sqrt(0.5), 1.0, 1 + 1e-12, math.sqrt(2), 3.0, 1e300])
def test_logarithm(x):
    assert abs(normal.log(x) - math.log(x)) <= 4 * ROUNDING * max(abs(math.log(x)), 1)


def test_probit_is_near_enough_for_a_start():
    p = np.linspace(1e-6, 1 - 1e-6, 1001)
    expected = torch.special.ndtri(torch.from_numpy(p)).numpy()
    assert np.abs([normal.probit(q) for q in p] - expected).max() < 5e-4


def solved(flow, eps: Tensor, z: Tensor, context: Tensor | None = None) -> Tensor:
    """Whether z_d, put back into the definition, gives eps_d to sixteen roundings or lies where eps_d passes.

    Logarithms of weights that are carried from dimension to dimension have roundings of their own size: of those that
    count, that of the density so far, and 37 or less below the largest.
    """
    terms = eps.abs().clamp(min=1)
    if isinstance(flow, TiedMixture):
        before = 37 + 0.5 * eps.square().cumsum(-1)[..., :-1]
        terms = torch.cat([terms[..., :1], terms[..., 1:] + before], -1)
    allowed = 16 * ROUNDING * terms
    near = 2 * ROUNDING * z.abs()
    residual = flow.inverse(z, context)[0] - eps
    below, above = torch.empty_like(z), torch.empty_like(z)
    for d in range(z.shape[-1]):
        for moved, sign in ((below, -1), (above, 1)):
            beside = z.clone()
            beside[..., d] += sign * near[..., d]
            moved[..., d] = flow.inverse(beside, context)[0][..., d] - eps[..., d]
    return (residual.abs() <= allowed) | ((below <= allowed) & (above >= -allowed))


def codebook(means: Tensor, log_scales: Tensor, logits: Tensor) -> TiedMixture:
    codes = nn.Module()
    codes.means, codes.log_scales = nn.Parameter(means), nn.Parameter(log_scales)
    return TiedMixture(codes, start=logits)


SPREADS = {
    "as it starts": lambda V, H: (
        torch.randn(V, H).sign(),
        torch.full((V, H), math.log(0.3)),
        torch.randn(V),
    ),
    "as learned": lambda V, H: (torch.randn(V, H), 0.4 * torch.randn(V, H) - 1.2, 3 * torch.randn(V)),
    "hostile": lambda V, H: (3 * torch.randn(V, H), 4 * torch.randn(V, H), 60 * torch.randn(V)),
    "one": lambda V, H: (torch.randn(1, H), torch.randn(1, H), torch.zeros(1)),
}


@torch.no_grad()
@pytest.mark.parametrize("spread", SPREADS)
def test_roots_of_a_codebook(spread):
    for _ in range(5):
        flow = codebook(*SPREADS[spread](40, 4))
        eps = torch.cat([torch.randn(200, 4), 5 * torch.randn(40, 4)])
        assert TiedMixture.forward.chosen(flow, eps).__name__ == "tied_forward"
        z, logdet = flow(eps)
        assert solved(flow, eps, z).all()
        with fast.off():
            back = flow.inverse(z)[1]
        torch.testing.assert_close(logdet, -back, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_what_is_left_out_does_not_count():
    """With nothing left out the roots are those of the same eps to rounding."""
    flow = codebook(torch.randn(40, 4), 0.3 * torch.randn(40, 4) - 1, 12 * torch.randn(40))
    eps = 1.5 * torch.randn(500, 4)
    kernels = pytest.importorskip("latflow.fast.kernels.tied")
    logits = flow.logits().expand(500, -1).contiguous().numpy()
    step, (_, tolerance) = TiedStep(flow), ACCURACY[torch.float64]
    everything, _ = kernels.tied_forward(eps.numpy(), logits, *step.codes, -500.0, tolerance)
    kept, _ = step(eps)
    difference = (flow.inverse(torch.from_numpy(everything))[0] - flow.inverse(kept)[0]).abs()
    assert difference.max() < 32 * ROUNDING * eps.abs().max()


@torch.no_grad()
def test_not_a_number():
    flow = codebook(*SPREADS["as learned"](9, 2))
    z, logdet = flow(torch.tensor([[0.1, 0.2], [math.nan, 0.1], [math.inf, 0.0], [9.0, -30.0]]))
    assert z.isfinite().all(-1).tolist() == logdet.isfinite().tolist() == [True, False, False, True]


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 70])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("spread", ["as it starts", "as learned", "hostile"])
def test_roots_of_given_components(rows, K, spread):
    for _ in range(70 // rows):
        components: Any = tuple(part.t() for part in SPREADS[spread](K, 6)[:2])
        flow = Autoregressive(6, 1, TiedScalar(lambda given=components: given), 2, units=12, skip=True)
        assert flow.skip_weight is not None
        flow.skip_weight.normal_(std=20 if spread == "hostile" else 1)
        eps, context = torch.randn(rows, 6), torch.randn(rows, 2)
        eps[0, :2] = torch.tensor([9.0, -12.0])
        z, logdet = flow(eps, context)
        assert solved(flow, eps, z, context).all()
        torch.testing.assert_close(logdet, -flow.inverse(z, context)[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("row", ["af-af", "af-af-mixture", "af-none-mixture"])
@pytest.mark.parametrize("spec", [text_spec("abcdefgh", 12), music_spec(12)], ids=["text", "music"])
def test_the_same_seed_draws_the_same_sequences(row, spec):
    if spec.emission == "bernoulli" and row == "af-af-mixture":
        pytest.skip("a row of text")
    model, lengths = codebook_model(row, spec, torch.float64), torch.tensor([12, 7, 7, 1])
    found = []
    for way in (fast.off, torch.no_grad):
        with way():
            found.append(model.sample(lengths, generator=torch.Generator().manual_seed(5)))
    assert torch.equal(*found)


def test_what_is_kept_on_disk_belongs_to_all_kernels():
    jit = pytest.importorskip("latflow.fast.kernels.jit")
    stamp = normal.scaled_tail._cache._cache_file._source_stamp
    assert stamp == jit.STAMP
    assert {"normal.py", "generation.py", "quantile.py", "tied.py", "masked.py"} <= {
        name for name, *_ in stamp
    }
