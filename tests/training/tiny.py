"""A run that takes seconds: a few hundred sequences, a model of a few thousand weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from latflow.config import Config, evolve
from latflow.presets import find

ROOT = Path(__file__).parents[2]

TINY = {
    "model.embedding_size": 8,
    "model.latent_size": 3,
    "model.prior.context.units": 8,
    "model.prior.hidden.units": 8,
    "model.prior.hidden.layers": 2,
    "model.posterior.units": 8,
    "model.emission.units": 8,
    "model.baseline.units": 8,
    "data.train_size": 60,
    "data.eval_size": 20,
    "train.epochs": 3,
    "train.batch_size": 8,
    "train.kl_steps": (4, 8),
    "train.lr_decay": 0,
    "train.log_every": 1,
    "train.device": "cpu",
}


def config(preset: str = "hmm-af-af", **changes: object) -> Config:
    """A preset made tiny; changes as train__epochs=2."""
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return evolve(find(preset).config, {**TINY, **dotted})


def environment(**more: str) -> dict[str, str]:
    """For another Python that finds this package, one thread each."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def run_python(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env=environment(**more),
        timeout=300,
        check=False,
    )


def without_times(lines: list[dict]) -> list[dict]:
    """Lines of metrics.jsonl but for what a clock says."""
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
