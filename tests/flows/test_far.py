"""Far out: the density falls, to zero where it leaves the numbers, and gradients stay finite."""

import math

import pytest
import torch

from latflow.flows.transform import change_of_variables
from tests.flows.cases import hidden_flow

FAR = [30.0, 100.0, 200.0, 500.0, 1e3, 1e4, 1e6]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["af-nlsq", "scf-nlsq", "af-affine"])
def test_density_falls_and_gradients_are_finite(name, dtype):
    """Slopes of e^79 and more, from networks that see z."""
    hidden, scalar = name.split("-")
    flow = hidden_flow(hidden, scalar, size=6, layers=3, context_size=4).to(dtype)
    rays = torch.randn(40, flow.size, dtype=dtype)
    rays = rays / rays.norm(dim=-1, keepdim=True)
    z = (torch.tensor(FAR, dtype=dtype)[:, None, None] * rays).requires_grad_()
    context = torch.randn(40, flow.context_size, dtype=dtype).tanh().expand(len(FAR), -1, -1)
    log_p = flow.log_prob(z, context)
    assert not log_p.isnan().any()
    assert (log_p < flow.log_prob(torch.zeros_like(rays), context[0])).all()
    gradients = torch.autograd.grad(log_p.sum(), [z, *flow.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_rows_that_have_a_gradient_keep_it_beside_rows_that_have_none():
    flow = hidden_flow("af", "nlsq", size=6, layers=3, context_size=4)
    near, far = torch.randn(5, flow.size), 1e8 * torch.randn(5, flow.size)
    context = torch.randn(10, flow.context_size)
    z = torch.cat([near, far]).requires_grad_()
    log_p = flow.log_prob(z, context)
    found = torch.autograd.grad(log_p.sum(), [z, *flow.parameters()])
    near = near.requires_grad_()
    alone = change_of_variables(near, *flow.inverse(near, context[:5]))
    expected = torch.autograd.grad(alone.sum(), [near, *flow.parameters()])
    assert (log_p[5:] < -math.sqrt(torch.finfo(torch.float32).max)).all()
    assert torch.equal(found[0][5:], torch.zeros_like(far))
    assert torch.allclose(found[0][:5], expected[0], rtol=1e-4, atol=1e-4)
    for a, b in zip(found[1:], expected[1:], strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-3)
