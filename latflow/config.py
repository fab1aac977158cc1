"""One tree of frozen dataclasses for a run. Standard library only, so that reading a config is instant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class DataConfig:
    """Which sequences, and how they are cut and varied."""

    name: str = "hmm"
    """A corpus (`latflow data list`), or a user's own: text:PATH, midi:DIR, tokens:FILE."""
    data_dir: str | None = None
    """Where the corpora lie; otherwise $LATFLOW_DATA, then the cache folder, then a download."""
    max_length: int | None = None
    """Leave out longer sequences; unset: 288 for ptb, and an error beyond 20000 in a user's own."""
    chunk: int = 0
    """text: cut every N characters, line ends included; 0: one sequence per line."""
    valid_fraction: float = 0.1
    """Share of a user's own sequences held out for validation, unless files are named train, valid, test."""
    test_fraction: float = 0.1
    """Share of a user's own sequences held out for the test."""
    split_seed: int = 0
    """Draws that split."""
    smooth_lengths: bool | None = None
    """Add one to p(T) at every length up to int(1.25 x longest); unset: for music and a user's own data."""
    steps_per_beat: int = 4
    """midi: time steps in a quarter note, whatever the tempo."""
    steps_per_second: float | None = None
    """midi: a grid in seconds instead of beats; tempo changes then count."""
    transpose: int = 0
    """music, training only: shift each piece at random by up to this many semitones."""
    crop: int = 0
    """music, training only: a random stretch of this many steps of each longer piece; 0: whole pieces."""
    train_size: int = 0
    """hmm, chords: sequences to draw for training; 0: the set's own number."""
    eval_size: int = 0
    """hmm, chords: sequences to draw for validation, and as many for the test; 0: the set's own number."""
    synthetic_seed: int = 0
    """hmm, chords: draws the sequences (the language itself is fixed)."""


@dataclass(frozen=True)
class PriorConfig:
    """p(z | T): a point on three axes, time / hidden / scalar, and its sizes (paper, section 4.3)."""

    time: Literal["af", "iaf", "none"] = "af"
    """What the context of step t sees: z_<t, eps_<t, or its position alone."""
    hidden: Literal["af", "scf", "none"] = "af"
    """Across the H dimensions of a step: autoregressive, split coupling, or no dependence."""
    scalar: Literal["nlsq", "affine"] = "nlsq"
    """The invertible scalar map inside."""
    layers: int = 5
    """J, layers of the hidden flow."""
    network_layers: int = 2
    """Hidden layers of the network in each layer of the hidden flow."""
    network_units: int = 100
    """Their units."""
    lstm_layers: int = 2
    """Layers of the LSTM over time."""
    lstm_units: int = 500
    """Its units, and the size of the context."""
    dropout: float = 0.2
    """On that LSTM, between its layers and on its output."""
    alpha: float = 0.95
    """NLSq's bound on the perturbation, below 1 (the authors' code: effectively 0.9675)."""
    raw_scale: tuple[float, float, float] = (0.4, 0.3, 0.4)
    """Factors on the raw b', c', d' from the network, as in the authors' code; the affine map uses the first."""


@dataclass(frozen=True)
class LSTMConfig:
    """An LSTM of the model."""

    layers: int = 2
    units: int = 500
    dropout: float = 0.0
    """Between the layers and on the output."""


@dataclass(frozen=True)
class ModelConfig:
    """The model: latent flow or baseline, with the paper's sizes as defaults (supplement E)."""

    kind: Literal["latent", "lstm"] = "latent"
    """The latent flow, or the LSTM language model with the same T conditioning."""
    latent_size: int = 50
    """H, the size of z_t."""
    embedding_size: int = 500
    """Of the symbols; shared between the posterior's input and the emission's output if tied."""
    tie_embedding: bool = True
    """Use the input embedding as the output matrix (weight tying)."""
    position_rank: int | None = None
    """Factored position embedding of this rank, for very long sequences; unset: a full row per position."""
    prior: PriorConfig = field(default_factory=PriorConfig)
    posterior: LSTMConfig = field(default_factory=LSTMConfig)
    emission: LSTMConfig = field(default_factory=LSTMConfig)
    baseline: LSTMConfig = field(default_factory=lambda: LSTMConfig(dropout=0.1))
