"""One tree of frozen dataclasses for a run. Standard library only, so that reading a config is instant."""

from __future__ import annotations

from dataclasses import dataclass


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
