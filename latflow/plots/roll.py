"""Piano rolls: pieces of the data beside samples of the same lengths, or samples alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from latflow import data
from latflow.config import DataConfig
from latflow.data import fetch
from latflow.data.base import LOWEST
from latflow.data.export import sounding
from latflow.errors import LatflowError, LatflowWarning
from latflow.plots.symbols import written
from latflow.training.run import Run
from latflow.training.seeds import Stream, seeded
from latflow.use.sample import sample


def rolls_of(
    run: Run, n: int, *, temperature: float = 1.0, seed: int = 0, data_dir: str | None = None
) -> list[tuple[np.ndarray, ...]]:
    """n pieces of the test data, each beside a sample of its length; where the data is not, n samples."""
    if run.spec.kind != "music":
        raise LatflowError(f"{run.folder} is a run on {run.spec.kind}; this figure is of music")
    model, config = run.model(), data.placed(run.config.data, data_dir)
    if missing := _missing(config):
        warnings.warn(f"samples only: {missing}", LatflowWarning, stacklevel=2)
        return [(roll,) for roll in sample(model, n, temperature=temperature, seed=seed)]
    test = data.load(config).splits["test"]
    with seeded(seed, Stream.FIGURE_DATA):
        chosen = torch.randperm(len(test))[:n].tolist()
    pairs = []
    for number, i in enumerate(chosen):
        piece = test[i]
        (drawn,) = sample(model, 1, length=len(piece), temperature=temperature, seed=seed + number)
        pairs.append((piece, drawn))
    return pairs


def _missing(config: DataConfig) -> str:
    """Why the data cannot be shown beside samples, or nothing: a model can be where its data is not."""
    if config.name in fetch.CORPORA and not fetch.find(config.name, config.data_dir, verify=False):
        return f"the data {config.name} is not on this machine (latflow data fetch {config.name})"
    _, _, path = config.name.partition(":")
    return f"{path}: no such folder" if path and not Path(path).expanduser().exists() else ""


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
        figure.suptitle(written(title))
    return figure
