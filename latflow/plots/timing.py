"""Generation time against length: the paper's figure of parallel sampling (section 6.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from latflow.data.files import read_whole
from latflow.errors import LatflowError

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
            # Two ways of one model may take the same time: the one at its best is seen through the other.
            style = {"linestyle": "--", "mfc": "white", "zorder": 3} if "best" in name else {"linewidth": 2.5}
            axes.plot(lengths, times, marker="o", markersize=4, label=name, **style)
        axes.set(
            title=title, xlabel="length of the sequence", ylabel="time to generate it (ms)", xlim=(0, None)
        )
        axes.set_ylim(0, None)
        axes.legend(frameon=False)
    return figure


Panels = dict[str, dict[str, list[tuple[int, float]]]]


def timing_panels(rows: Sequence[Mapping[str, Any]], size: str = "paper") -> Panels:
    """Panels from the benchmark's rows: one sequence at a time, in plain torch, by cells and at its best."""
    panels: Panels = {}
    for row in rows:
        if row["size"] == size and row["batch"] == 1 and row["model"] in ("LSTM", "IAF/SCF"):
            panel = panels.setdefault(row["data"], {})
            for key, text in (
                ("plain torch", "plain torch"),
                ("cells", "plain torch, by cells"),
                ("seconds", "at its best"),
            ):
                if row.get(key) is not None:
                    panel.setdefault(f"{row['model']}, {text}", []).append((row["T"], 1e3 * row[key]))
    return panels


def read_timing(path: str | Path, size: str = "paper") -> Panels:
    """Panels from the JSON that `latflow bench --json` writes."""
    try:
        panels = timing_panels(json.loads(read_whole(path))["sampling"], size)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LatflowError(f"{path} is not what `latflow bench --json` writes: {error!r}") from None
    if not panels:
        raise LatflowError(f"{path} has no generation times of size {size!r}")
    return panels
