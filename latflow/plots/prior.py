"""The densities p(z_t | z_<t, T) along a given string, for H = 2: the paper's "_groups_" figure (section 6.1).

z is drawn from q(z | x); panel t shows the prior of z_t given the z before it, and the z_t that was drawn.
"""

from __future__ import annotations

import math

import torch
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from latflow.errors import LatflowError
from latflow.flows.packing import Packing
from latflow.models import SequenceModel
from latflow.models.latent import LatentSequenceModel
from latflow.plots.symbols import encode, label
from latflow.training.seeds import Stream, seeded

PANELS = 40
POINTS = 160
"""Of the grid, along each side."""


@torch.no_grad()
def contexts(model: LatentSequenceModel, x: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """z ~ q(z | x) (T, H), and what the hidden flow of each step sees, (T, c)."""
    packing = Packing(torch.tensor([len(x)]))
    with seeded(seed, Stream.FIGURE_POSTERIOR):
        z = model.draw(x, packing).z
    return z, model.prior.context.whole(model.prior.time.seen(model.prior, z, packing), packing)


@torch.no_grad()
def log_density(model: LatentSequenceModel, points: Tensor, context: Tensor) -> Tensor:
    """log p(z_t = point | context of step t) of (n, 2) points."""
    return model.prior.hidden.log_prob(points, context.expand(len(points), -1))


def prior_figure(model: SequenceModel, text: str, part: str | None = None, seed: int = 0) -> Figure:
    """A panel for each symbol of the text, or of the first occurrence of `part` in it."""
    if not isinstance(model, LatentSequenceModel):
        raise LatflowError(
            "this figure needs a latent model; the run is an LSTM language model, which has no z"
        )
    if model.prior.size != 2:
        raise LatflowError(
            f"this figure needs H = 2, and the run has H = {model.prior.size}; "
            "take the shipped model pydoc-2d or train one (latflow train pydoc-af-af --model.latent_size 2)"
        )
    spec = model.spec
    x = encode(text, spec)
    first, last = 0, len(x)
    if part is not None:
        wanted = encode(part, spec)
        starts = range(len(x) - len(wanted) + 1)
        first = next((i for i in starts if (x[i : i + len(wanted)] == wanted).all()), -1)
        if first < 0:
            raise LatflowError(f"{part!r} is not in the text")
        last = first + len(wanted)
    if last - first > PANELS:
        raise LatflowError(f"{last - first} panels are too many (at most {PANELS}); choose some with --part")

    z, context = contexts(model, torch.from_numpy(x), seed)
    steps = range(first, last)
    low, high = box_of(model, context[first:last], z[first:last], seed)
    axes_of = [torch.linspace(float(low[d]), float(high[d]), POINTS) for d in range(2)]
    grid = torch.stack(torch.meshgrid(*axes_of, indexing="xy"), -1)

    columns = min(8, last - first) if last - first > 4 else last - first
    columns = 4 if last - first == 8 else columns
    rows = math.ceil((last - first) / columns)
    columns = math.ceil((last - first) / rows)  # no row that is nearly empty
    figure = Figure(figsize=(1.9 * columns + 0.5, 2.05 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten().tolist()
    extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))
    for axes, t in zip(panels, steps, strict=False):
        density = log_density(model, grid.reshape(-1, 2), context[t]).exp().reshape(POINTS, POINTS)
        norm = PowerNorm(0.5, vmin=0, vmax=max(float(density.max()), 1e-30))
        axes.imshow(density.numpy(), origin="lower", extent=extent, cmap="Blues", norm=norm, aspect="auto")
        axes.plot(*z[t].tolist(), marker="+", color="tab:red", markersize=9, markeredgewidth=1.6)
        axes.text(
            0.97, 0.03, f"max {float(density.max()):.2g}", ha="right", fontsize=6, transform=axes.transAxes
        )
        axes.set_title(label(spec.symbols[int(x[t])], spec), fontsize=13, pad=5)
        axes.tick_params(labelsize=7)
    for axes in panels[last - first :]:
        axes.set_axis_off()
    for axes in panels[::columns]:
        axes.set_ylabel("$z_{t,2}$", fontsize=9)
    for axes in panels[max(0, last - first - columns) : last - first]:
        axes.set_xlabel("$z_{t,1}$", fontsize=9)
    figure.suptitle(
        r"$p(z_t \mid z_{<t})$, colour by the square root up to each panel's max; red: $z_t \sim q(z \mid x)$",
        fontsize=10,
    )
    return figure


@torch.no_grad()
def box_of(model: LatentSequenceModel, context: Tensor, z: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Corners of a box that holds 99 % of the prior of every step and all the z drawn, with a margin."""
    n = 400
    with seeded(seed, Stream.FIGURE_PRIOR):
        drawn = model.prior.hidden.sample(context=context.repeat_interleave(n, 0))
    low, high = (torch.quantile(drawn.unflatten(0, (-1, n)), q, 1) for q in (0.005, 0.995))  # of each step
    low, high = torch.minimum(low, z).amin(0), torch.maximum(high, z).amax(0)
    margin = 0.08 * (high - low).clamp(min=1e-3)
    return low - margin, high + margin
