"""Presets beyond the paper: codebook latents, on the paper's corpora and the built-in sets.

`{corpus}-{row}-codebook` is a row with the codebook in the place of the paper's BiLSTMs, `{corpus}-lstm-codebook` the
baseline it is held against: the same LSTM, the same training. Symbols are apart from the first step, so the KL weight
is 1 from there on. `-small` are the sizes of two passes over PTB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Diff = Mapping[str, Any]

CODEBOOK: Diff = {
    "model.latent_size": None,
    "model.embedding_size": 64,
    "model.posterior": "codebook",
    "model.emission": "bayes",
    "model.prior.reading": "symbols",
    "model.prior.scalar": "mixture",
    "model.prior.hidden.layers": 1,
    "model.prior.hidden.skip": True,
    "model.prior.context.layers": 1,
    "model.baseline.layers": 1,
    "model.baseline.unigram": True,
    "train.kl_zero": 0.0,
    "train.kl_ramp": 0.0,
    "train.samples": 1,
    "train.patience": 1000,
}
"""The posterior is a table, the emission Bayes' rule on it, and the LSTM reads z_t as the symbol it expects."""

_LAYERED: Diff = {"model.prior.hidden": "af", "model.prior.hidden.layers": 5}
_COUPLED: Diff = {"model.prior.hidden": "scf", "model.prior.hidden.layers": 4}
_NOISE: Diff = {"model.prior.time": "iaf", "model.prior.reading": "layer"}
"""IAF's context sees eps, in which there are no symbols to read."""

TEXT_ROWS: Mapping[str, Diff] = {
    "lstm": {"model.kind": "lstm"},
    "af-only": {
        "model.prior.time": "none",
        "model.prior.hidden": "codebook",
        "model.prior.context": "position",
        "model.prior.reading": "raw",
    },
    "af-af": {"model.prior.hidden": "codebook", "model.prior.hidden.embedded": True},
    "af-af-mixture": {"model.prior.hidden": "af"},
    "af-scf": _COUPLED,
    "iaf-af": {**_NOISE, "model.prior.hidden": "af"},
    "iaf-scf": {**_NOISE, **_COUPLED},
    "af-af-nlsq": {**_LAYERED, "model.prior.scalar": "nlsq"},
    "af-af-affine": {**_LAYERED, "model.prior.scalar": "affine"},
    "af-none-mixture": {"model.prior.hidden": "none"},
    "af-none-affine": {"model.prior.hidden": "none", "model.prior.scalar": "affine"},
}
"""AF / AF is the mixture of all codes, the triangular map; `-mixture` one layer of free components."""

MUSIC_ROWS: Mapping[str, Diff] = {
    "lstm": {"model.kind": "lstm"},
    "af-af": {"model.prior.scalar.tied": True},
    "af-scf": _COUPLED,
    "iaf-scf": {**_NOISE, **_COUPLED, "model.prior.reading.units": 128},
    "af-none-mixture": {"model.prior.hidden": "none", "model.prior.scalar.tied": True},
}
"""AF / AF is tied to the codebook, two components a note: with an LSTM over time it contains RNN-NADE."""

TITLES: Mapping[str, str] = {
    "lstm": "LSTM with the sizes and the training of the codebook rows",
    "af-only": "no dynamics in time, codebook",
    "af-af": "AF in time, AF in hidden, tied to the codebook",
    "af-af-mixture": "AF in time, AF in hidden, free mixtures, codebook",
    "af-scf": "AF in time, split coupling of mixtures, codebook",
    "iaf-af": "IAF in time, AF in hidden, codebook",
    "iaf-scf": "IAF in time, split coupling of mixtures, codebook",
    "af-af-nlsq": "AF in time, AF in hidden with NLSq, codebook",
    "af-af-affine": "AF in time, AF in hidden, affine, codebook",
    "af-none-mixture": "AF in time, no dependence across hidden, mixtures, codebook",
    "af-none-affine": "AF in time, no dependence across hidden, affine, codebook",
}

LABELS: Mapping[str, str] = {
    "lstm": "LSTM",
    "af-only": "AF-only",
    "af-af": "AF / AF, tied",
    "af-af-mixture": "AF / AF, mixtures",
    "af-scf": "AF / SCF, mixtures",
    "iaf-af": "IAF / AF, mixtures",
    "iaf-scf": "IAF / SCF, mixtures",
    "af-af-nlsq": "AF / AF, NLSq",
    "af-af-affine": "AF / AF, affine",
    "af-none-mixture": "AF / -, mixtures",
    "af-none-affine": "AF / -, affine",
}
"""As the tables print them."""

