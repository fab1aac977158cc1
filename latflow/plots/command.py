"""`latflow plot`: open what is to be drawn, draw it, save it."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from matplotlib.figure import Figure

from latflow import data
from latflow.config import DataConfig
from latflow.data import fetch
from latflow.errors import LatflowError, LatflowWarning
from latflow.plots.curves import curves_figure
from latflow.plots.modality import modality_figure
from latflow.plots.nlsq import nlsq_figure
from latflow.plots.prior import prior_figure
from latflow.plots.roll import roll_figure
from latflow.plots.save import save
from latflow.plots.timing import read_timing, timing_figure
from latflow.progress import counting
from latflow.reproduce.result import Result, curve_of
from latflow.training.run import Run
from latflow.training.seeds import seeded
from latflow.use import sample


def plot(args: argparse.Namespace) -> int:
    """Print the paths of the files written."""
    figure = KINDS[args.kind](args)
    out = args.out
    if out is None:
        out = f"{Path(args.folder).stem}-{args.kind}" if hasattr(args, "folder") else args.kind
    for path in save(figure, out):
        print(path)
    return 0


def _nlsq(args: argparse.Namespace) -> Figure:
    with counting("fitting two flows, steps") as tell:
        return nlsq_figure(args.steps, args.seed, tell)


def _modality(args: argparse.Namespace) -> Figure:
    return modality_figure(Run.open(args.folder).model(), args.text, args.positions)


def _prior(args: argparse.Namespace) -> Figure:
    return prior_figure(Run.open(args.folder).model(), args.text, args.part, args.seed)


def _curves(args: argparse.Namespace) -> Figure:
    path = Path(args.folder)
    if path.is_file():
        result = Result.read(path)
        unit = f"{result.metrics['unit']} per {result.metrics['step_name']}"
        return curves_figure(result.curve, unit, result.preset)
    run = Run.open(path)
    if run.alone:
        raise LatflowError(
            f"{args.folder} is a model alone, without metrics.jsonl; curves are of a run's training"
        )
    return curves_figure(
        curve_of(run.metrics()), f"{run.spec.unit} per {run.spec.step_name}", run.folder.name
    )


def _roll(args: argparse.Namespace) -> Figure:
    run = Run.open(args.folder)
    if run.spec.kind != "music":
        raise LatflowError(f"{args.folder} is a run on {run.spec.kind}; this figure is of music")
    model, config = run.model(), data.placed(run.config.data, args.data_dir)
    if missing := _missing(config):
        warnings.warn(f"samples only: {missing}", LatflowWarning, stacklevel=2)
        drawn = sample(model, args.n, temperature=args.temperature, seed=args.seed)
        return roll_figure([(roll,) for roll in drawn], run.folder.name)
    test = data.load(config).splits["test"]
    with seeded(args.seed, 7):
        chosen = torch.randperm(len(test))[: args.n].tolist()
    pairs = []
    for number, i in enumerate(chosen):
        piece = test[i]
        (drawn,) = sample(model, 1, length=len(piece), temperature=args.temperature, seed=args.seed + number)
        pairs.append((piece, drawn))
    return roll_figure(pairs, run.folder.name)


def _missing(config: DataConfig) -> str:
    """Why the data cannot be shown beside samples, or nothing: a model can be where its data is not."""
    if config.name in fetch.CORPORA and not fetch.find(config.name, config.data_dir, verify=False):
        return f"the data {config.name} is not on this machine (latflow data fetch {config.name})"
    _, _, path = config.name.partition(":")
    return f"{path}: no such folder" if path and not Path(path).expanduser().exists() else ""


def _timing(args: argparse.Namespace) -> Figure:
    return timing_figure(read_timing(args.file, args.size))


KINDS: Mapping[str, Callable[[argparse.Namespace], Figure]] = {
    "nlsq": _nlsq,
    "modality": _modality,
    "prior": _prior,
    "curves": _curves,
    "roll": _roll,
    "timing": _timing,
}
"""One for each KIND of the command line."""
