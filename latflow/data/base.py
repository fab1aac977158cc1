"""What the rest of the package knows of data: a spec, sequences in a compact store, and batches of them.

A corpus is three splits of sequences. A sequence is T symbols, an int64 array (T,), or T steps of music, a
uint8 piano roll (T, 88) whose column k is MIDI note 21 + k. `Batches` groups sequences of similar length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latflow.errors import LatflowError

NOTES = 88
LOWEST = 21
"""A piano's keys: MIDI notes 21 (A0) to 108 (C8)."""

_STEP_NAMES = {"text": "character", "tokens": "token", "music": "time step"}


@dataclass(frozen=True)
class DataSpec:
    """All that a model, a saved run, the scorer and the sampler need to know of the data."""

    kind: str
    """"text", "tokens" or "music"."""
    symbols: tuple[str | int, ...]
    """The vocabulary in index order; () for music."""
    length_counts: tuple[int, ...]
    """The histogram behind p(T): length_counts[T] for T = 0 .. max_T."""

    def __post_init__(self) -> None:
        if self.kind not in _STEP_NAMES:
            raise LatflowError(f"data spec: kind is {self.kind!r}; accepted: text, tokens, music")
        if self.kind == "music" and self.symbols:
            raise LatflowError("data spec: music has no symbols, its steps are 88 notes")
        if self.kind != "music" and not self.symbols:
            raise LatflowError(f"data spec: {self.kind} without symbols")
        for symbol in self.symbols:
            if not _is_symbol(symbol, self.kind):
                wanted = "one character" if self.kind == "text" else "a whole number or a string"
                raise LatflowError(f"data spec: symbol {symbol!r} is not {wanted}")
        if len(set(self.symbols)) != len(self.symbols):
            raise LatflowError("data spec: a symbol occurs twice")
        counts = self.length_counts
        if not all(type(count) is int and 0 <= count < 2**53 for count in counts):
            raise LatflowError("data spec: length_counts must be whole numbers, 0 or more and below 2^53")
        if len(counts) < 2 or counts[0] != 0 or counts[-1] == 0:
            raise LatflowError(
                "data spec: length_counts must start with 0 for T = 0 and end at the longest length"
            )

    @property
    def size(self) -> int:
        """V, the number of symbols, or 88."""
        return NOTES if self.kind == "music" else len(self.symbols)

    @property
    def emission(self) -> str:
        """ "categorical" over the symbols, or "bernoulli", one for each note."""
        return "bernoulli" if self.kind == "music" else "categorical"

    @property
    def max_T(self) -> int:
        """The longest length that p(T) allows."""
        return len(self.length_counts) - 1

    @property
    def unit(self) -> str:
        """What results are printed in: "bits" for text and tokens, "nats" for music."""
        return "nats" if self.kind == "music" else "bits"

    @property
    def step_name(self) -> str:
        """What one step is called: "character", "token" or "time step"."""
        return _STEP_NAMES[self.kind]

    @cached_property
    def _index(self) -> dict[str | int, int]:
        return {symbol: i for i, symbol in enumerate(self.symbols)}

    def encode(self, sequence: str | Sequence[Any] | np.ndarray) -> np.ndarray:
        """A string, a list of tokens, or music (a list of MIDI notes per step, or a roll) as an array.

        (T,) int64 indices into `symbols`, or a (T, 88) uint8 roll.
        """
        if self.kind == "music":
            return roll_of(sequence)
        for token in () if isinstance(sequence, str) else sequence:
            if isinstance(token, (bool, float)):  # True == 1 == 1.0 would pass as the token 1
                raise LatflowError(f"{token!r} is no token; a token is a whole number or a string")
        try:
            return np.fromiter(map(self._index.__getitem__, sequence), np.int64, len(sequence))
        except (KeyError, TypeError):
            at, unknown = next((i, s) for i, s in enumerate(sequence) if s not in self.symbols)
            raise LatflowError(
                f"{self.step_name} {unknown!r} at position {at + 1} is not among the {self.size} of this data"
            ) from None

    def decode(self, array: np.ndarray | Tensor) -> Any:
        """The inverse of `encode`: a string, a list of tokens, or a list of sorted MIDI notes per step."""
        array = np.asarray(array)
        if self.kind == "music":
            if array.ndim != 2 or array.shape[1] != NOTES:
                raise ValueError(f"a roll has shape (T, {NOTES}), not {array.shape}")
            return [(np.flatnonzero(step) + LOWEST).tolist() for step in array]
        if array.ndim != 1 or (array.size and not 0 <= array.min() <= array.max() < self.size):
            raise ValueError(f"expected (T,) indices in 0..{self.size - 1}")
        symbols = [self.symbols[i] for i in array.tolist()]
        return "".join(map(str, symbols)) if self.kind == "text" else symbols

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; `from_dict` gives the same spec back."""
        return {"kind": self.kind, "symbols": list(self.symbols), "length_counts": list(self.length_counts)}

    @classmethod
    def from_dict(cls, raw: Any) -> DataSpec:
        """Read what `to_dict` wrote; anything else is a LatflowError."""
        if not isinstance(raw, dict) or set(raw) != {"kind", "symbols", "length_counts"}:
            raise LatflowError("data spec: expected an object with kind, symbols and length_counts")
        if not isinstance(raw["kind"], str):
            raise LatflowError(f"data spec: kind is {raw['kind']!r}; accepted: text, tokens, music")
        for name in ("symbols", "length_counts"):
            if not isinstance(raw[name], (list, tuple)):
                raise LatflowError(f"data spec: {name} must be a list")
        return cls(raw["kind"], tuple(raw["symbols"]), tuple(raw["length_counts"]))


def _is_symbol(symbol: object, kind: str) -> bool:
    if kind == "text":
        return isinstance(symbol, str) and len(symbol) == 1
    return type(symbol) in (str, int)


def roll_of(steps: Any) -> np.ndarray:
    """A list of MIDI notes per step (or a roll) as a (T, 88) uint8 roll of zeros and ones."""
    if isinstance(steps, np.ndarray) and steps.ndim == 2:
        if steps.shape[1] != NOTES or not np.isin(steps, (0, 1)).all():
            raise LatflowError(f"a roll has shape (T, {NOTES}) and holds zeros and ones; got {steps.shape}")
        return steps.astype(np.uint8)
    notes = list(chain.from_iterable(steps))
    if not set(map(type, notes)) <= {int, np.int64}:
        wrong = next(note for note in notes if type(note) not in (int, np.int64))
        raise LatflowError(f"{wrong!r} is no MIDI note, a whole number")
    keys = np.array(notes, np.int64) - LOWEST
    rows = np.repeat(np.arange(len(steps)), np.fromiter(map(len, steps), np.int64, len(steps)))
    outside = np.flatnonzero((keys < 0) | (keys >= NOTES))
    if len(outside):
        at = outside[0]
        raise LatflowError(
            f"step {rows[at] + 1}: MIDI note {notes[at]} is outside {LOWEST}..{LOWEST + NOTES - 1}"
        )
    roll = np.zeros((len(steps), NOTES), np.uint8)
    roll[rows, keys] = 1
    return roll


def length_counts(lengths: Iterable[np.ndarray], smooth: bool) -> tuple[int, ...]:
    """The histogram behind p(T), the empirical likelihood of supplement D, as the authors' code counts it: `lengths`
    are those of train and validation.

    With `smooth`, one is added at every length from 1 to int(1.25 x longest): that code's rule for music,
    whose lengths are few and spread out.
    """
    counts = np.bincount(np.concatenate([np.asarray(part, np.int64) for part in lengths]))
    if smooth:
        counts = np.pad(counts, (0, int(1.25 * (len(counts) - 1)) + 1 - len(counts)))
        counts[1:] += 1
    return tuple(counts.tolist())


class Sequences:
    """Many sequences in one flat array plus offsets: one byte for a symbol of a small vocabulary, eleven
    for a step of music.

    `sequences[i]` is an int64 array (T,) or a uint8 roll (T, 88), as `DataSpec.encode` gives it.
    """

    def __init__(self, flat: np.ndarray, lengths: np.ndarray, music: bool) -> None:
        self.flat = flat  # (steps,) unsigned, or (steps, 11) uint8: a step's 88 notes as bits
        self.music = music
        self.lengths = np.asarray(lengths, np.int64)
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

    def __getitem__(self, i: int) -> np.ndarray:
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
        """Of all sequences, in their order."""
        found = hashlib.sha256(self.lengths.astype("<i8").tobytes())
        found.update(self.flat.astype(self.flat.dtype.newbyteorder("<"), copy=False).tobytes())
        return found.hexdigest()

    def select(self, keep: np.ndarray) -> Sequences:
        """The sequences whose numbers are in `keep`, in that order."""
        parts = [self.flat[self._offsets[i] : self._offsets[i + 1]] for i in keep]
        return Sequences(np.concatenate(parts) if parts else self.flat[:0], self.lengths[keep], self.music)


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
    """(b,) float32: 1, or 0 for a filler that keeps a process busy whose share of a small batch is empty."""
    total: int
    """Sequences in the whole batch over all processes: the sum of the weights over processes."""

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        move: Callable[[Tensor], Tensor] = lambda tensor: tensor.to(device, non_blocking=True)  # noqa: E731
        return Batch(move(self.x), move(self.lengths), move(self.index), move(self.weight), self.total)


class Batches:
    """Batches of similar lengths, in an order that is a function of (seed, epoch) alone.

    Nothing is carried from one batch to the next, so `epoch(e, start=s)` resumes exactly in the middle of
    an epoch. The global batches do not depend on `world` either: process `rank` takes every world-th
    sequence of each, so that gradients summed over processes are those of one process on the whole batch,
    and a run may resume with another number of processes. A process whose share is empty gets a filler of
    weight 0.

    With `shuffle`, sequences are ordered by length x (1 + u / 10), u uniform, anew in each epoch:
    neighbours have nearly the same length yet are not always the same; cut every `batch_size`; the batches
    are shuffled. Without, everything comes sorted by length.

    transpose, crop: music only. A piece longer than `crop` steps is cut to a random stretch of `crop`; then
    all its notes move by the same random number of semitones, at most `transpose` either way and never off
    the keyboard. Both depend on (seed, epoch, index) alone. A crop's length has support in p(T), whose
    histogram for music starts from one at every length up to 1.25 x the longest; p(T) itself still counts
    whole pieces, which is what a sample should be.
    """

    def __init__(
        self,
        sequences: Sequences,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world: int = 1,
        transpose: int = 0,
        crop: int = 0,
    ) -> None:
        if batch_size < 1:
            raise LatflowError(f"batch size {batch_size}; it must be 1 or more")
        if seed < 0 or not 0 <= rank < world:
            raise ValueError(f"seed {seed}, rank {rank}, world {world}: need seed >= 0 and 0 <= rank < world")
        if transpose < 0 or crop < 0 or (not sequences.music and (transpose or crop)):
            raise LatflowError("transpose and crop are 0 or more, and for music only")
        self.sequences = sequences
        self.batch_size = batch_size
        self.seed, self.shuffle = seed, shuffle
        self.rank, self.world = rank, world
        self.transpose, self.crop = transpose, crop
        self._lengths = np.minimum(sequences.lengths, crop) if crop else sequences.lengths

    def __len__(self) -> int:
        """Global batches in an epoch."""
        return -(-len(self.sequences) // self.batch_size)

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The global batches of an epoch: sequence numbers, the same for every process."""
        keys = self._lengths.astype(np.float64)
        rng = np.random.default_rng([self.seed, epoch])
        if self.shuffle:
            keys *= 1 + rng.random(len(keys)) / 10
        order = np.argsort(keys, kind="stable")
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        return [batches[i] for i in rng.permutation(len(batches))] if self.shuffle else batches

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This process's share of the global batches start, start + 1, ... of an epoch."""
        for batch in self.plan(epoch)[start:]:
            mine = batch[self.rank :: self.world]
            weight = 1.0 if len(mine) else 0.0
            yield self._collate(mine if len(mine) else batch[:1], weight, len(batch), epoch)

    def _collate(self, index: np.ndarray, weight: float, total: int, epoch: int) -> Batch:
        lengths = self._lengths[index]
        if self.sequences.music:
            x = np.zeros((len(index), lengths.max(), NOTES), np.float32)
        else:
            x = np.zeros((len(index), lengths.max()), np.int64)
        for row, i, length in zip(x, index.tolist(), lengths.tolist(), strict=True):
            row[:length] = (
                self._varied(i, length, epoch) if self.transpose or self.crop else self.sequences[i]
            )
        return Batch(
            torch.from_numpy(x),
            torch.from_numpy(lengths.copy()),
            torch.from_numpy(index.copy()),
            torch.full((len(index),), weight),
            total,
        )

    def _varied(self, i: int, length: int, epoch: int) -> np.ndarray:
        """Piece i, cropped to `length` and transposed."""
        rng = np.random.default_rng([self.seed, epoch, i])
        start = int(rng.integers(self.sequences.lengths[i] - length + 1))
        roll = self.sequences.steps(i, start, start + length)
        used = np.flatnonzero(roll.any(axis=0))
        if self.transpose and len(used):
            down, up = min(self.transpose, used[0]), min(self.transpose, NOTES - 1 - used[-1])
            roll = np.roll(roll, int(rng.integers(-down, up + 1)), axis=1)
        return roll
