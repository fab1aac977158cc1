"""Next-symbol distributions of a language model: the paper's figure of multimodality (section 4.2).

At most places of a sentence several letters are likely and the ones between them are not, so a continuous z that is to
stand for the letter needs a density with many modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from latflow.data.base import DataSpec
from latflow.errors import LatflowError
from latflow.flows.packing import Packing
from latflow.models import SequenceModel
from latflow.models.baseline import LSTMLanguageModel
from latflow.plots.symbols import encode, label

SYMBOLS, LEAST = 60, 0.002
"""Bars of a panel at most, and the probability that a symbol has somewhere if it is among them."""


@torch.no_grad()
def next_symbol(model: SequenceModel, x: torch.Tensor) -> torch.Tensor:
    """(T, V) probabilities p(x_t | x_<t, T) along a sequence of T symbols."""
    if not isinstance(model, LSTMLanguageModel):
        raise LatflowError(
            "this figure needs an LSTM language model, which says p(x_t | x_<t); the run is latent"
        )
    packing = Packing(torch.tensor([len(x)]))
    context = model.context.whole(model.alphabet.embed(x), packing)
    return model.alphabet.scores(model.head(context)).softmax(-1)


def modality_figure(model: SequenceModel, text: str, positions: Sequence[int] | None = None) -> Figure:
    """A panel of bars for each position (from 1), the symbol that follows in the text in another colour."""
    spec = model.spec
    x = torch.from_numpy(encode(text, spec))
    T = len(x)
    if positions is None:
        count = min(6, T)
        positions = [1 + round(i * (T - 1) / max(1, count - 1)) for i in range(count)]
    for position in positions:
        if not 1 <= position <= T:
            raise LatflowError(f"position {position}; the text has positions 1 to {T}")
    p = next_symbol(model, x)[[position - 1 for position in positions]]
    largest = p.amax(0)
    targets = {int(x[position - 1]) for position in positions}
    shown = [
        i for i in largest.argsort(descending=True)[:SYMBOLS].tolist() if largest[i] >= LEAST or i in targets
    ]
    shown.sort(key=lambda i: (isinstance(spec.symbols[i], str), spec.symbols[i]))
    names = [label(spec.symbols[i], spec) for i in shown]

    columns = min(2 if len(shown) > 20 else 3, len(positions))
    rows = math.ceil(len(positions) / columns)
    figure = Figure(
        figsize=(columns * max(3.0, 0.12 * len(shown)) + 0.5, 1.9 * rows + 0.4), layout="constrained"
    )
    panels = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes, position, row in zip(panels, positions, p, strict=False):
        target = int(x[position - 1])
        colours = ["tab:red" if i == target else "tab:blue" for i in shown]
        axes.bar(range(len(shown)), row[shown].tolist(), color=colours, width=0.85)
        axes.set_xticks(range(len(shown)), names, fontsize=6 if len(shown) > 26 else 8)
        entropy = float(torch.special.entr(row).sum()) / math.log(2)
        before = _before(x[: position - 1].tolist(), spec) if position > 1 else "at the start: "
        axes.set_title(f"{before}?   ({entropy:.1f} bits)", fontsize=9)
        axes.set(ylim=(0, max(0.05, 1.08 * float(row.max()))), xlim=(-0.8, len(shown) - 0.2))
        axes.tick_params(axis="x", length=0)
    for axes in panels[len(positions) :]:
        axes.set_axis_off()
    for axes in panels[::columns]:
        axes.set_ylabel(r"$p(x_t \mid x_{<t})$")
    figure.suptitle(
        "next-symbol distributions; red: the symbol that follows; in brackets: the entropy", fontsize=10
    )
    return figure


def _before(x: list[int], spec: DataSpec) -> str:
    """The last symbols before a position."""
    shown, end = (22, "") if spec.kind == "text" else (6, " ")
    return "…" * (len(x) > shown) + "".join(label(spec.symbols[i], spec) + end for i in x[-shown:])
