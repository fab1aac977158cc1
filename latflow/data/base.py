"""What the rest of the package knows of data: sequences in a compact store, and batches of them.

A corpus is three splits of sequences. A sequence is T symbols, an int64 array (T,), or T steps of music, a
uint8 piano roll (T, 88) whose column k is MIDI note 21 + k. `Batches` groups sequences of similar length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from latflow.data.labels import moved_keys
from latflow.data.spec import LOWEST, NOTES, DataSpec, length_counts, roll_of
from latflow.errors import LatflowError

__all__ = [
    "LOWEST",
    "NOTES",
    "Batch",
    "Batches",
    "Corpus",
    "DataSpec",
    "Sequences",
    "collate",
    "length_counts",
    "roll_of",
]


class Sequences:
    """Many sequences in one flat array plus offsets: one byte for a symbol of a small vocabulary, eleven
    for a step of music.

    `sequences[i]` is an int64 array (T,) or a uint8 roll (T, 88), as `DataSpec.encode` gives it; `sequences[:50]`, or
    any slice, list or array of numbers, is the store of those. `labels` are (n,) indices into `DataSpec.labels`.
    """

    def __init__(
        self,
        flat: np.ndarray,
        lengths: np.ndarray,
        music: bool,
        labels: np.ndarray | None = None,
        *,
        keys: bool = False,
    ) -> None:
        self.flat = flat  # (steps,) unsigned, or (steps, 11) uint8: a step's 88 notes as bits
        self.music = music
        self.lengths = np.asarray(lengths, np.int64)
        self.labels = None if labels is None else np.asarray(labels, np.int64)
        self.keys = keys  # the labels are the 24 keys of `labels.KEYS`, which move with the music
        if self.labels is not None and self.labels.shape != self.lengths.shape:
            raise ValueError(f"{len(self.labels)} labels for {len(self.lengths)} sequences")
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])
        if self._offsets[-1] != len(flat) or (self.lengths < 1).any():
            raise ValueError("every sequence has a step at least, and the lengths add up to the flat array's")

    @classmethod
    def of_symbols(cls, arrays: Iterable[np.ndarray], lengths: Sequence[int], size: int) -> Sequences:
        """From index arrays (T,), taken one at a time so that none need be kept; `size` is the
        vocabulary's.
        """
        flat = np.empty(sum(lengths), np.min_scalar_type(max(size - 1, 0)))
        at = 0
        for array in arrays:
            flat[at : at + len(array)] = array
            at += len(array)
        return cls(flat, np.asarray(lengths, np.int64), music=False)

    @classmethod
    def of_rolls(cls, rolls: Iterable[np.ndarray]) -> Sequences:
        """From rolls (T, 88) of zeros and ones."""
        packed = [np.packbits(roll, axis=1) for roll in rolls]
        flat = np.concatenate(packed) if packed else np.zeros((0, NOTES // 8), np.uint8)
        return cls(flat, np.array([len(part) for part in packed], np.int64), music=True)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, i: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, i: slice | Sequence[int] | np.ndarray) -> Sequences: ...
    def __getitem__(self, i: int | slice | Sequence[int] | np.ndarray) -> np.ndarray | Sequences:
        if isinstance(i, slice):
            return self.select(np.arange(len(self))[i])
        if isinstance(i, (Sequence, np.ndarray)):
            chosen = np.asarray(i) if len(i) else np.zeros(0, np.int64)
            return self.select(np.arange(len(self))[chosen])
        if not -len(self) <= i < len(self):
            raise IndexError(f"sequence {i} of {len(self)}")
        return self.steps(i, 0, int(self.lengths[i]))

    def steps(self, i: int, start: int, stop: int) -> np.ndarray:
        """Steps start..stop-1 of sequence i, without unpacking the others."""
        offset = self._offsets[i % len(self)]
        part = self.flat[offset + start : offset + stop]
        return np.unpackbits(part, axis=1) if self.music else part.astype(np.int64)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    @property
    def nbytes(self) -> int:
        return self.flat.nbytes + self.lengths.nbytes + self._offsets.nbytes

    def sha256(self) -> str:
        """Of all sequences, in their order, and of their labels."""
        found = hashlib.sha256(self.lengths.astype("<i8").tobytes())
        found.update(self.flat.astype(self.flat.dtype.newbyteorder("<"), copy=False).tobytes())
        if self.labels is not None:
            found.update(self.labels.astype("<i8").tobytes())
        return found.hexdigest()

    def counts(self, size: int) -> np.ndarray:
        """(size,) how often each symbol occurs, or in how many steps each note sounds; block by block, since a count of
        one-byte symbols works on eight bytes each.
        """
        found = np.zeros(size, np.int64)
        for start in range(0, len(self.flat), 1 << 18):
            block = self.flat[start : start + (1 << 18)]
            if self.music:
                found += np.unpackbits(block, axis=1).sum(axis=0, dtype=np.int64)
            else:
                found += np.bincount(block, minlength=size)
        return found

    def select(self, keep: np.ndarray) -> Sequences:
        """The sequences whose numbers are in `keep`, in that order."""
        parts = [self.flat[self._offsets[i] : self._offsets[i + 1]] for i in keep]
        labels = None if self.labels is None else self.labels[keep]
        flat = np.concatenate(parts) if parts else self.flat[:0]
        return Sequences(flat, self.lengths[keep], self.music, labels, keys=self.keys)

    def mapped(self, table: np.ndarray) -> Sequences:
        """Every symbol v replaced by table[v]."""
        small = table.astype(np.min_scalar_type(int(table.max())))
        return Sequences(small[self.flat], self.lengths, self.music, self.labels)

    def span(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each of these sequences begins and ends in the flat array."""
        return self._offsets[index], self._offsets[index + 1]

    def labelled(self, labels: np.ndarray, keys: bool = False) -> Sequences:
        """The same sequences with a label each."""
        return Sequences(self.flat, self.lengths, self.music, labels, keys=keys)