_PTB: Diff = {
    **CODEBOOK,
    "data.name": "ptb",
    "model.prior.hidden.units": 192,
    "train.clip": 0.25,
}
_MUSIC: Diff = {
    **CODEBOOK,
    "data.steps_per_beat": 2,
    "model.prior.hidden.depth": 1,
    "model.prior.hidden.units": 800,
    "model.prior.hidden.dropout": 0.3,
    "model.prior.context.units": 400,
    "model.prior.context.dropout": 0.3,
    "model.prior.context.input_dropout": 0.1,
    "model.baseline.units": 400,
    "model.baseline.dropout": 0.3,
    "model.position_cap": 8,
    "data.transpose": 6,
    "train.lr": 2e-3,
    "train.clip": 1.0,
    "train.ema": 0.99,
}
CORPORA: Mapping[str, tuple[Diff, Mapping[str, Diff]]] = {
    "ptb": (
        {
            **_PTB,
            "model.position_cap": 32,
            "model.prior.context.units": 500,
            "model.prior.context.dropout": 0.1,
            "model.prior.context.input_dropout": 0.1,
            "model.prior.context.recurrent_dropout": 0.15,
            "model.baseline.units": 500,
            "model.baseline.dropout": 0.1,
            "model.baseline.recurrent_dropout": 0.15,
            "train.batch_size": 16,
            "train.batch_by": "steps",
            "train.products": "bfloat16",
            "train.lr": 6e-3,
            "train.epochs": 14,
            "train.lr_decay": 14,
        },
        TEXT_ROWS,
    ),
    "jsb": (
        {
            **_MUSIC,
            "data.name": "jsb",
            "data.steps_per_beat": 1,
            "model.prior.context.recurrent_dropout": 0.3,
            "model.baseline.recurrent_dropout": 0.3,
            "train.batch_size": 8,
            "train.epochs": 200,
            "train.ema": 0.997,
        },
        MUSIC_ROWS,
    ),
    "nottingham": (
        {
            **_MUSIC,
            "data.name": "nottingham",
            "data.crop": 200,
            "model.prior.hidden.dropout": 0.1,
            "model.prior.context.dropout": 0.1,
            "model.prior.context.input_dropout": 0.0,
            "model.baseline.dropout": 0.1,
            "model.prior.context.recurrent_dropout": 0.1,
            "model.baseline.recurrent_dropout": 0.1,
            "train.batch_size": 8,
            "train.epochs": 50,
            "train.lr_decay": 50,
        },
        MUSIC_ROWS,
    ),
    "piano-midi": (
        {
            **_MUSIC,
            "data.name": "piano-midi",
            "data.crop": 200,
            "model.prior.context.recurrent_dropout": 0.3,
            "model.baseline.recurrent_dropout": 0.3,
            "train.batch_size": 4,
            "train.epochs": 250,
            "train.lr_decay": 250,
        },
        MUSIC_ROWS,
    ),
    "musedata": (
        {
            **_MUSIC,
            "data.name": "musedata",
            "data.crop": 200,
            "model.prior.hidden.dropout": 0.2,
            "model.prior.context.dropout": 0.2,
            "model.prior.context.input_dropout": 0.0,
            "model.baseline.dropout": 0.2,
            "train.batch_size": 4,
            "train.epochs": 120,
            "train.lr_decay": 120,
        },
        MUSIC_ROWS,
    ),
}
PTB_SMALL: Diff = {
    **_PTB,
    "model.prior.context.units": 128,
    "model.prior.context.dropout": 0.0,
    "model.baseline.units": 128,
    "model.baseline.dropout": 0.0,
    "train.batch_size": 8,
    "train.lr": 1e-2,
    "train.epochs": 2,
    "train.lr_decay": 2,
}

_BUILT_IN: Diff = {
    **CODEBOOK,
    "model.prior.context.dropout": 0.0,
    "model.baseline.dropout": 0.0,
    "train.clip": 1.0,
    "train.lr": 5e-3,
}
BUILT_IN: Mapping[str, tuple[Diff, Mapping[str, Diff]]] = {
    "hmm": (
        {
            **_BUILT_IN,
            "data.name": "hmm",
            "data.train_size": 16000,
            "model.prior.hidden.units": 64,
            "model.prior.context.units": 64,
            "model.baseline.units": 64,
            "train.batch_size": 32,
            "train.epochs": 5,
            "train.lr_decay": 5,
        },
        TEXT_ROWS,
    ),
    "pydoc": (
        {
            **_BUILT_IN,
            "data.name": "pydoc",
            "model.prior.hidden.units": 96,
            "model.prior.context.units": 128,
            "model.prior.context.dropout": 0.2,
            "model.baseline.units": 128,
            "model.baseline.dropout": 0.2,
            "train.batch_size": 8,
            "train.epochs": 10,
            "train.lr_decay": 10,
        },
        {**TEXT_ROWS, "af-af": {"model.prior.hidden": "codebook"}},  # few words: its own matrix is better
    ),
    "chords": (
        {
            **_BUILT_IN,
            "data.name": "chords",
            "data.train_size": 100_000,
            "model.prior.hidden.depth": 1,
            "model.prior.hidden.units": 352,
            "model.prior.context.units": 256,
            "model.baseline.units": 256,
            "train.batch_size": 32,
            "train.lr": 3e-3,
            "train.epochs": 4,
            "train.lr_decay": 4,
        },
        MUSIC_ROWS,
    ),
}


def entries() -> Iterator[tuple[str, Diff, Diff, str]]:
    """Name, sizes and training, choices and a line about each preset."""
    for corpus, (diff, rows) in {**CORPORA, **BUILT_IN}.items():
        for row, choices in rows.items():
            yield f"{corpus}-{row}-codebook", diff, choices, TITLES[row]
            if corpus == "ptb":
                yield f"{corpus}-{row}-codebook-small", PTB_SMALL, choices, f"{TITLES[row]}, small"
