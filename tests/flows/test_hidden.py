"""Hidden flows: inverse of each other, true Jacobians with the zeros the paper says, true gradients, true density."""

import math

import numpy as np
import pytest
import torch
import zuko
from scipy import stats
from torch.autograd import gradcheck
from torch.distributions import Transform, constraints

from latflow.flows import Affine, Autoregressive, Compose, Elementwise, NLSq, SplitCoupling
from latflow.flows.hidden import Share
from tests.flows.cases import HIDDEN_FLOWS, SCALARS, hidden_flow, jacobian, randomise

pytestmark = pytest.mark.usefixtures("double")
flows = pytest.mark.parametrize("case", HIDDEN_FLOWS.values(), ids=HIDDEN_FLOWS)


def make(case, n=4):
    _, _, size, _, context_size = case
    context = torch.randn(n, context_size) if context_size else None
    return hidden_flow(*case), torch.randn(n, size), context


@flows
def test_round_trip(case):
    flow, y, context = make(case, n=200)
    for first, second in [(flow.forward, flow.inverse), (flow.inverse, flow.forward)]:
        image, logdet = first(y, context)
        back, logdet_back = second(image, context)
        assert torch.allclose(back, y, rtol=1e-9, atol=1e-9)
        assert torch.allclose(logdet_back, -logdet, rtol=1e-9, atol=1e-9)


@flows
def test_log_det_is_that_of_the_jacobian(case):
    flow, y, context = make(case)
    for direction in (flow.forward, flow.inverse):
        _, logdets = direction(y, context)
        for i in range(len(y)):
            row = None if context is None else context[i]
            matrix = jacobian(lambda point, row=row: direction(point, row)[0], y[i])  # noqa: B023
            assert torch.allclose(logdets[i], torch.linalg.slogdet(matrix)[1], rtol=1e-8, atol=1e-8)


@flows
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_gradients(case, direction):
    """Of the point, the context and every weight: a half that was detached on its way through would show here."""
    flow, y, context = make(case, n=2)
    y.requires_grad_()
    if context is not None:
        context.requires_grad_()
        assert gradcheck(getattr(flow, direction), (y, context))
    else:
        assert gradcheck(getattr(flow, direction), y)
    names = list(dict(flow.named_parameters()))

    def f(*weights):
        named = {f"flow.{name}": weight for name, weight in zip(names, weights, strict=True)}
        return torch.func.functional_call(_Call(flow, direction), named, (y, context))

    weights = [weight.detach().clone().requires_grad_() for weight in flow.parameters()]
    assert gradcheck(f, tuple(weights), fast_mode=True)  # random projections, for there are hundreds of them


class _Call(torch.nn.Module):
    def __init__(self, flow, direction):
        super().__init__()
        self.flow, self.direction = flow, direction

    def forward(self, point, context):
        return getattr(self.flow, self.direction)(point, context)


def any_jacobian(direction, size: int) -> torch.Tensor:
    """The largest |entry| of the Jacobian over some points: zero only where it is zero for all of them."""
    points = torch.randn(10, size)
    return torch.stack([jacobian(lambda point: direction(point)[0], y).abs() for y in points]).amax(0)


@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_jacobian_of_one_layer_is_zero_where_the_paper_says(scalar, direction):
    size, kept = 5, 2
    matrices = {}
    for name in ("af", "scf", "none"):
        flow = hidden_flow(name, scalar, size, 1, 0)
        matrices[name] = any_jacobian(getattr(flow, direction), size)
    above = torch.triu(torch.ones(size, size), 1).bool()
    assert (matrices["af"][above] == 0).all()
    assert (matrices["af"][above.T] != 0).all()
    # Coupling: the first half passes through, the others see it and themselves.
    assert (matrices["scf"][:kept] == torch.eye(size)[:kept]).all()
    assert (matrices["scf"][kept:, :kept] != 0).all()
    rest = matrices["scf"][kept:, kept:]
    assert (rest[~torch.eye(size - kept).bool()] == 0).all()
    assert (matrices["none"][~torch.eye(size).bool()] == 0).all()


