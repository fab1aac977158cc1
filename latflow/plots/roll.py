"""Piano rolls: pieces of the data beside samples of the same lengths, or samples alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from latflow.data.base import LOWEST
from latflow.data.export import sounding


def roll_figure(rows: Sequence[tuple[np.ndarray, ...]], title: str = "") -> Figure:
    """A row for each (data, sample) or each (sample,) of (T, 88) rolls; only notes that occur in any are shown."""
    low, high = sounding(roll for row in rows for roll in row)
    columns = (("data", "Blues"), ("sample", "Oranges"))[-len(rows[0]) :]
    figure = Figure(figsize=(5.5 * len(columns), 0.6 + 2.2 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(columns), squeeze=False, sharey=True)
    for axes_of_row, row in zip(panels, rows, strict=True):
        for axes, roll, (_, colour) in zip(axes_of_row, row, columns, strict=True):
            extent = (0, len(roll), LOWEST + low - 0.5, LOWEST + high + 0.5)
            sounds = np.asarray(roll, np.float32)[:, low : high + 1].T
            image = np.ma.masked_equal(0.8 * sounds, 0)
            axes.imshow(
                image,
                aspect="auto",
                origin="lower",
                extent=extent,
                cmap=colour,
                vmin=0,
                vmax=1,
                interpolation="none",
            )
            octaves = [note for note in range(24, 109, 12) if LOWEST + low <= note <= LOWEST + high]
            axes.set_yticks(octaves, [f"C{note // 12 - 1}" for note in octaves])
            axes.grid(axis="y", linewidth=0.4, alpha=0.6)
            mean = float(roll.sum(1).mean()) if len(roll) else 0.0
            axes.set_title(f"{mean:.1f} notes a step", fontsize=8, loc="right")
    for axes, (name, _) in zip(panels[0], columns, strict=True):
        axes.set_title(name, fontsize=11)
    for axes in panels[-1]:
        axes.set_xlabel("time step")
    for axes in panels[:, 0]:
        axes.set_ylabel("note")
    if title:
        figure.suptitle(title)
    return figure
