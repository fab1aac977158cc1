"""Named configs: one for each row of the paper's tables, written as what that row differs by.

A preset is `{corpus}-{row}`: the corpus's diff of the default config, then the row's. The defaults are the
paper's AF / AF on text. `{corpus}-{row}-small` adds the sizes of a model that a laptop's CPU trains in minutes
to tens of minutes. Presets of the built-in sets (hmm, chords, pydoc) are small from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from latflow import beyond
from latflow.config import Config, evolve
from latflow.errors import LatflowError

Diff = Mapping[str, Any]


@dataclass(frozen=True)
class Paper:
    """What the paper reports for a row: in bits per character for text, in nats per time step for music."""

    table: str
    nll: float
    reconstruction: float | None = None
    """The paper's "Reconst." contains the length term, about 0.07 bits per character on PTB."""
    kl: float | None = None


@dataclass(frozen=True)
class Preset:
    name: str
    config: Config
    paper: Paper | None
    """The row this preset is; None for the small ones and the built-in sets, which no row of the paper is."""
    about: str


@dataclass(frozen=True)
class Row:
    """A model of the paper's tables, whatever the data."""

    label: str
    """As the tables print it."""
    about: str
    choices: Diff = field(default_factory=dict)
    """On the axes of the model, where they differ from those of AF / AF."""
    settings: Diff = field(default_factory=dict)
    """Sizes and training that the row has of its own (supplement E)."""


BASE = "af-af"
ROWS: Mapping[str, Row] = {
    BASE: Row("AF / AF", "AF in time, AF in hidden"),
    "af-scf": Row("AF / SCF", "AF in time, split coupling in hidden", {"model.prior.hidden": "scf"}),
    "iaf-scf": Row(
        "IAF / SCF",
        "IAF in time, split coupling in hidden: samples all steps at once",
        {"model.prior.time": "iaf", "model.prior.hidden": "scf"},
        {"model.prior.context.dropout": 0.0},
    ),
    "af-only": Row(
        "AF-only",
        "no dynamics in time: the prior of a step knows its position only",
        {"model.prior.time": "none", "model.prior.context": "position", "model.prior.reading": "raw"},
    ),
    "af-af-affine": Row(
        "AF / AF - NLSq",
        "AF / AF without NLSq: affine scalar maps",
        {"model.prior.scalar": "affine"},
    ),
    "af-none-nlsq": Row(
        "AF / AF - AF hidden",
        "AF in time, no dependence across hidden",
        {"model.prior.hidden": "none"},
    ),
    "af-none-affine": Row(
        "AF / AF - AF hidden and NLSq",
        "AF in time, no dependence across hidden, affine",
        {"model.prior.hidden": "none", "model.prior.scalar": "affine"},
    ),
    "lstm": Row(
        "LSTM",
        "LSTM language model with the same T conditioning",
        {"model.kind": "lstm"},
        {
            "train.optimizer": "sgd",
            "train.lr": 20.0,
            "train.batch_size": 15,
            "train.accumulate": 1,
            "train.samples": 1,
            "train.kl_zero": 0.0,
            "train.kl_ramp": 0.0,
        },
    ),
}
"""The rows of Tables 1 to 3."""

TEXT: Diff = {}
MUSIC: Diff = {
    "data.steps_per_beat": 2,
    "train.samples": 1,
    "train.kl_zero": 20.0,
    "train.kl_ramp": 15.0,
    "train.patience": 2,
}
"""A step of the public piano rolls is an eighth note, on JSB a quarter note."""
LONG_PIECES: Diff = {"train.batch_size": 1, "train.accumulate": 8}


@dataclass(frozen=True)
class Corpus:
    """Data of the paper, and what it differs by from the default config (text: batch 15, S = 10, KL weight 0 for 4
    epochs + ramp of 10)."""

    title: str
    diff: Diff


CORPORA: Mapping[str, Corpus] = {
    "ptb": Corpus("Penn Treebank", TEXT),
    "nottingham": Corpus("Nottingham", {**MUSIC, "train.batch_size": 5}),
    "piano-midi": Corpus("Piano-midi", {**MUSIC, **LONG_PIECES}),
    "musedata": Corpus("MuseData", {**MUSIC, **LONG_PIECES}),
    "jsb": Corpus("JSB chorales", {**MUSIC, "data.steps_per_beat": 1, "train.batch_size": 5}),
}
TEXT_CORPUS, *MUSIC_CORPORA = CORPORA

EXTRA: Mapping[tuple[str, str], Diff] = {
    ("ptb", "iaf-scf"): {"model.prior.hidden.layers": 3},
}
"""What a row differs by on one corpus only (supplement E)."""