def test_order_is_reversed_between_layers():
    """Two layers of AF are dense; each alone is triangular, the second the other way round."""
    flow = hidden_flow("af", "nlsq", 5, 2, 0)
    below = torch.tril(torch.ones(5, 5), -1).bool()
    weights = flow.weights()
    second = any_jacobian(lambda point: flow.layer_inverse(1, point, Share(), weights[1]), 5)
    assert (second[below] == 0).all()
    assert (second[below.T] != 0).all()
    assert (any_jacobian(flow.inverse, 5) != 0).all()


def test_coupling_moves_the_other_half_in_every_second_layer():
    size, kept = 5, 2
    flow = hidden_flow("scf", "nlsq", size, 2, 0)
    weights = flow.weights()
    second = any_jacobian(lambda point: flow.layer_inverse(1, point, Share(), weights[1]), size)
    moved = size - kept  # the first of them, which see the last
    assert (second[moved:] == torch.eye(size)[moved:]).all()
    assert (second.diagonal()[:moved] != 1).all()
    assert (second[:moved, moved:] != 0).all()
    assert (any_jacobian(flow.inverse, size).diagonal() != 1).all()


@pytest.mark.parametrize("kind", [Autoregressive, SplitCoupling, Elementwise])
def test_skip_adds_a_product_with_the_context_to_the_raw_parameters(kind):
    """With networks that say nothing a layer is a, b = exp(b') of its own rows of the matrix times the context."""
    flow = kind(3, layers=1, scalar=Affine(), context_size=2, units=6, skip=True)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.zero_()
        flow.skip_weight.normal_()
    eps, context = torch.randn(7, 3), torch.randn(7, 2)
    kept = 1 if kind is SplitCoupling else 0
    a, log_b = (flow.skip_weight @ context.T).T.unflatten(-1, (2, 3 - kept)).unbind(-2)
    expected = torch.cat([eps[:, :kept], a + log_b.exp() * eps[:, kept:]], -1)
    with torch.no_grad():
        z, logdet = flow.forward(eps, context)
        back, _ = flow.inverse(z, context)
    torch.testing.assert_close(z, expected)
    torch.testing.assert_close(logdet, log_b.sum(-1))
    torch.testing.assert_close(back, eps)


@pytest.mark.parametrize("scalar", SCALARS)
def test_same_numbers_as_zuko(scalar):
    """zuko's masked autoregressive transform with our network and scalar map inside, density and sampling."""
    ours = hidden_flow("af", scalar, 6, 1, 0)
    network = ours.network(0)

    class Scalar(Transform):
        domain = codomain = constraints.real
        bijective = True

        def __init__(self, raw):
            super().__init__()
            self.raw = raw

        def _call(self, x):
            return ours.scalar.inverse(x, self.raw)[0]

        def _inverse(self, y):
            return ours.scalar.forward(y, self.raw)[0]

        def log_abs_det_jacobian(self, x, y):
            return ours.scalar.inverse(x, self.raw)[1]

    theirs = zuko.transforms.AutoregressiveTransform(
        lambda x: zuko.transforms.DependentTransform(Scalar(network(x)), 1), 6
    )
    z = torch.randn(50, 6)
    eps, logdet = ours.inverse(z)
    eps_theirs, z_theirs = theirs(z), theirs.inv(eps)
    assert eps_theirs is not None
    assert z_theirs is not None
    assert torch.allclose(eps, eps_theirs)
    assert torch.allclose(logdet, theirs.log_abs_det_jacobian(z, eps_theirs))
    assert torch.allclose(ours.forward(eps)[0], z_theirs, atol=1e-8)


