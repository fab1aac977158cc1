"""The mixture over a codebook: a triangular map with the mixture's density, and the discrete model in the limit."""

import itertools
import math

import pytest
import torch
from scipy import integrate, stats
from torch import nn
from torch.autograd import gradcheck

from latflow.flows import TiedMixture, Transform
from tests.flows.cases import jacobian, randomise

pytestmark = pytest.mark.usefixtures("double")


class Codes(nn.Module):
    def __init__(self, means, log_scales):
        super().__init__()
        self.means, self.log_scales = nn.Parameter(means), nn.Parameter(log_scales)


def overlapping(V=7, H=3, context_size=4) -> TiedMixture:
    flow = TiedMixture(Codes(torch.randn(V, H), 0.4 * torch.randn(V, H) - 0.5), context_size)
    randomise(flow, 0.8)
    return flow


def separated(H=2, scale=0.05, context_size=0) -> TiedMixture:
    """A code at each of the 2^H corners ±1: twenty σ from the borders of its quadrant."""
    corners = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=H)))
    flow = TiedMixture(Codes(corners, torch.full_like(corners, math.log(scale))), context_size)
    with torch.no_grad():
        flow.bias.normal_(std=1.5)
    return flow


def given(flow: TiedMixture, *shape: int):
    context = torch.randn(*shape, flow.context_size) if flow.context_size else None
    return 1.5 * torch.randn(*shape, flow.size), context


@pytest.mark.parametrize("context_size", [0, 4])
def test_round_trip(context_size):
    flow = overlapping(context_size=context_size)
    y, context = given(flow, 5, 30)
    z, logdet = flow(y, context)
    eps, logdet_back = flow.inverse(z, context)
    assert torch.allclose(eps, y, rtol=0, atol=1e-11)
    assert torch.allclose(logdet, -logdet_back, rtol=0, atol=1e-11)


@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_jacobian_is_triangular_and_its_determinant_the_log_det(direction):
    flow = overlapping()
    y, context = given(flow)
    matrix = jacobian(lambda y: getattr(flow, direction)(y, context)[0], y)
    assert torch.equal(matrix.triu(1), torch.zeros_like(matrix))
    assert (matrix.tril(-1).abs() > 1e-6).sum() == 3  # every dimension sees those before it
    logdet = getattr(flow, direction)(y, context)[1]
    assert torch.allclose(logdet, matrix.det().log(), rtol=0, atol=1e-10)


def test_density_of_the_map_is_the_mixture():
    """`log_prob` is a sum over codes; the change of variables through the map gives the same, and its gradients."""
    flow = overlapping()
    z, context = given(flow, 200)
    direct, by_map = flow.log_prob(z, context), Transform.log_prob(flow, z, context)
    assert torch.allclose(direct, by_map, rtol=0, atol=1e-11)
    gradients = (torch.autograd.grad(result.sum(), list(flow.parameters())) for result in (direct, by_map))
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("direction", ["forward", "inverse", "log_prob"])
def test_gradients(direction):
    flow = overlapping(V=3, H=2, context_size=2)
    y, context = given(flow, 2)

    class Direction(nn.Module):
        def __init__(self):
            super().__init__()
            self.flow = flow

        def forward(self, y, context):
            return getattr(self.flow, direction)(y, context)

    module = Direction()
    names = [name for name, _ in module.named_parameters()]

    def function(y, context, *weights):
        return torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (y, context))

    weights = [weight.detach().clone().requires_grad_() for weight in flow.parameters()]
    assert context is not None
    assert gradcheck(function, (y.requires_grad_(), context.requires_grad_(), *weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_far_out_all_is_finite_and_the_density_falls(dtype):
    flow = separated(H=4, scale=0.3).to(dtype)
    far = torch.tensor([2.0, 40.0, 1e3], dtype=dtype)
    directions = torch.tensor(list(itertools.product([-1.0, 0.0, 1.0], repeat=4)), dtype=dtype)
    directions = directions[directions.any(-1)]
    z = (far[:, None, None] * directions).requires_grad_()
    for log_prob in (flow.log_prob(z), Transform.log_prob(flow, z)):
        assert (log_prob.diff(dim=0) < 0).all()
        gradients = torch.autograd.grad(log_prob.sum(), [z, *flow.parameters()])
        assert all(gradient.isfinite().all() for gradient in gradients)
    eps = torch.tensor([[40.0, -40.0, 0.0, 40.0], [0.0, 0.0, 0.0, 0.0], [-40.0, 8.0, -8.0, 0.5]], dtype=dtype)
    image, logdet = flow(eps.requires_grad_())
    gradients = torch.autograd.grad(image.sum() + logdet.sum(), [eps, *flow.parameters()])
    assert all(tensor.isfinite().all() for tensor in (image, logdet, *gradients))


def test_separated_codes_are_the_discrete_model():
    """log p(z) - log q(z | v) = log π_v for z drawn around code v: the flow's NLL is the discrete one to 1e-10."""
    flow = separated(H=3, context_size=5)
    context, v = torch.randn(400, 5), torch.randint(8, (400,))
    means, scale = flow.codebook()[0][v], flow.codebook()[1][v].exp()
    q = torch.distributions.Normal(means, scale)
    z = q.sample()
    expected = flow.logits(context).log_softmax(-1).gather(-1, v[:, None]).squeeze(-1)
    for log_prob in (flow.log_prob(z, context), Transform.log_prob(flow, z, context)):
        assert torch.allclose(log_prob - q.log_prob(z).sum(-1), expected, rtol=0, atol=1e-10)


def test_the_density_of_a_cell_is_the_probability_of_its_symbol():
    flow = separated()
    axis = torch.linspace(0, 2, 401)
    for v, corner in enumerate(flow.codebook()[0].tolist()):
        grid = torch.cartesian_prod(*(side * axis for side in corner)).view(401, 401, 2)
        density = Transform.log_prob(flow, grid).exp().detach().numpy()
        cell = integrate.simpson(integrate.simpson(density, x=axis.numpy()), x=axis.numpy())
        assert abs(cell - flow.bias.softmax(-1)[v].item()) < 1e-9


def test_samples_fall_to_symbols_by_their_probabilities():
    flow = separated(H=3)
    z = flow.sample((20_000,))
    symbols = ((z > 0).long() * torch.tensor([4, 2, 1])).sum(-1)
    assert ((z.abs() - 1).abs() < 0.5).all()
    counts = symbols.bincount(minlength=8)
    expected = 20_000 * flow.bias.softmax(-1)
    assert stats.chisquare(counts.numpy(), expected.detach().numpy()).pvalue > 1e-3
    off = expected.roll(1)  # a test that could not tell this one proves nothing
    assert stats.chisquare(counts.numpy(), off.detach().numpy()).pvalue < 1e-12


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"one shape \(V, H\).*\(3, 2\) and \(3,\)"):
        TiedMixture(Codes(torch.zeros(3, 2), torch.zeros(3)))
    with pytest.raises(ValueError, match="context of size 4, was given 3"):
        overlapping()(torch.zeros(2, 3), torch.zeros(2, 3))
