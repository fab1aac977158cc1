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
