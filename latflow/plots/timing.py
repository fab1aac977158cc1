"""Generation time against length: the paper's figure of parallel sampling (section 6.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from latflow.data.files import readable
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
            axes.plot(lengths, times, marker=".", label=name)
        axes.set(
            title=title, xlabel="length of the sequence", ylabel="time to generate it (ms)", xlim=(0, None)
        )
        axes.set_ylim(0, None)
        axes.legend(frameon=False)
    return figure


def read_timing(path: str | Path, size: str = "paper") -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Panels from the JSON that `latflow.bench` writes: one sequence at a time, in plain torch and at its best."""
    try:
        with readable(path):
            rows = json.loads(Path(path).read_text(encoding="utf-8"))["sampling"]
        panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
        for row in rows:
            if row["size"] == size and row["batch"] == 1 and row["model"] in ("LSTM", "IAF/SCF"):
                panel = panels.setdefault(row["data"], {})
                for key, text in (("plain torch", "plain torch"), ("seconds", "at its best")):
                    panel.setdefault(f"{row['model']}, {text}", []).append((row["T"], 1e3 * row[key]))
    except (ValueError, KeyError, TypeError) as error:
        raise LatflowError(f"{path} is not a file of the benchmark (latflow.bench): {error!r}") from None
    if not panels:
        raise LatflowError(f"{path} has no generation times of size {size!r}")
    return panels
