"""`latflow demo`: two small models on a set whose truth is known and on English sentences, in minutes on two cores."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from latflow import data
from latflow.errors import LatflowError
from latflow.plots.comparison import comparison_figure
from latflow.plots.save import save
from latflow.progress import counting
from latflow.training.evaluate import Metrics, evaluate, table
from latflow.training.run import Run
from latflow.use import sample
from latflow.use.files import as_text

LANES = (
    ("pydoc-af-af-codebook", "hmm-lstm-codebook"),
    ("hmm-af-af-codebook", "pydoc-lstm-codebook"),
)
"""Two processes side by side, with one thread each: models this small gain nothing from a second thread."""


def demo(out: Path, lanes: tuple[tuple[str, ...], ...] = LANES, options: tuple[str, ...] = ()) -> None:
    """Train in `out`, then print results and samples, and save a figure for each set."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(lambda lane: [_train(name, out, options) for name in lane], lanes))
    names = [name for lane in lanes for name in lane]
    for corpus in sorted({name.partition("-")[0] for name in names}):
        _compare(out, corpus, sorted((n for n in names if n.startswith(f"{corpus}-")), reverse=True))
    print(f"{time.monotonic() - began:.0f} seconds in all; runs and figures are in {out}")


def _train(name: str, out: Path, options: tuple[str, ...]) -> None:
    """One preset in a process of its own; an interrupted one goes on, a finished one is kept."""
    folder = out / name
    what = ["--resume", str(folder)] if folder.exists() else [name, "--run", str(folder), *options]
    began = time.monotonic()
    command = [sys.executable, "-m", "latflow", "train", *what]
    last = ""
    with subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = line.strip()
            print(f"{name}: {last}", flush=True)
    if process.returncode:
        raise LatflowError(f"training {name} failed: {last or process.returncode}")
    print(f"{name}: trained in {time.monotonic() - began:.0f} s", flush=True)


def _compare(out: Path, corpus: str, names: list[str]) -> None:
    runs = {name: Run.open(out / name) for name in names}
    results: dict[str, Metrics] = {}
    for name, run in runs.items():
        held_out = data.load(run.config.data)
        truth = None if held_out.truth is None else held_out.truth["test"]
        model = run.model()
        with counting(f"evaluating {name}, batches") as tell:
            results[name] = evaluate(model, held_out.splits["test"], samples=20, truth=truth, progress=tell)
        print(f"\n{name}, test data, in {results[name].convention}")
        for row, value in table(results[name]):
            print(f"  {row:<18} {value}")
        for x in sample(model, 4, seed=1):
            print(f"  sample: {as_text(x, run.spec, terminal=True)}")
    if len(names) > 1:
        baseline, flow = names[0], names[1]
        gap = results[flow].nll - results[baseline].nll
        print(f"\n{flow} against {baseline}: {gap:+.4f} {results[flow].name}")
    picture, _ = save(comparison_figure(runs, results, corpus), out / corpus)
    print(f"figure: {picture}\n")
