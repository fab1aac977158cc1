"""How NLSq makes a Gaussian multimodal: the paper's figure of the scalar map (section 4.3).

(a, b) four maps with parameters set by hand, composed: the function, and the base and resulting density.
(c, d) five layers of an autoregressive flow fitted to a mixture of four Gaussians in the plane, affine against NLSq.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file
from torch import Tensor

from latflow.flows import Affine, Autoregressive, NLSq, ScalarTransform
from latflow.progress import Progress
from latflow.training.seeds import Stream, seeded

BY_HAND: Sequence[tuple[float, float, float, float, float]] = (
    (0.0, 0.25, 1.6, 0.1, 0.0),
    (-0.5, 0.15, -1.8, 0.5, -1.3),
    (-0.2, 0.1, 1.7, 0.7, 1.5),
    (0.4, 0.1, -1.6, 0.9, 0.3),
)
"""Raw a, b', c', d', g of four maps; the first is next to eps."""

CENTRES = ((-2.0, -2.0), (-2.0, 2.0), (2.0, -2.0), (2.0, 2.0))
SPREAD = 0.45


def composed_by_hand(z: Tensor) -> tuple[Tensor, Tensor]:
    """eps and log deps/dz of the four maps, z -> eps through the last one first."""
    eps, total = z, torch.zeros_like(z)
    for raw in reversed(BY_HAND):
        eps, logdet = NLSq().inverse(eps, torch.tensor(raw, dtype=z.dtype).expand(*z.shape, 5))
        total = total + logdet
    return eps, total


def mixture(n: int, generator: torch.Generator) -> Tensor:
    """n points of the mixture of four Gaussians."""
    centres = torch.tensor(CENTRES)[torch.randint(len(CENTRES), (n,), generator=generator)]
    return centres + SPREAD * torch.randn(n, 2, generator=generator)


def mixture_density(points: Tensor) -> Tensor:
    """p of points (..., 2) under the mixture."""
    square = (points[..., None, :] - torch.tensor(CENTRES)).square().sum(-1) / SPREAD**2
    return (-0.5 * square).exp().mean(-1) / (2 * math.pi * SPREAD**2)


def mixture_entropy() -> float:
    """Nearly exact in nats, since the components hardly overlap: log 4 and a Gaussian's entropy."""
    return math.log(len(CENTRES)) + math.log(2 * math.pi * math.e * SPREAD**2)


def fit_mixture(
    flow: Autoregressive, steps: int = 1500, seed: int = 0, progress: Callable[[], None] = lambda: None
) -> float:
    """Fit by maximum likelihood on fresh samples; the NLL in nats on samples of its own."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(flow.parameters(), 5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        loss = -flow.log_prob(mixture(512, generator)).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        progress()
    with torch.no_grad():
        return float(-flow.log_prob(mixture(20_000, generator)).mean())


STORED = Path(__file__).with_name("nlsq.safetensors")
"""The weights of the two flows, and the NLL of each, as 1500 steps from seed 0 gave them."""
SCALARS: Mapping[str, Callable[[], ScalarTransform]] = {"affine": Affine, "nlsq": NLSq}


def fitted(steps: int, seed: int, progress: Progress) -> dict[str, Tensor]:
    """Both flows learned anew: their weights as "nlsq.NAME", and their NLL as "nlsq nll", likewise of affine."""
    done, found = count(1), {}
    for name in SCALARS:
        with seeded(seed, Stream.WEIGHTS):
            flow = plane_flow(name)
        nll = fit_mixture(flow, steps, seed, lambda: progress(next(done), len(SCALARS) * steps))
        found |= {f"{name}.{key}": value for key, value in flow.state_dict().items()}
        found[f"{name} nll"] = torch.tensor(nll)
    return found


def plane_flow(name: str) -> Autoregressive:
    """Over the plane."""
    return Autoregressive(2, layers=5, scalar=SCALARS[name](), units=64)


def nlsq_figure(weights: Mapping[str, Tensor] | None = None) -> Figure:
    """The whole figure, of the weights that `fitted` gave, or of those that come with the package."""
    weights = load_file(STORED) if weights is None else weights
    figure = Figure(figsize=(15.5, 3.4), layout="constrained")
    function, density, target_axes, affine_axes, nlsq_axes = figure.subplots(1, 5)

    z = torch.linspace(-4, 4, 2001, dtype=torch.float64)
    eps, logdet = composed_by_hand(z)
    inside = eps.abs() < 3.2
    function.plot(eps[inside], z[inside], color="tab:blue")
    function.plot([-3, 3], [-3, 3], color="0.7", linestyle=":", label="identity")
    function.set(title="(a) four NLSq maps, composed", xlabel="ε", ylabel="z = f(ε)")
    function.legend(frameon=False)

    base = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    result = (logdet - 0.5 * eps.square()).exp() / math.sqrt(2 * math.pi)
    density.plot(z, base, color="tab:red", label="base N(0, 1)")
    density.plot(z, result, color="tab:blue", label="p(z)")
    density.fill_between(z, result, color="tab:blue", alpha=0.15)
    density.set(title="(b) one dimension", xlabel="z", ylabel="density", ylim=(0, None))
    density.legend(frameon=False)

    axis = torch.linspace(-4.2, 4.2, 240)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    extent = (-4.2, 4.2, -4.2, 4.2)
    truth = mixture_density(grid)
    top = float(truth.max())
    target_axes.imshow(truth.numpy(), origin="lower", extent=extent, cmap="Blues", vmin=0, vmax=top)
    target_axes.set(
        title="(c) target: four Gaussians", xlabel=f"z₁\nentropy {mixture_entropy():.2f} nats", ylabel="z₂"
    )
    for letter, axes, name, title in (
        ("d", affine_axes, "affine", "affine"),
        ("e", nlsq_axes, "nlsq", "NLSq"),
    ):
        flow, nll = plane_flow(name), float(weights[f"{name} nll"])
        flow.load_state_dict(
            {k.removeprefix(f"{name}."): v for k, v in weights.items() if k.startswith(f"{name}.")}
        )
        with torch.no_grad():
            p = flow.log_prob(grid).exp()
        axes.imshow(p.numpy(), origin="lower", extent=extent, cmap="Blues", vmin=0, vmax=top)
        axes.set(title=f"({letter}) learned, 5 AF layers, {title}", xlabel=f"z₁\nNLL {nll:.2f} nats")
    return figure