@pytest.mark.parametrize("hidden", ["af", "scf", "none"])
def test_samples_pushed_back_are_standard_normal(hidden):
    flow = hidden_flow(hidden, "nlsq", 3, 3, 4)
    context = torch.randn(4).expand(4000, 4)
    eps, _ = flow.inverse(flow.sample(context=context), context)
    for d in range(3):
        assert stats.kstest(eps[:, d].detach().numpy(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("hidden", ["af", "scf", "none"])
def test_density_integrates_to_one_and_is_that_of_the_samples(hidden):
    """On a grid over the plane: log_prob is a density, and its marginal is the distribution that sample draws from."""
    flow = hidden_flow(hidden, "nlsq", 2, 2, 0)
    with torch.no_grad():
        samples = flow.sample((4000,))
        low, high = samples.amin(0) - 6, samples.amax(0) + 6
        axes = [torch.linspace(float(low[d]), float(high[d]), 1201) for d in range(2)]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
        density = flow.log_prob(grid).exp()
    first = torch.trapezoid(density, axes[1], dim=1)
    cumulative = torch.cumulative_trapezoid(first, axes[0])
    assert abs(float(cumulative[-1]) - 1) < 1e-3

    def cdf(x):
        return np.interp(x, axes[0][1:].numpy(), cumulative.numpy())

    assert stats.kstest(samples[:, 0].numpy(), cdf).pvalue > 1e-3


def test_starts_near_the_identity():
    for kind in (Autoregressive, SplitCoupling, Elementwise):
        torch.manual_seed(0)
        y = torch.randn(100, 6)
        z, logdet = kind(6, layers=5)(y)
        assert (z - y).abs().max() < 0.02
        assert logdet.abs().max() < 0.02


def test_every_dimension_of_an_autoregressive_flow_sees_the_context():
    flow = hidden_flow("af", "nlsq", 5, 1, 3)
    matrix = torch.autograd.functional.jacobian(lambda c: flow.inverse(torch.randn(5), c)[0], torch.randn(3))
    assert (matrix != 0).any(-1).all()  # type: ignore[union-attr]


def test_compose_is_composition():
    first, second = hidden_flow("af", "nlsq", 3, 1, 0), hidden_flow("scf", "affine", 3, 2, 0)
    both = Compose([first, second])
    eps = torch.randn(10, 3)
    z, logdet = both(eps)
    middle, logdet_first = first(eps)
    expected, logdet_second = second(middle)
    assert torch.allclose(z, expected)
    assert torch.allclose(logdet, logdet_first + logdet_second)
    back, logdet_back = both.inverse(z)
    assert torch.allclose(back, eps)
    assert torch.allclose(logdet_back, -logdet)
    assert torch.allclose(
        both.log_prob(z), -0.5 * (eps.square().sum(-1) + 3 * math.log(2 * math.pi)) - logdet
    )


def test_alone_as_an_ordinary_flow_it_learns_a_mixture():
    """Unconditional, no sequence: NLSq fits two modes on a line much better than one Gaussian can."""
    target = torch.cat([torch.randn(1000) * 0.3 - 2, torch.randn(1000) * 0.3 + 2])[:, None]
    gaussian = -torch.distributions.Normal(target.mean(), target.std()).log_prob(target).mean()
    flow = Autoregressive(1, layers=3, scalar=NLSq(), units=16)
    optimiser = torch.optim.Adam(flow.parameters(), 0.02)
    for _ in range(200):
        optimiser.zero_grad()
        (-flow.log_prob(target).mean()).backward()
        optimiser.step()
    assert -flow.log_prob(target).mean().detach() < gaussian - 0.5


@pytest.mark.parametrize(
    ("point", "context", "message"),
    [
        ((2, 4), None, "flow's 3 dimensions, was given shape \\(2, 4\\)"),
        ((2, 3), (2, 5), "context of size 0, was given 5"),
    ],
)
def test_wrong_shapes_are_named(point, context, message):
    flow = randomise(SplitCoupling(3))
    with pytest.raises(ValueError, match=message):
        flow(torch.randn(point), None if context is None else torch.randn(context))


def test_conditional_flow_without_its_context_says_so():
    with pytest.raises(ValueError, match="context of size 4, was given 0"):
        Autoregressive(3, context_size=4).inverse(torch.randn(2, 3))


@pytest.mark.parametrize("grad", [True, False])
def test_points_and_contexts_are_paired_as_they_stand(grad):
    """Also where compiled code sees rows alone."""
    flow = randomise(Autoregressive(3, context_size=4))
    with torch.set_grad_enabled(grad):
        for context in (torch.randn(2, 4, 4), torch.randn(1, 4), torch.randn(4, 4)):
            with pytest.raises(ValueError, match=r"needs the leading axes of the point, \(4, 2\)"):
                flow(torch.randn(4, 2, 3), context)


def test_samples_for_each_context():
    flow, context = Autoregressive(3, context_size=4), torch.randn(2, 4)
    assert flow.sample((5,), context).shape == (5, 2, 3)
    again = [flow.sample(context=context, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert again[0].shape == (2, 3)
    assert torch.equal(*again)


def test_too_few_units_for_a_masked_network():
    with pytest.raises(ValueError, match="needs at least 50 units per layer, one for each degree, not 10"):
        Autoregressive(50, units=10)
