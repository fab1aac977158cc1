"""A walk through the dimensions has the numbers of the flow that it walks through; a state that is selected goes on."""

import math

import pytest
import torch

from latflow.flows import (
    Affine,
    Autoregressive,
    Elementwise,
    LSTMContext,
    Mixture,
    Packing,
    PositionContext,
    Raw,
    SplitCoupling,
    TiedMixture,
    TiedScalar,
)
from latflow.flows.walk import Walk, can_walk

pytestmark = pytest.mark.usefixtures("double")


def flow_of(kind, depth=2, skip=True, layers=1):
    flow = kind(6, layers, Mixture(2), context_size=3, units=14, depth=depth, skip=skip)
    for parameter in flow.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return flow


@pytest.mark.parametrize("kind", [Autoregressive, Elementwise])
@pytest.mark.parametrize(("depth", "skip"), [(1, False), (2, True), (3, True)])
def test_raw_parameters_are_those_of_a_whole_pass(kind, depth, skip):
    flow, z, context = flow_of(kind, depth, skip), torch.randn(5, 6), torch.randn(5, 3)
    seen, _ = flow.dimensions(reverse=False)
    expected = flow.raw(0, z[:, seen], flow.project(context)[0], flow.weights()[0])
    walk, found = Walk(flow, context, 5), []
    for stretch in (slice(0, 1), slice(1, 4), slice(4, 5), slice(5, 6)):
        if stretch.start in (0, 4):
            found.append(walk.raw())
            walk.put(z[:, stretch.start])
        else:
            found.append(walk.raw(z[:, stretch]))
    torch.testing.assert_close(torch.cat(found, 1), expected)
    assert torch.equal(walk.z, z)


def test_rows_that_are_selected_go_on_as_they_are():
    flow, z, context = flow_of(Autoregressive), torch.randn(4, 6), torch.randn(4, 3)
    index = torch.tensor([2, 2, 0])
    walk = Walk(flow, context, 4)
    walk.raw(z[:, :3])
    walk.select(index)
    found = walk.raw(z[index, 3:])
    expected = flow.raw(0, z, flow.project(context)[0], flow.weights()[0])[index, 3:]
    torch.testing.assert_close(found, expected)


def test_a_flow_without_an_order_of_its_dimensions_is_refused():
    for flow in (flow_of(SplitCoupling), flow_of(Autoregressive, layers=2)):
        assert not can_walk(flow)
        with pytest.raises(ValueError, match="no order of its dimensions"):
            Walk(flow, torch.randn(1, 3), 1)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["mixture", "tied scalar", "tied", "affine"])
def test_a_draw_has_the_distribution_of_forward(kind):
    """Its eps are uniform after Φ: a Kolmogorov-Smirnov test of every dimension, failed once in 10,000 seeds."""
    n, codes = 4000, torch.nn.Module()
    codes.means, codes.log_scales = torch.randn(3, 2), 0.5 * torch.randn(3, 2) - 1
    if kind == "tied":
        flow, context = TiedMixture(codes, 2), torch.randn(1, 2).expand(n, -1)
        eps, _ = flow.inverse(flow.draw(context), context)
    else:
        components = codes.means.t(), codes.log_scales.t()
        scalar = {
            "mixture": Mixture(3),
            "tied scalar": TiedScalar(lambda: components).at(1),
            "affine": Affine(),
        }[kind]
        raw = torch.randn(scalar.n_params).expand(n, -1)
        eps, _ = scalar.inverse(scalar.draw(raw), raw)
        eps = eps[:, None]
    for column in torch.special.ndtr(eps).unbind(-1):
        grid = torch.arange(1, n + 1) / n
        assert float((column.sort()[0] - grid).abs().max()) * math.sqrt(n) < 2.23


@torch.no_grad()
@pytest.mark.parametrize("kind", [Autoregressive, Elementwise])
def test_dimensions_drawn_together_are_those_drawn_one_after_the_other(kind, monkeypatch):
    """Of the same noise; and their eps are normal, as above, each step seeing what was drawn before it."""
    n, components = 4000, (torch.tensor([-1.0, 1.0]).repeat(6, 1), torch.full((6, 2), -0.5))
    flow = kind(6, 1, TiedScalar(lambda: components), context_size=3, units=14, depth=2, skip=True)
    for parameter in flow.parameters():
        torch.nn.init.normal_(parameter, std=0.9)
    context, found = torch.randn(n, 3), []
    for block in (1, 4, 6):
        monkeypatch.setattr("latflow.flows.walk.BLOCK", block)
        torch.manual_seed(5)
        walk = Walk(flow, context, n)
        walk.draw(2)
        walk.draw(6)
        found.append(walk.z)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    eps, _ = flow.inverse(found[0], context)
    for column in torch.special.ndtr(eps).unbind(-1):
        grid = torch.arange(1, n + 1) / n
        assert float((column.sort()[0] - grid).abs().max()) * math.sqrt(n) < 2.23
    assert float(torch.corrcoef(eps.t()).triu(1).abs().max()) * math.sqrt(n) < 4.5


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("lengths", [[5, 5, 5, 5], [6, 5, 4, 4]])
@pytest.mark.parametrize("kind", ["lstm", "position"])
def test_a_selected_state_is_that_of_the_selected_sequences(kind, lengths, conditional):
    size = 2 if conditional else 0
    if kind == "lstm":
        context = LSTMContext(Raw(3), 5, 2, 6, condition_size=size)
    else:
        context = PositionContext(5, 6, condition_size=size)
    condition = torch.randn(4, size) if conditional else None
    y, index = torch.randn(4, 6, 3), torch.tensor([0, 0, 1, 3, 3])
    packing = Packing(torch.tensor(lengths), condition=condition)
    chosen = Packing(torch.tensor(lengths)[index], condition=None if condition is None else condition[index])
    now, state = context.start(packing)
    for t in range(2):
        now, state = context.step(y[:, t], t, packing, state)
    state = context.select(state, index, chosen)
    expected = context.whole(chosen.pack(y[index]), chosen)
    torch.testing.assert_close(now[index], expected[chosen.at(2)])
    for t in range(2, chosen.steps - 1):
        now, state = context.step(y[index][: chosen.active[t], t], t, chosen, state)
        torch.testing.assert_close(now, expected[chosen.at(t + 1)])
