"""Far out: the density falls, to zero where it leaves the numbers, and gradients stay finite."""

import pytest
import torch

from latflow import load
from latflow.flows import Autoregressive
from latflow.flows.transform import change_of_variables
from latflow.models.latent import LatentSequenceModel
from tests.flows.cases import hidden_flow

FAR = [30.0, 100.0, 200.0, 500.0, 1e3, 1e4, 1e6]


def shipped() -> Autoregressive:
    model = load("jsb")
    assert isinstance(model, LatentSequenceModel)
    assert isinstance(model.prior.hidden, Autoregressive)
    return model.prior.hidden


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["shipped", "af-nlsq", "scf-nlsq", "af-affine"])
def test_density_falls_and_gradients_are_finite(name, dtype):
    """Slopes of e^79 and more, from networks that see z."""
    if name == "shipped":
        flow = shipped().to(dtype)
    else:
        hidden, scalar = name.split("-")
        flow = hidden_flow(hidden, scalar, size=6, layers=3, context_size=4).to(dtype)
    rays = torch.randn(40, flow.size, dtype=dtype)
    rays = rays / rays.norm(dim=-1, keepdim=True)
    z = (torch.tensor(FAR, dtype=dtype)[:, None, None] * rays).requires_grad_()
    context = torch.randn(40, flow.context_size, dtype=dtype).tanh().expand(len(FAR), -1, -1)
    log_p = flow.log_prob(z, context)
    assert not log_p.isnan().any()
    assert (log_p < flow.log_prob(torch.zeros_like(rays), context[0])).all()
    if name == "shipped":  # random networks may well have a ridge
        assert ((log_p[1:] < log_p[:-1]) | log_p[1:].isneginf()).all()
    gradients = torch.autograd.grad(log_p.sum(), [z, *flow.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_rows_that_have_a_gradient_keep_it_beside_rows_that_have_none():
    flow = shipped()
    near, far = torch.randn(5, flow.size), 1e3 * torch.randn(5, flow.size)
    context = torch.randn(10, flow.context_size)
    z = torch.cat([near, far]).requires_grad_()
    log_p = flow.log_prob(z, context)
    found = torch.autograd.grad(log_p.sum(), [z, *flow.parameters()])
    near = near.requires_grad_()
    alone = change_of_variables(near, *flow.inverse(near, context[:5]))
    expected = torch.autograd.grad(alone.sum(), [near, *flow.parameters()])
    assert log_p[5:].isneginf().all()
    assert torch.equal(found[0][5:], torch.zeros_like(far))
    assert torch.allclose(found[0][:5], expected[0], rtol=1e-4, atol=1e-4)
    for a, b in zip(found[1:], expected[1:], strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-3)
