"""The root finder: exact from any start, where Newton would run away too, with the implicit function's gradient."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from latflow.flows import NLSq, scalar
from latflow.flows.root import root
from tests.flows.test_scalar import hostile, ulps_off

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def arctan(u, target):
    return u.atan() - target, 1 / (1 + u.square())


def cube(u, target):
    return u**3 - target, 3 * u.square()


def exponential(u, target):
    return u.exp() - target, u.exp()


def kink(u, target):
    """Slope 1e-6 below zero, 1e6 above: no step from one side tells anything of the other."""
    slope = torch.where(u < 0, torch.full_like(u, 1e-6), torch.full_like(u, 1e6))
    return slope * u - target, slope


HARD = {
    "arctan": (arctan, 50, lambda n: torch.linspace(-1.2, 1.2, n)),
    "cube": (cube, 50, lambda n: torch.linspace(-1, 1, n) ** 3),
    "exponential": (exponential, 50, lambda n: torch.logspace(-12, 20, n)),
    "kink": (kink, 2e6, lambda n: torch.linspace(-1, 1, n)),
}


@both_dtypes
@pytest.mark.parametrize("start", [-1.0, -0.7, 0.0, 0.4, 1.0])
@pytest.mark.parametrize("name", HARD)
def test_exact_from_any_start(name, start, dtype):
    """Put back, the root gives the target to four roundings of the target, or of u."""
    f, bound, targets = HARD[name]
    target = targets(100).to(dtype)
    high = torch.full_like(target, bound)
    u = root(f, -high, high, start * high, target.abs(), (target,))
    value, slope = f(u, target)
    assert (value.abs() <= 4 * torch.finfo(dtype).eps * (target.abs() + slope * u.abs())).all()


@both_dtypes
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0], ids=["low", "middle", "high"])
def test_nlsq_does_not_need_its_good_start(where, dtype, monkeypatch):
    """What the crude start cannot reach in the first steps is reached later: as exact as from Cardano's formula."""
    found = []

    def crude(f, low, high, start, *rest):
        found.append(root(f, low, high, low + where * (high - low), *rest))
        return found[0]

    monkeypatch.setattr(scalar, "root", crude)
    y, raw = hostile(100_000, dtype, alpha=0.999)
    z, _ = NLSq(0.999).forward(y, raw)
    assert found
    assert ulps_off(NLSq(0.999), z, y, raw) <= 16


def test_a_good_start_costs_four_evaluations(monkeypatch):
    calls = []

    def counted(f, *rest):
        return root(lambda *given: calls.append(len(given[0])) or f(*given), *rest)

    monkeypatch.setattr(scalar, "root", counted)
    with torch.no_grad():
        NLSq().forward(*hostile(100_000, torch.float64))
    assert calls == [100_000] * 4


def test_an_element_does_not_depend_on_the_others():
    target = torch.linspace(-1.2, 1.2, 25, dtype=torch.float64)
    high, start = torch.full_like(target, 50.0), torch.linspace(-40, 40, 25, dtype=torch.float64)
    together = root(arctan, -high, high, start, target.abs(), (target,))
    alone = [
        root(
            arctan,
            -high[i : i + 1],
            high[:1],
            start[i : i + 1],
            target[i : i + 1].abs(),
            (target[i : i + 1],),
        )
        for i in range(25)
    ]
    assert torch.equal(together, torch.cat(alone))


@both_dtypes
@pytest.mark.parametrize("offset", [-1e-3, 3.0])
def test_a_root_outside_the_bracket_is_an_error(offset, dtype):
    """f does not change its sign in the bracket of the last two; a finder that closed in on its end would pass."""
    target = torch.tensor([0.5, 1.5, 2.5, 4.5 + offset, 4.5 + offset], dtype=dtype)
    low = torch.floor(target).clamp(max=4) + (offset < 0) * (target > 4)
    with pytest.raises(ArithmeticError, match="2 of 5 roots not found"):
        root(lambda u, t: (u - t, torch.full_like(u, 0.1)), low, low + 0.6, low, target.abs(), (target,))


def test_nan_gives_nan_and_leaves_the_others_alone():
    target = torch.tensor([0.3, math.nan, -1.1])
    high = torch.full_like(target, 50.0)
    u = root(arctan, -high, high, 0.9 * high, target.abs(), (target,))
    assert u.isnan().tolist() == [False, True, False]
    assert torch.allclose(u[[0, 2]].atan(), target[[0, 2]])


def test_gradients_are_those_of_the_implicit_function():
    def cube_root(y, a):
        low, high = torch.zeros_like(y), torch.full_like(y, 10.0)
        start = torch.full_like(y, 9.0)
        return root(lambda u, y, a: (a * u**3 - y, 3 * a * u**2), low, high, start, y.detach(), (y, a))

    y = torch.tensor([0.5, 2.0, 30.0], dtype=torch.float64, requires_grad=True)
    a = torch.tensor([1.0, 0.3, 2.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(cube_root, (y, a))
    assert gradgradcheck(cube_root, (y, a))
