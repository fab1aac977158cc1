"""Data: corpora by name, a user's own files, synthetic sets with a known truth. `load` is the one entry."""

from __future__ import annotations

from latflow.config import DataConfig
from latflow.data.base import Batch, Batches, Corpus, DataSpec, Sequences
from latflow.data.synthetic import draw_corpus
from latflow.errors import LatflowError

__all__ = ["Batch", "Batches", "Corpus", "DataSpec", "Sequences", "load"]


def load(config: DataConfig) -> Corpus:
    """The corpus a config names, ready to batch."""
    if config.name in ("hmm", "chords"):
        return draw_corpus(
            config.name, config.train_size, config.eval_size, config.synthetic_seed, config.smooth_lengths
        )
    raise LatflowError(f"no data called {config.name!r}")
