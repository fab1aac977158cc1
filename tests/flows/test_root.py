"""The root finder: exact where Newton would run away, with the implicit function's gradient."""

import torch
from torch.autograd import gradcheck

from latflow.flows.root import root


def test_stays_in_the_bracket_where_newton_would_leave_it():
    """arctan far from its root throws Newton's step out; bisection brings it home."""
    target = torch.linspace(-1.2, 1.2, 25, dtype=torch.float64)
    low, high = torch.full_like(target, -50), torch.full_like(target, 50)
    u = root(
        lambda u: (u.atan() - target, 1 / (1 + u.square())),
        low,
        high,
        start=torch.full_like(target, 40),
        steps=30,
    )
    assert torch.allclose(u, target.tan(), rtol=1e-12)


def test_gradient_is_that_of_the_implicit_function():
    def cube_root(y, a):
        low, high = torch.zeros_like(y), torch.full_like(y, 10.0)
        return root(lambda u: (a * u**3 - y, 3 * a * u**2), low, high, start=torch.ones_like(y), steps=40)

    y = torch.tensor([0.5, 2.0, 30.0], dtype=torch.float64, requires_grad=True)
    a = torch.tensor([1.0, 0.3, 2.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(cube_root, (y, a))
