"""Any transform in a sequence flow: composed ones and a user's own, with a context and without one."""

import pytest
import torch
from torch import Tensor, nn

from latflow.flows import (
    Autoregressive,
    Compose,
    Elementwise,
    LSTMContext,
    NLSq,
    Packing,
    PositionContext,
    Raw,
    SequenceFlow,
    SplitCoupling,
    Transform,
)
from tests.flows.cases import jacobian, randomise

pytestmark = pytest.mark.usefixtures("double")
H, C = 3, 4
LENGTHS = torch.tensor([2, 4, 1])


class Mixing(Transform):
    """z = A eps, A invertible: a user's own, without a context."""

    size, context_size = H, 0

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(H, H))

    def forward(self, eps: Tensor, context: Tensor | None = None):
        assert context is None
        return eps @ self.matrix.T, self._log_det(eps)

    def inverse(self, z: Tensor, context: Tensor | None = None):
        assert context is None
        return torch.linalg.solve(self.matrix, z.T).T, -self._log_det(z)

    def _log_det(self, point: Tensor) -> Tensor:
        return torch.linalg.slogdet(self.matrix)[1].expand(point.shape[:-1])


class Moved(Transform):
    """z = exp(s(context)) eps + m(context): a user's own, which says nothing of its context's size."""

    size = H

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(C, 2 * H)

    def forward(self, eps: Tensor, context: Tensor | None = None):
        log_scale, shift = self.head(context).chunk(2, -1)
        return log_scale.exp() * eps + shift, log_scale.sum(-1)

    def inverse(self, z: Tensor, context: Tensor | None = None):
        log_scale, shift = self.head(context).chunk(2, -1)
        return (z - shift) * (-log_scale).exp(), -log_scale.sum(-1)


TRANSFORMS = {
    "own, alone": Mixing,
    "own, with a context": Moved,
    "two of the package's": lambda: Compose(
        [Autoregressive(H, 2, NLSq(), C, units=6), SplitCoupling(H, 2, NLSq(), C, units=6)]
    ),
    "the package's and one's own": lambda: Compose(
        [Elementwise(H, 1, NLSq(), C, units=6), Mixing(), Autoregressive(H, 1, NLSq(), C, units=6)]
    ),
    "one's own, nested": lambda: Compose([Compose([Mixing(), Moved()]), Mixing()]),
}
transforms = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
times = pytest.mark.parametrize("time", ["af", "iaf", "none"])


def made(transform, time: str) -> SequenceFlow:
    context = PositionContext(C, 6) if time == "none" else LSTMContext(Raw(H), C, 1, 6)
    flow = SequenceFlow(transform(), context, time)
    randomise(flow, 0.3)
    for module in flow.modules():
        if isinstance(module, Mixing):
            nn.init.orthogonal_(module.matrix)
            with torch.no_grad():
                module.matrix.mul_(1.3)
    return flow


@transforms
@times
def test_round_trip_and_padding(transform, time):
    flow, y = made(transform, time), torch.randn(3, 4, H)
    inside = torch.arange(4)[None] < LENGTHS[:, None]
    for first, second in [(flow.forward, flow.inverse), (flow.inverse, flow.forward)]:
        image, logdet = first(y, LENGTHS)
        back, logdet_back = second(image, LENGTHS)
        torch.testing.assert_close(back[inside], y[inside], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(logdet_back, -logdet, rtol=1e-9, atol=1e-9)
        assert (image[~inside] == 0).all()


@transforms
@times
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_log_dets_are_those_of_autograd(transform, time, direction):
    flow, T = made(transform, time), 3
    method, length = getattr(flow, direction), torch.tensor([T])
    y = torch.randn(T * H)
    matrix = jacobian(lambda y: method(y.view(1, T, H), length)[0].flatten(), y).view(T, H, T, H)
    _, logdet = method(y.view(1, T, H), length)
    for t in range(T):
        own = torch.linalg.slogdet(matrix[t, :, t])[1]
        torch.testing.assert_close(logdet[0, t], own, rtol=1e-8, atol=1e-8)
        assert (matrix[t, :, t + 1 :] == 0).all()


@transforms
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_a_stepper_is_the_map(transform, direction):
    """What it holds for all steps of a pass are the weights, whatever point and context it is called with."""
    hidden = made(transform, "af").hidden
    step = hidden.stepper(direction)
    for n in (5, 2, 1):
        y, context = torch.randn(n, H), None if hidden.context_size == 0 else torch.randn(n, C)
        for found, expected in zip(step(y, context), getattr(hidden, direction)(y, context), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@transforms
def test_density_and_samples_agree(transform):
    """log p of a sample by the flow is the change of variables from the very noise it was made of."""
    flow, packing = made(transform, "af"), Packing(LENGTHS)
    eps = torch.randn(packing.rows, H)
    z, logdet = flow.forward_rows(eps, packing)
    expected = torch.distributions.Normal(0, 1).log_prob(eps).sum(-1) - logdet
    torch.testing.assert_close(flow.log_prob_rows(z, packing), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        flow.sample(LENGTHS, generator=torch.Generator().manual_seed(1)),
        packing.unpack(
            flow.forward_rows(
                torch.randn(packing.rows, H, generator=torch.Generator().manual_seed(1)), packing
            )[0]
        ),
    )
