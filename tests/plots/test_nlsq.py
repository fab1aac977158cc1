"""The figure of the scalar map: what it claims to show is there."""

import torch
from safetensors.torch import load_file

from latflow.flows import Affine, Autoregressive, NLSq
from latflow.plots.nlsq import (
    STORED,
    composed_by_hand,
    fit_mixture,
    fitted,
    mixture,
    mixture_entropy,
    nlsq_figure,
    plane_flow,
)


def test_four_maps_by_hand_make_several_modes_of_a_true_density():
    z = torch.linspace(-6, 6, 20_001, dtype=torch.float64)
    eps, logdet = composed_by_hand(z)
    density = (logdet - 0.5 * eps.square()).exp() / (2 * torch.pi) ** 0.5
    assert abs(float(torch.trapezoid(density, z)) - 1) < 1e-6
    rises = (density.diff() > 0).int()
    assert int((rises.diff() == -1).sum()) >= 3


def test_nlsq_comes_closer_to_four_gaussians_than_affine():
    losses = []
    for scalar in (Affine(), NLSq()):
        torch.manual_seed(0)
        losses.append(fit_mixture(Autoregressive(2, layers=3, scalar=scalar, units=32), steps=250))
    affine, nlsq = losses
    assert mixture_entropy() - 0.05 < nlsq < affine - 0.1


def test_figure_is_drawn(tmp_path):
    figure = nlsq_figure(fitted(2, 0, lambda done, of: None))
    figure.savefig(tmp_path / "nlsq.png")
    assert [axes.get_title()[:3] for axes in figure.axes] == ["(a)", "(b)", "(c)", "(d)", "(e)"]


def test_stored_weights_are_of_the_flows_that_are_drawn():
    """Their NLL, on other points of the mixture, is the one that is printed; NLSq is nearer to the entropy."""
    weights, points = load_file(STORED), mixture(20_000, torch.Generator().manual_seed(7))
    found = {}
    for name in ("affine", "nlsq"):
        flow = plane_flow(name)
        own = {k.removeprefix(f"{name}."): v for k, v in weights.items() if k.startswith(f"{name}.")}
        flow.load_state_dict(own)
        with torch.no_grad():
            found[name] = float(-flow.log_prob(points).mean())
        assert abs(found[name] - float(weights[f"{name} nll"])) < 0.05  # of 20,000 points: 0.01
    assert found["nlsq"] < found["affine"]
    assert found["nlsq"] < mixture_entropy() + 0.1
    assert len(nlsq_figure().axes) == 5
