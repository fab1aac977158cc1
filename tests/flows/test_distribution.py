"""Flows as torch.distributions: shapes, draws that have the density they are said to have, gradients."""

import torch
from torch.distributions import Independent, Normal, kl_divergence, register_kl

from latflow.flows import (
    Affine,
    Autoregressive,
    FlowDistribution,
    LSTMContext,
    Raw,
    SequenceDistribution,
    SequenceFlow,
)
from tests.flows.cases import randomise


def test_a_transform_is_a_distribution_over_vectors():
    flow = Autoregressive(3, 2, context_size=2, units=6)
    randomise(flow, 0.2)
    context = torch.randn(5, 2)
    p = FlowDistribution(flow, context)
    assert (p.batch_shape, p.event_shape) == ((5,), (3,))
    z = p.sample(torch.Size([4]))
    assert z.shape == (4, 5, 3)
    assert not z.requires_grad
    torch.testing.assert_close(p.log_prob(z), flow.log_prob(z, context.expand(4, 5, 2)))
    torch.manual_seed(1)
    drawn = p.rsample()
    torch.manual_seed(1)
    torch.testing.assert_close(drawn, flow.rsample((), context))
    assert drawn.requires_grad


def test_without_context_the_batch_is_empty():
    flow = Autoregressive(2, 1, units=4)
    p = FlowDistribution(flow)
    assert p.batch_shape == ()
    assert p.sample(torch.Size([7])).shape == (7, 2)


def test_a_sequence_flow_is_a_distribution_over_sequences():
    flow = SequenceFlow(Autoregressive(2, 1, context_size=4, units=6), LSTMContext(Raw(2), 4, 1, 6), "af")
    randomise(flow, 0.3)
    lengths = torch.tensor([5, 2])
    p = SequenceDistribution(flow, lengths)
    assert (p.batch_shape, p.event_shape) == ((2,), (5, 2))
    z = p.sample(torch.Size([3, 4]))
    assert z.shape == (3, 4, 2, 5, 2)
    assert (z[..., 1, 2:, :] == 0).all()
    torch.testing.assert_close(p.log_prob(z)[1, 2], flow.log_prob(z[1, 2], lengths).sum(-1))


def test_it_goes_where_torch_takes_a_distribution():
    """A KL by torch's own registry, estimated with rsample and log_prob; and the gradient reaches the weights."""

    @register_kl(FlowDistribution, Independent)
    def _estimate(p, q):
        z = p.rsample(torch.Size([4000]))
        return (p.log_prob(z) - q.log_prob(z)).mean(0)

    flow = Autoregressive(2, 1, Affine(), units=4)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.zero_()
        flow.network(0).biases[-1][:2] = torch.tensor([0.3, -0.4])  # z = a + eps: KL = |a|² / 2
    p, q = FlowDistribution(flow), Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
    found = kl_divergence(p, q)
    assert abs(float(found.detach()) - 0.125) < 0.03
    found.backward()
    assert flow.network(0).biases[-1].grad is not None