TABLE_1 = {
    "lstm": (1.41, None, None),
    "af-only": (2.90, 0.15, 2.77),
    "af-af": (1.42, 0.10, 1.37),
    "af-scf": (1.46, 0.10, 1.43),
    "iaf-scf": (1.63, 0.21, 1.55),
}
TABLE_2 = {
    "af-af-affine": (1.50, 0.11, 1.51),
    "af-none-nlsq": (1.57, 0.14, 1.57),
    "af-none-affine": (1.56, 0.29, 1.56),
}
TABLE_3 = {
    "lstm": (3.43, 7.77, 7.23, 8.17),
    "af-af": (2.39, 8.19, 6.92, 6.53),
    "af-scf": (2.56, 8.26, 6.95, 6.64),
    "iaf-scf": (2.54, 8.25, 7.06, 6.59),
}
"""The rows of each table in its order, and its numbers: NLL, reconstruction and KL, or the NLL on each corpus."""
PAPER: Mapping[str, Paper] = {
    **{f"{TEXT_CORPUS}-{row}": Paper("Table 1", *numbers) for row, numbers in TABLE_1.items()},
    **{f"{TEXT_CORPUS}-{row}": Paper("Table 2", *numbers) for row, numbers in TABLE_2.items()},
    **{
        f"{corpus}-{row}": Paper("Table 3", nll)
        for row, numbers in TABLE_3.items()
        for corpus, nll in zip(MUSIC_CORPORA, numbers, strict=True)
    },
}


def _width(units: int, latent: int, network: int) -> Diff:
    """Every size of the model at once."""
    return {
        "model.embedding_size": units,
        "model.latent_size": latent,
        "model.prior.context.units": units,
        "model.prior.hidden.units": network,
        "model.posterior.units": units,
        "model.emission.units": units,
        "model.baseline.units": units,
    }


SMALL_TEXT: Diff = {
    **_width(64, 2, 192),
    "model.posterior.scale": 0.1,
    "model.emission.scale": 0.1,
    "model.posterior.gain": 15.0,
    "model.prior.hidden.layers": 5,
    "model.prior.reading": "layer",
    "model.prior.reading.units": 64,
    "model.prior.context.layers": 1,
    "model.prior.context.units": 128,
    "model.prior.context.dropout": 0.0,
    "model.posterior.layers": 1,
    "model.emission.layers": 1,
    "model.baseline.layers": 1,
    "model.baseline.units": 128,
    "model.baseline.dropout": 0.0,
    "train.batch_size": 8,
    "train.samples": 1,
    "train.lr": 5e-3,
    "train.clip": 1.0,
    "train.epochs": 2,
    "train.kl_steps": (0, 3000),
    "train.lr_decay": 1,
    "train.patience": 1000,
}
"""Two passes over PTB: the LSTM over time is as wide in all models, what surrounds it half as wide. H = 2 learns much
faster than more, if symbols start apart, z stays near and the LSTM reads it through a layer (docs/log.md)."""
SMALL_MUSIC: Diff = {
    **_width(128, 24, 64),
    "model.prior.hidden.layers": 3,
    "train.epochs": 60,
    "train.kl_steps": (800, 600),
}
SMALL_LSTM: Diff = {
    "train.optimizer": "adam",
    "train.lr": 2e-3,
    "train.kl_steps": (0, 0),
}
"""The baseline at small sizes uses Adam as the others do: gradient descent at rate 20 wants the paper's epochs."""

SMALL: Mapping[str, Diff] = {
    "ptb": SMALL_TEXT,
    "nottingham": {**SMALL_MUSIC, "train.epochs": 24, "train.batch_size": 8},
    "piano-midi": {
        **SMALL_MUSIC,
        "data.crop": 200,
        "train.batch_size": 4,
        "train.accumulate": 1,
        "train.epochs": 100,
    },
    "musedata": {
        **SMALL_MUSIC,
        "data.crop": 200,
        "train.batch_size": 8,
        "train.accumulate": 1,
        "train.epochs": 40,
    },
    "jsb": {
        **SMALL_MUSIC,
        **{f"model.{part}.dropout": 0.3 for part in ("prior.context", "posterior", "emission")},
        "train.lr": 2e-3,
        "train.lr_decay": 25,
        "train.patience": 1000,
        "train.kl_steps": (300, 1000),
        "train.ema": 0.99,
    },
}
"""`-small`: width first, and the warm-up in steps, as many as a posterior needs not to collapse. A steep ramp drives
what z knows out of it before the prior has learnt to say it (docs/log.md); measured on JSB, not on the others."""

