"""Train a config in a folder of its own, or go on with one: data, processes, signals and the folder around the loop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from latflow import data
from latflow.config import Config, from_dict, to_dict
from latflow.data.base import Corpus
from latflow.errors import LatflowError
from latflow.models import build
from latflow.stops import stops
from latflow.training.distributed import World, join
from latflow.training.loop import Trainer
from latflow.training.report import Reporter
from latflow.training.run import START, FolderTaken, Run
from latflow.training.seeds import Stream, seeded
from latflow.training.start import Start


def train(
    config: Config,
    folder: str | Path | None = None,
    *,
    preset: str | None = None,
    start: Start | None = None,
    reporter: Reporter | None = None,
) -> tuple[Run, bool]:
    """Train a config in a new folder, shown by `reporter`; `Reporter(quiet=True)` shows warnings only.

    Returns the run, and whether it came to its end (False: interrupted). With `start` it begins with the weights of
    another run, whose symbols come first in its vocabulary.
    """
    given = from_dict(to_dict(config))  # wrong types are found before there is a folder
    config = replace(given, data=data.anchored(given.data))
    with join(config.train.device) as world:
        corpus = data.load(config.data) if start is None else start.corpus(config.data)
        made = None
        if world.main:
            weights = None if start is None else _start(config, corpus, start)
            run = _created(folder, config, corpus, preset, given.data.name)
            if start is not None and weights is not None:
                run.save(START, weights, {"from": str(start.run.folder)})
            made = str(run.folder)
        return _fit(Run.open(world.same_everywhere(made) or ""), corpus, world, reporter)


def resume(
    folder: str | Path, *, data_dir: str | None = None, reporter: Reporter | None = None
) -> tuple[Run, bool]:
    """Go on with a run from its last checkpoint, with any number of processes; its data lies in `data_dir` now, if that
    is given."""
    run = Run.open(folder)
    if run.alone:
        raise LatflowError(
            f"{folder} is a model alone, without the state of its training; train one like it from the start: "
            f"latflow train --config {run.folder / 'config.json'}"
        )
    with join(run.config.train.device) as world:
        return _fit(run, run.corpus(data_dir), world, reporter)


def _fit(run: Run, corpus: Corpus, world: World, reporter: Reporter | None) -> tuple[Run, bool]:
    with ExitStack() as stack:
        if world.main:
            stack.enter_context(run.writer())
        shown = reporter or Reporter()
        if not world.main:
            shown = Reporter(quiet=True)
        stack.enter_context(shown)
        trainer = Trainer(run, corpus, world, shown)
        came = stack.enter_context(interrupts(trainer.stop))
        finished = trainer.fit()
        if reporter is not None and came:
            reporter.stopped_by = came[-1]
        return run, finished


def _start(config: Config, corpus: Corpus, start: Start) -> dict[str, torch.Tensor]:
    with seeded(config.seed, Stream.WEIGHTS):
        model = build(config.model, corpus.spec)
    return start.weights(model, corpus.spec)


def _created(folder: str | Path | None, config: Config, corpus: Corpus, preset: str | None, name: str) -> Run:
    """The new run's folder; where none is named, the next that is free, also if others look for one at this moment."""
    while True:
        try:
            where = folder or free_folder(preset or name)
            return Run.create(where, config, corpus.spec, preset, corpus.contents())
        except FolderTaken:
            if folder is not None:
                raise


def free_folder(name: str) -> Path:
    """runs/NAME, or the first of runs/NAME-2, runs/NAME-3 ... that is free."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "run"
    folder, number = Path("runs") / name, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


@contextmanager
def interrupts(stop: threading.Event) -> Iterator[list[int]]:
    """Ctrl-C (or a polite kill) asks for a stop after this step; a second Ctrl-C stops at once. What came."""

    def handle(number: int) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    with stops(handle) as came:
        yield came
