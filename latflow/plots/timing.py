"""Generation time against length: the paper's figure of parallel sampling (section 6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

Line = Sequence[tuple[int, float]]
"""Pairs of a length and the milliseconds that one sequence of it took."""


def timing_figure(panels: Mapping[str, Mapping[str, Line]]) -> Figure:
    """A panel for each kind of data (its title), a line for each model (its name)."""
    figure = Figure(figsize=(5 * len(panels), 3.6), layout="constrained")
    for axes, (title, lines) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for name, line in lines.items():
            lengths, times = zip(*sorted(line), strict=True)
            axes.plot(lengths, times, marker=".", label=name)
        axes.set(
            title=title, xlabel="length of the sequence", ylabel="time to generate it (ms)", xlim=(0, None)
        )
        axes.set_ylim(0, None)
        axes.legend(frameon=False)
    return figure