SMALL_EXTRA: Mapping[tuple[str, str], Diff] = {
    ("ptb", "iaf-scf"): {"train.batch_size": 16, "train.kl_steps": (0, 1500)},
    ("ptb", "af-only"): {"train.clip": 0.25},
    ("ptb", "lstm"): {"train.lr": 1e-2, "train.clip": 0.25},
}
"""IAF's density is serial: a step of twice the sentences costs it little more, half as many steps half the time. With
longer gradients AF-only's scales leave the range of the numbers now and then (docs/log.md)."""

LONG: Diff = {"train.epochs": 14, "train.lr_decay": 14}
LONG_ROWS = ("lstm", BASE)
"""`ptb-lstm-long` and `ptb-af-af-long`: small, seven times the passes, the rate falling over all of them."""

_BUILT_IN: Diff = {
    "model.prior.context.layers": 1,
    "model.posterior.layers": 1,
    "model.emission.layers": 1,
    "model.baseline.layers": 1,
    "model.prior.hidden.layers": 3,
    "model.prior.context.dropout": 0.0,
    "model.baseline.dropout": 0.0,
    "train.samples": 1,
    "train.batch_size": 32,
    "train.lr": 4e-3,
    "train.clip": 1.0,
    "train.patience": 1000,
}
BUILT_IN: Mapping[str, Diff] = {
    "hmm": {
        **_BUILT_IN,
        **_width(64, 8, 32),
        "data.name": "hmm",
        "data.train_size": 16000,
        "train.epochs": 5,
        "train.kl_steps": (250, 750),
        "train.lr_decay": 3,
    },
    "chords": {
        **_BUILT_IN,
        **_width(64, 12, 48),
        "data.name": "chords",
        "train.epochs": 30,
        "train.kl_steps": (150, 250),
        "train.lr_decay": 10,
    },
    "pydoc": {
        **_BUILT_IN,
        **_width(96, 2, 96),
        "data.name": "pydoc",
        "model.posterior.scale": 0.1,
        "model.emission.scale": 0.1,
        "model.posterior.gain": 15.0,
        "model.prior.reading": "layer",
        "model.prior.reading.units": 64,
        "model.prior.hidden.layers": 5,
        "train.lr": 5e-3,
        "train.batch_size": 10,
        "train.epochs": 10,
        "train.kl_steps": (0, 500),
        "train.lr_decay": 4,
    },
}
"""Sets that come with the package: minutes of training at most."""


def _presets() -> dict[str, Preset]:
    found: dict[str, Preset] = {}

    def add(name: str, row: str, diff: Diff, about: str) -> None:
        # The choices come last: they keep what sizes they share with AF / AF's.
        config = evolve(evolve(Config(), diff), ROWS[row].choices)
        found[name] = Preset(name, config, PAPER.get(name), about)

    for corpus, its in CORPORA.items():
        for row in ROWS if corpus == TEXT_CORPUS else TABLE_3:
            about = ROWS[row].about
            paper = {"data.name": corpus, **its.diff, **ROWS[row].settings, **EXTRA.get((corpus, row), {})}
            add(f"{corpus}-{row}", row, paper, about)
            small = {**paper, **SMALL[corpus], **(SMALL_LSTM if row == "lstm" else {})}
            small |= SMALL_EXTRA.get((corpus, row), {})
            add(f"{corpus}-{row}-small", row, small, f"{about}, small")
            if corpus == TEXT_CORPUS and row in LONG_ROWS:
                add(f"{corpus}-{row}-long", row, {**small, **LONG}, f"{about}, small, fourteen passes")
    for corpus, diff in BUILT_IN.items():
        for row in ROWS if corpus != "chords" else TABLE_3:
            built_in = {**ROWS[row].settings, **diff, **(SMALL_LSTM if row == "lstm" else {})}
            add(f"{corpus}-{row}", row, built_in, ROWS[row].about)
    for name, diff, choices, about in beyond.entries():
        found[name] = Preset(name, evolve(evolve(Config(), diff), choices), None, about)
    return found


PRESETS: Mapping[str, Preset] = _presets()


def find(name: str) -> Preset:
    """The preset of that name, or an error with the nearest names."""
    if name in PRESETS:
        return PRESETS[name]
    near = get_close_matches(name, PRESETS, 3)
    hint = f"; near: {', '.join(near)}" if near else ""
    raise LatflowError(f"no preset called {name!r}{hint} (all: latflow presets)")
