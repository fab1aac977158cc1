"""A model for a user's own data: a codebook flow whose sizes and training follow from how much there is to learn from.

The rules were set on `pydoc`, the chorales and PTB (docs/log.md); every field can be changed on the command line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from latflow import beyond
from latflow.config import Config, DataConfig, evolve
from latflow.data.base import Corpus
from latflow.training.report import passes

TEXT_SIZES = (
    (20_000, 128, 0.3, 0.4, 5e-3),
    (200_000, 256, 0.25, 0.4, 5e-3),
    (2_000_000, 256, 0.2, 0.0, 5e-3),
)
MUSIC_SIZES = ((10_000, 200, 0.4, 0.4, 2e-3), (200_000, 400, 0.3, 0.3, 2e-3))
"""Up to so many training steps: units of the LSTM, dropout, that on its recurrent weights, learning rate. Beyond the
last, LARGEST."""
LARGEST = (500, 0.1, 0.0, 3e-3)
UPDATES = 6_000
"""Steps of the optimizer that small sets are given, in as many passes as that takes; large ones have one or two."""
EPOCHS = 400
"""At most."""
LONGEST_PASS = 30_000
"""Steps a pass has at most: larger sets have larger batches."""


def recommended(data: DataConfig, corpus: Corpus) -> Config:
    """The config for this data."""
    train = corpus.splits["train"]
    steps, music = int(train.lengths.sum()), corpus.spec.kind == "music"
    if music:
        data = replace(data, transpose=data.transpose or 6, crop=data.crop or _crop(int(train.lengths.max())))
    table = MUSIC_SIZES if music else TEXT_SIZES
    which = bisect_right([limit for limit, *_ in table], steps)
    units, dropout, recurrent, lr = LARGEST if which == len(table) else table[which][1:]
    batch = min(32, max(4, len(train) // 100))
    while len(train) // batch > LONGEST_PASS:
        batch *= 2
    per_pass = -(-len(train) // batch)
    epochs = max(1, min(EPOCHS, round(UPDATES / per_pass)))
    changes: dict[str, Any] = {
        **beyond.CODEBOOK,
        "model.prior.context.units": units,
        "model.prior.context.dropout": dropout,
        "model.prior.context.input_dropout": dropout / 2,
        "model.prior.context.recurrent_dropout": recurrent,
        "model.baseline.units": units,
        "model.baseline.dropout": dropout,
        "model.baseline.recurrent_dropout": recurrent,
        "model.position_rank": 8 if not music and corpus.spec.max_T > 512 else None,
        "model.position_cap": 8 if music else None,
        "train.lr": lr,
        "train.clip": 1.0 if music else 0.25,
        "train.batch_size": batch,
        "train.epochs": epochs,
        "train.lr_decay": 0 if music else epochs,
        "train.early_stop": max(5, min(50, epochs // 4)) if epochs > 5 else 0,
        "train.ema": (0.997 if music else 0.99) if per_pass * epochs > 500 else 0.9,
    }
    rows: Mapping[str, Any] = beyond.MUSIC_ROWS if music else beyond.TEXT_ROWS
    if music:
        changes |= {"model.prior.hidden.depth": 1, "model.prior.hidden.units": max(176, 2 * units)}
        # From above: as good, and better at harmonising a melody (docs/given.md).
        changes |= {"model.prior.hidden.dropout": dropout, "model.posterior.notes": "down"}
    return evolve(evolve(replace(Config(), data=data), changes), rows["af-af"])


def _crop(longest: int) -> int:
    """Stretches of long pieces: a gradient from a few hundred steps is as good, and pieces are seen anew each epoch."""
    return 200 if longest > 400 else 0


def described(config: Config, corpus: Corpus) -> str:
    """What is trained on this data, in a line."""
    train, c = corpus.splits["train"], config
    steps = int(train.lengths.sum())
    if c.model.kind == "lstm":
        what = f"the LSTM baseline, {c.model.baseline.units} units, dropout {c.model.baseline.dropout:g}"
    elif c.model.posterior.name != "codebook" or c.model.prior.context.name != "lstm":
        what = "a flow of your own choice"
    else:
        context = c.model.prior.context
        what = f"a codebook flow with an LSTM of {context.units} units, dropout {context.dropout:g}"
    return (
        f"{c.data.name}: {len(train):,} training sequences, {steps:,} {corpus.spec.step_name}s: {what}, batches of "
        f"{c.train.batch_size}, {passes(c.train)} (--print_config shows all, any field is an option)"
    )
