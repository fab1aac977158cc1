"""A user's own data: which files make which split, and how one heap of sequences is split three ways."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from latflow.config import DataConfig
from latflow.data.base import Corpus, DataSpec, Sequences, length_counts
from latflow.data.files import list_files, readable
from latflow.data.spec import UNKNOWN
from latflow.errors import LatflowError, LatflowWarning

SPLITS = ("train", "valid", "test")
LONGEST = 20_000
"""A longer sequence than this is taken for a mistake (a file without line ends) unless max_length is set."""


def split_files(path: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """The files behind a user's path: {"train": ..., "valid": ..., "test": ...}, or {"all": ...} to be split.

    A file stands for itself. A folder with train.SUFFIX, valid.SUFFIX and test.SUFFIX, or with folders of
    these names, says itself what is what; in any other folder all files that end so are taken together.
    """
    with readable(path):
        if not path.exists():
            raise LatflowError(f"{path}: no such file or folder")
        if not path.is_dir():
            return {"all": [path]}
        named: dict[str, list[Path]] = {}
        for split in SPLITS:
            candidates = [path / f"{split}{suffix}" for suffix in suffixes]
            named[split] = [file for file in candidates if file.is_file()][:1]
            if (path / split).is_dir():
                named[split] += list_files(path / split, suffixes)
    if any(named.values()):
        for split, files in named.items():
            if not files:
                others = " and ".join(other for other in SPLITS if named[other])
                raise LatflowError(f"{path}: there is {others} but no {split}; give all three or none")
        return named
    files = list_files(path, suffixes)
    if not files:
        raise LatflowError(f"{path}: no files ending in {' or '.join(suffixes)}")
    return {"all": files}


def check_fractions(config: DataConfig) -> None:
    """The shares held out must leave something to train on."""
    valid, test = config.valid_fraction, config.test_fraction
    if not (0 < valid < 1 and 0 < test < 1 and valid + test < 1):
        raise LatflowError(
            f"valid_fraction {valid} and test_fraction {test} must lie between 0 and 1, and so must their sum"
        )
    if config.split_seed < 0:
        raise LatflowError(f"split_seed is {config.split_seed}; it must be 0 or more")


def seeded_split(lengths: np.ndarray, config: DataConfig, smooth: bool, name: str) -> dict[str, np.ndarray]:
    """Sequence numbers of train, valid and test: a random split whose test has no length that p(T) rules out.

    A test sequence of a length without support (with `smooth`: longer than 1.25 x all others) goes to training; if
    none is left to test, one whose length has it comes from there.
    """
    check_fractions(config)
    if len(lengths) < 3:
        raise LatflowError(f"{name}: {len(lengths)} sequences; train, valid and test need one each at least")
    order = np.random.default_rng(config.split_seed).permutation(len(lengths))
    n_test = max(1, round(config.test_fraction * len(order)))
    n_valid = max(1, min(round(config.valid_fraction * len(order)), len(order) - n_test - 1))
    n_test = min(n_test, len(order) - n_valid - 1)
    test, valid, train = np.split(order, [n_test, n_test + n_valid])

    def supported(numbers: np.ndarray, by: np.ndarray) -> np.ndarray:
        counts = np.array(length_counts([lengths[by]], smooth))
        return lengths[numbers] < len(counts) if smooth else np.isin(lengths[numbers], lengths[by])

    stray = test[~supported(test, np.concatenate([train, valid]))]
    test, train = np.setdiff1d(test, stray), np.concatenate([train, stray])
    for candidate in np.sort(train):
        if len(test) or len(train) < 2:
            break
        rest = train[train != candidate]
        if supported(np.array([candidate]), np.concatenate([rest, valid]))[0]:
            test, train = np.array([candidate]), rest
    if not len(test):
        raise LatflowError(
            f"{name}: no two sequences have the same length, so none can be tested; set smooth_lengths"
        )
    return {"train": np.sort(train), "valid": np.sort(valid), "test": np.sort(test)}


def keep_lengths(lengths: Sequence[int] | np.ndarray, config: DataConfig, where: str) -> np.ndarray:
    """Which sequences are short enough for max_length; those left out are counted in a warning."""
    limit = config.max_length
    given = np.asarray(lengths, np.int64)
    keep = given <= limit if limit else np.ones(len(given), bool)
    if not keep.all():
        warnings.warn(
            f"{where}: {(~keep).sum()} of {len(keep)} sequences, longer than max_length {limit}, left out",
            LatflowWarning,
            stacklevel=2,
        )
    return keep


def short_enough(name: str, parts: dict[str, Sequences], config: DataConfig) -> dict[str, Sequences]:
    """The sequences of each split that max_length allows."""
    kept = {}
    for part, sequences in parts.items():
        keep = keep_lengths(sequences.lengths, config, f"{name}, {part}")
        kept[part] = sequences if keep.all() else sequences.select(np.flatnonzero(keep))
    for part, sequences in kept.items():
        if not len(sequences):
            raise LatflowError(
                f"{name}: no sequence of {part} has max_length {config.max_length} or fewer steps"
            )
    return kept


def count_lengths(
    name: str, parts: dict[str, Sequences], smooth: bool
) -> tuple[dict[str, Sequences], tuple[int, ...]]:
    """The counts of p(T), from train and valid, and the splits without test sequences that it rules out."""
    counts = length_counts([parts["train"].lengths, parts["valid"].lengths], smooth)
    test = parts["test"]
    allowed = np.array([length < len(counts) and counts[length] > 0 for length in test.lengths])
    if allowed.all():
        return parts, counts
    outside = np.unique(test.lengths[~allowed]).tolist()
    lengths = ", ".join(map(str, outside[:5])) + " ..." * (len(outside) > 5)
    warnings.warn(
        f"{name}: {(~allowed).sum()} of {len(test)} test sequences left out: p(T), counted on train and "
        f"valid, gives no probability to their lengths ({lengths})",
        LatflowWarning,
        stacklevel=2,
    )
    if not allowed.any():
        raise LatflowError(f"{name}: no test sequence has a length that occurs in train or valid")
    return {**parts, "test": test.select(np.flatnonzero(allowed))}, counts


def assemble(
    config: DataConfig,
    kind: str,
    parts: dict[str, Sequences],
    symbols: tuple[str | int, ...],
    files: dict[str, list[Path]],
    labels: tuple[str, ...] = (),
) -> Corpus:
    """A corpus from sequences that come as train, valid, test, or as "all" to be split here. Their labels, if they have
    any, are indices into `labels`.
    """
    name = config.name
    smooth = True if config.smooth_lengths is None else config.smooth_lengths
    for part, sequences in parts.items():
        if not len(sequences):
            raise LatflowError(f"{files[part][0]}: no sequence in it" + f" for {part}" * (part != "all"))
    origin = "split as the files are named"
    if "all" in parts:
        heap = parts["all"]
        numbers = seeded_split(heap.lengths, config, smooth, name)
        if heap.labels is not None:
            numbers = _labels_trained(numbers, heap.labels, name)
        parts = {k: heap.select(v) for k, v in numbers.items()}
        origin = f"split at random, seed {config.split_seed}"
    parts, counts = count_lengths(name, parts, smooth)
    parts, labels = _labels_seen(name, parts, labels)
    unknown = kind != "music" and config.unknown is not False
    if unknown:
        parts, symbols = _symbols_trained(name, kind, parts, symbols)
    listed = tuple(str(file) for group in files.values() for file in group)
    origin = f"{len(listed)} file{'s' * (len(listed) > 1)}, {origin}"
    spec = DataSpec(kind, symbols, counts, labels=labels, unknown=unknown)
    return Corpus(name, spec, parts, origin, files=listed)


def _labels_trained(numbers: dict[str, np.ndarray], labels: np.ndarray, name: str) -> dict[str, np.ndarray]:
    """A random split in which a test sequence with a label that no other part has is trained on instead."""
    train, valid, test = (numbers[part] for part in SPLITS)
    stray = ~np.isin(labels[test], labels[np.concatenate([train, valid])])
    if stray.all():
        raise LatflowError(
            f"{name}: no label occurs both in test and in train or valid, so none can be tested"
        )
    return {"train": np.sort(np.append(train, test[stray])), "valid": valid, "test": test[~stray]}


def _labels_seen(
    name: str, parts: dict[str, Sequences], labels: tuple[str, ...]
) -> tuple[dict[str, Sequences], tuple[str, ...]]:
    """Labels numbered anew by those that train and valid have; one that only the test has cannot be known."""
    found = {part: sequences.labels for part, sequences in parts.items() if sequences.labels is not None}
    if not found:
        return parts, ()
    seen = np.unique(np.concatenate([found["train"], found["valid"]]))
    strange = np.setdiff1d(found["test"], seen)
    if len(strange):
        raise LatflowError(
            f"{name}: test has sequences labelled {labels[strange[0]]!r}, and neither train nor valid has any; "
            "give train some, or take them out of the test"
        )
    return (
        {part: sequences.labelled(np.searchsorted(seen, found[part])) for part, sequences in parts.items()},
        tuple(labels[i] for i in seen),
    )


def _symbols_trained(
    name: str, kind: str, parts: dict[str, Sequences], symbols: tuple[str | int, ...]
) -> tuple[dict[str, Sequences], tuple[str | int, ...]]:
    """The symbols of the training split and the one that stands for all others, last."""
    mark = UNKNOWN[kind]
    if mark in symbols:
        raise LatflowError(
            f"{name}: {mark!r} occurs in it, the symbol for what training never saw; replace it, or turn unknown off"
        )
    known = np.flatnonzero(parts["train"].counts(len(symbols)))
    table = np.full(len(symbols), len(known))
    table[known] = np.arange(len(known))
    return {part: x.mapped(table) for part, x in parts.items()}, (*(symbols[i] for i in known), mark)
