"""What a corpus is like, in numbers."""

from __future__ import annotations

import math
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from latflow.config import DataConfig
from latflow.data import fetch
from latflow.data.base import Batches, Corpus, Sequences

CONVENTION = "summed over sequences, divided by the sum of T + 1 (the paper's convention)"


def describe(corpus: Corpus) -> dict[str, Any]:
    """Sequences, steps, lengths, vocabulary, notes per step, the cost of p(T), and the truth where it is
    known.

    The cost of p(T) on a split is - sum_i log p(T_i) / sum_i (T_i + 1), in bits for text and tokens, in
    nats for music: what the lengths alone add to a result in the paper's convention. The truth is
    - sum_i [log p(x_i | T_i) + log p(T_i)] / sum_i (T_i + 1), in the same unit, as `latflow evaluate` prints it:
    the least that any model can come to, but for chance.
    """
    spec = corpus.spec
    nats = math.log(2) if spec.unit == "bits" else 1.0
    counts = np.array(spec.length_counts)
    splits = {}
    for name, sequences in corpus.splits.items():
        lengths = sequences.lengths
        row: dict[str, Any] = {
            "sequences": len(sequences),
            "steps": int(lengths.sum()),
            "shortest": int(lengths.min()),
            "mean": float(lengths.mean()),
            "longest": int(lengths.max()),
        }
        if spec.kind == "music":
            row |= _notes(sequences)
        if spec.unknown_index is not None:
            row["unknown"] = int(sequences.counts(spec.size)[spec.unknown_index])
        steps = (lengths + 1).sum()
        row["length_cost"] = None  # where a length has no probability, there is no number
        if lengths.max() <= spec.max_T and counts[lengths].all():
            row["length_cost"] = float(-np.log(counts[lengths] / counts.sum()).sum() / steps / nats)
        if corpus.truth is not None:
            cost = row["length_cost"]
            row["truth"] = None if cost is None else cost + float(corpus.truth[name].sum() / steps / nats)
        splits[name] = row
    return {
        "name": corpus.name,
        "origin": corpus.origin,
        "kind": spec.kind,
        "size": spec.size,
        "symbols": list(spec.symbols),
        "max_T": spec.max_T,
        "unit": f"{spec.unit} per {spec.step_name}",
        "convention": CONVENTION,
        "stored_bytes": sum(part.nbytes for part in corpus.splits.values()),
        "left_out": list(corpus.left_out),
        "labels": {name: _labels(sequences, spec.labels) for name, sequences in corpus.splits.items()},
        "splits": splits,
    }


def _labels(sequences: Sequences, names: tuple[str, ...]) -> dict[str, int]:
    """How many sequences have each label."""
    if sequences.labels is None:
        return {}
    return dict(zip(names, np.bincount(sequences.labels, minlength=len(names)).tolist(), strict=True))


def _notes(sequences: Sequences) -> dict[str, Any]:
    """Notes per step, the share of silent steps, and the range of MIDI notes, from the packed bits."""
    sounding = np.zeros(88, np.int64)
    silent = 0
    for roll in sequences:
        sounding += roll.sum(axis=0, dtype=np.int64)
        silent += int((~roll.any(axis=1)).sum())
    used = np.flatnonzero(sounding) + 21
    steps = int(sequences.lengths.sum())
    return {
        "notes_per_step": float(sounding.sum() / steps),
        "silent": silent / steps,
        "lowest_note": int(used[0]) if len(used) else None,
        "highest_note": int(used[-1]) if len(used) else None,
    }


def measure(config: DataConfig, batch_size: int = 15) -> dict[str, Any]:
    """How long a corpus takes to load and to go through once in batches, and the memory it needs, beside
    its own size.

    `data_bytes` is the size of its files, unpacked; `peak_bytes` the most that was allocated at once while
    loading (by tracemalloc, in a second load, since that slows it); `stored_bytes` what stays.
    """
    from latflow.data import load

    started = time.perf_counter()
    corpus = load(config)
    loaded = time.perf_counter()
    batches = Batches(corpus.splits["train"], batch_size)
    padded = sum(batch.x.shape[0] * batch.x.shape[1] for batch in batches.epoch(0))
    done = time.perf_counter()
    tracemalloc.start()
    try:
        stored = sum(part.nbytes for part in load(config).splits.values())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = sum(_unpacked_size(Path(file)) for file in corpus.files)
    return {
        "name": corpus.name,
        "load_seconds": loaded - started,
        "batch_seconds": done - loaded,
        "batch_size": batch_size,
        "batches": len(batches),
        "padding": 1 - float(corpus.splits["train"].lengths.sum()) / padded,
        "data_bytes": size,
        "stored_bytes": stored,
        "peak_bytes": peak,
        "peak_ratio": peak / size if size else None,
    }


def _unpacked_size(path: Path) -> int:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    if path.suffix != ".gz":
        return path.stat().st_size
    return int.from_bytes(path.read_bytes()[-4:], "little")  # gzip ends with the size of what it holds


def available(data_dir: str | None) -> list[str]:
    """The corpora to measure: those that lie on this machine, and the built-in ones."""
    return [name for name in fetch.CORPORA if fetch.find(name, data_dir, verify=False)] + [
        "pydoc",
        "hmm",
        "chords",
    ]