@dataclass(frozen=True)
class Corpus:
    """Three splits, the spec they share, and the truth where it is known."""

    name: str
    spec: DataSpec
    splits: Mapping[str, Sequences]
    """ "train", "valid" and "test"."""
    origin: str
    """Where it came from, in one line."""
    truth: Mapping[str, np.ndarray] | None = None
    """Per split, for each sequence the exact -log p(x_i | T_i) in nats; for synthetic sets only."""
    files: tuple[str, ...] = field(default=())
    """The files that were read."""
    left_out: tuple[str, ...] = field(default=())
    """Files that were not, each with the reason."""

    def contents(self) -> dict[str, str]:
        """A hash of the sequences of each split, in their order."""
        return {name: sequences.sha256() for name, sequences in self.splits.items()}


@dataclass(frozen=True)
class Batch:
    """Padded sequences: this process's share of one global batch."""

    x: Tensor
    """(b, t) int64, or (b, t, 88) float32; padding is 0."""
    lengths: Tensor
    """(b,) int64, 1 or more."""
    index: Tensor
    """(b,) int64: which sequence of the split."""
    weight: Tensor
    """(b,) float32: 1, or 0 for a filler that keeps a process busy whose share of a small batch is empty. Over all
    processes they add up to the sequences of the global batch."""

    label: Tensor | None = field(default=None, kw_only=True)
    """(b,) int64 into `DataSpec.labels`; None if sequences have none."""
    shift: Tensor | None = field(default=None, kw_only=True)
    """(b,) int64: semitones that each piece was moved up; None for symbols."""
    key: Tensor | None = field(default=None, kw_only=True)
    """(b,) int64, 0 or more: what the random numbers of each sequence are drawn by; None: torch's generator."""

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {
            f.name: value.to(device, non_blocking=True)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)


def collate(items: Sequence[Any], spec: DataSpec, labels: Sequence[str] | None = None) -> Batch:
    """Sequences as one batch: arrays as `DataSpec.encode` gives them or what it takes, numbered as they come, music as
    it stands (shift 0), with the names of their labels where they have them.
    """
    if not len(items):
        raise ValueError("no sequences to put into a batch")
    arrays = [x if isinstance(x, np.ndarray) else spec.encode(x) for x in items]
    label = None if labels is None else np.array([spec.label_index(name) for name in labels], np.int64)
    return _batch(arrays, np.arange(len(arrays)), 1.0, label)


