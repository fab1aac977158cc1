"""The figure of the scalar map: what it claims to show is there."""

import torch

from latflow.flows import Affine, Autoregressive, NLSq
from latflow.plots.nlsq import composed_by_hand, fit_mixture, mixture_entropy, nlsq_figure


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
    figure = nlsq_figure(steps=2)
    figure.savefig(tmp_path / "nlsq.png")
    assert [axes.get_title()[:3] for axes in figure.axes] == ["(a)", "(b)", "(c)", "(d)"]