def _batch(
    arrays: Sequence[np.ndarray],
    index: np.ndarray,
    weight: float,
    label: np.ndarray | None = None,
    shift: np.ndarray | None = None,
) -> Batch:
    """Arrays (T,) or (T, 88) padded with 0 to the longest."""
    lengths = np.array([len(x) for x in arrays], np.int64)
    music = arrays[0].ndim == 2
    x = np.zeros((len(arrays), lengths.max(), *arrays[0].shape[1:]), np.float32 if music else np.int64)
    for row, array in zip(x, arrays, strict=True):
        row[: len(array)] = array
    if music and shift is None:
        shift = np.zeros(len(arrays), np.int64)
    return Batch(
        torch.from_numpy(x),
        torch.from_numpy(lengths),
        torch.from_numpy(index.copy()),
        torch.full((len(arrays),), weight),
        label=None if label is None else torch.from_numpy(label),
        shift=None if shift is None else torch.from_numpy(shift),
    )


UNKNOWN_STREAM = 1
"""Tells these draws apart from the others of an epoch, whose keys are (seed, epoch) and (seed, epoch, index)."""


class Batches:
    """Batches of similar lengths, in an order that is a function of (seed, epoch) alone.

    Nothing is carried from one batch to the next, so `epoch(e, start=s)` resumes exactly in the middle of
    an epoch. The global batches do not depend on `world` either: process `rank` takes every world-th
    sequence of each, so that gradients summed over processes are those of one process on the whole batch,
    and a run may resume with another number of processes. A process whose share is empty gets a filler of
    weight 0.

    With `shuffle`, sequences are ordered by length x (1 + u / 10), u uniform, anew in each epoch:
    neighbours have nearly the same length yet are not always the same; cut every `batch_size`, or with `even` where
    as many batches have about the same number of steps, T + 1 for each sequence; the batches are shuffled. Without
    `shuffle` everything comes sorted by length.

    transpose, crop: music only. A piece longer than `crop` steps is cut to a random stretch of `crop`; then
    all its notes move by the same number of semitones: none in a share `transpose_zero` of the draws, else one of
    those from -transpose to transpose that keep it on the keyboard, any but 0 with the same chance (and none if there
    is no such). `Batch.shift` says which, and a label that is a key moves along. All depends on (seed, epoch, index)
    alone. A crop's length has support in p(T), whose histogram for music starts from one at every length up to
    1.25 x the longest; p(T) itself still counts whole pieces, which is what a sample should be.

    unknown: the index of the symbol for what training never saw, text and tokens only. It stands in the place of each
    symbol that occurs once, with probability 1/2, and of any symbol at random as often as it takes to come to
    1 / (N + 1) of the N steps; anew in each epoch, by (seed, epoch) alone. docs/data.md has the reasons.
    """

    def __init__(
        self,
        sequences: Sequences,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        even: bool = False,
        rank: int = 0,
        world: int = 1,
        transpose: int = 0,
        transpose_zero: float = 0.3,
        crop: int = 0,
        unknown: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise LatflowError(f"batch size {batch_size}; it must be 1 or more")
        if seed < 0 or not 0 <= rank < world:
            raise ValueError(f"seed {seed}, rank {rank}, world {world}: need seed >= 0 and 0 <= rank < world")
        if transpose < 0 or crop < 0 or (not sequences.music and (transpose or crop)):
            raise LatflowError("transpose and crop are 0 or more, and for music only")
        if not 0 <= transpose_zero <= 1:
            raise LatflowError(f"transpose_zero is {transpose_zero}; it is a share, from 0 to 1")
        if unknown is not None and sequences.music:
            raise LatflowError("a symbol for unknown is for text and tokens; music has no symbols")
        self.sequences = sequences
        self.batch_size = batch_size
        self.seed, self.shuffle, self.even = seed, shuffle, even
        self.rank, self.world = rank, world
        self.transpose, self.transpose_zero, self.crop = transpose, transpose_zero, crop
        self._lengths = np.minimum(sequences.lengths, crop) if crop else sequences.lengths
        self.unknown = unknown
        self._once = np.zeros(0, np.int64)  # where in the flat array the symbols stand that occur once
        self._anywhere = 0.0  # the chance of any other step to be replaced
        if unknown is not None:
            once = sequences.counts(unknown + 1) == 1
            self._once = np.flatnonzero(once[sequences.flat]) if once.any() else self._once
            N = len(sequences.flat)
            self._anywhere = max(0.0, N / (N + 1) - len(self._once) / 2) / N

    def __len__(self) -> int:
        """Global batches in an epoch."""
        return -(-len(self.sequences) // self.batch_size)

    def _begins(self, order: np.ndarray) -> np.ndarray:
        """Where in the order the batches begin."""
        if not self.even:
            return np.arange(0, len(order), self.batch_size)
        number, ends = np.arange(len(self)), np.cumsum(self._lengths[order] + 1)
        begins = np.searchsorted(ends, number * (ends[-1] / len(self)))
        # However long a sequence is, each batch has one at least.
        begins = number + np.maximum.accumulate(begins - number)
        return np.minimum(begins, len(order) - len(self) + number)

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The global batches of an epoch: sequence numbers, the same for every process."""
        keys = self._lengths.astype(np.float64)
        rng = np.random.default_rng([self.seed, epoch])
        if self.shuffle:
            keys *= 1 + rng.random(len(keys)) / 10
        order = np.argsort(keys, kind="stable")
        begins = self._begins(order)
        batches = [order[i:j] for i, j in pairwise([*begins, len(order)])]
        return [batches[i] for i in rng.permutation(len(batches))] if self.shuffle else batches

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This process's share of the global batches start, start + 1, ... of an epoch."""
        replaced = self._replaced(epoch)
        for batch in self.plan(epoch)[start:]:
            mine = batch[self.rank :: self.world]
            weight = 1.0 if len(mine) else 0.0
            yield self._collate(mine if len(mine) else batch[:1], weight, epoch, replaced)

    def _replaced(self, epoch: int) -> np.ndarray:
        """Where in the flat array the symbol for unknown stands in this epoch, in order."""
        if self.unknown is None:
            return self._once
        rng = np.random.default_rng([self.seed, epoch, 0, UNKNOWN_STREAM])
        chosen = self._once[rng.random(len(self._once)) < 0.5]
        N = len(self.sequences.flat)
        return np.union1d(chosen, rng.integers(N, size=rng.binomial(N, self._anywhere)))

    def _collate(self, index: np.ndarray, weight: float, epoch: int, replaced: np.ndarray) -> Batch:
        labels = self.sequences.labels
        label = None if labels is None else labels[index]
        if not (self.transpose or self.crop):
            arrays = [self.sequences[i] for i in index.tolist()]
            if self.unknown is not None:
                begin, end = self.sequences.span(index)
                parts = np.searchsorted(replaced, np.stack([begin, end], axis=1)).tolist()
                for array, offset, (first, last) in zip(arrays, begin, parts, strict=True):
                    array[replaced[first:last] - offset] = self.unknown
            return _batch(arrays, index, weight, label)
        varied = [self._varied(i, int(self._lengths[i]), epoch) for i in index.tolist()]
        shift = np.array([shift for _, shift in varied], np.int64)
        if label is not None and self.sequences.keys:
            label = moved_keys(label, shift)
        return _batch([roll for roll, _ in varied], index, weight, label, shift)

    def _varied(self, i: int, length: int, epoch: int) -> tuple[np.ndarray, int]:
        """Piece i, cropped to `length` and transposed, and by how much."""
        rng = np.random.default_rng([self.seed, epoch, i])
        start = int(rng.integers(self.sequences.lengths[i] - length + 1))
        roll = self.sequences.steps(i, start, start + length)
        used = np.flatnonzero(roll.any(axis=0))
        if not self.transpose or not len(used):
            return roll, 0
        down, up = min(self.transpose, int(used[0])), min(self.transpose, NOTES - 1 - int(used[-1]))
        if rng.random() < self.transpose_zero or not down + up:
            return roll, 0
        drawn = int(rng.integers(down + up)) - down
        shift = drawn + (drawn >= 0)  # -down .. -1 and 1 .. up
        return np.roll(roll, shift, axis=1), shift
