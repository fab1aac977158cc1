"""What data is: its kind, its symbols, its lengths, and how a sequence is written down as an array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import chain, repeat
from typing import Any

import numpy as np
from torch import Tensor

from latflow.errors import LatflowError

NOTES = 88
LOWEST = 21
"""A piano's keys: MIDI notes 21 (A0) to 108 (C8)."""

UNKNOWN = {"text": "\ufffd", "tokens": "<unknown>"}
"""The symbol that stands for everything training never saw, by the kind of data."""

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
    symbol_counts: tuple[int, ...] = field(default=(), compare=False)
    """How often each symbol occurs in the training split; music: in how many of its steps each note sounds. () where
    it was not counted."""
    train_steps: int = field(default=0, compare=False)
    """Steps of the training split, over all sequences."""
    labels: tuple[str, ...] = ()
    """The names of the labels a sequence may have, in index order; () if sequences have none."""
    shifts: int = field(default=0, compare=False)
    """The largest transposition that training draws, in semitones either way."""
    unknown: bool = False
    """Whether the last symbol stands for everything that training never saw."""

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
        self._check_optional()

    def _check_optional(self) -> None:
        counts = self.symbol_counts
        if not all(type(count) is int and 0 <= count < 2**53 for count in counts):
            raise LatflowError("data spec: symbol_counts must be whole numbers, 0 or more and below 2^53")
        if counts and len(counts) != self.size:
            raise LatflowError(f"data spec: {len(counts)} symbol_counts for {self.size} symbols")
        for name in ("train_steps", "shifts"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < 2**53:
                raise LatflowError(f"data spec: {name} is {value!r}; it must be a whole number, 0 or more")
        if self.shifts and (self.kind != "music" or self.shifts >= NOTES):
            raise LatflowError(
                f"data spec: {self.shifts} shifts of {self.kind}; only music is shifted, below {NOTES}"
            )
        if not all(type(label) is str for label in self.labels) or len(set(self.labels)) != len(self.labels):
            raise LatflowError("data spec: labels must be strings, each once")
        if type(self.unknown) is not bool:
            raise LatflowError(f"data spec: unknown is {self.unknown!r}; it must be true or false")
        if self.unknown and (self.kind == "music" or self.symbols[-1] != UNKNOWN[self.kind]):
            raise LatflowError(
                "data spec: unknown, but the last symbol is not the one for it, "
                f"{' or '.join(f'{mark!r} ({kind})' for kind, mark in UNKNOWN.items())}"
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

    @property
    def unknown_index(self) -> int | None:
        """The index of the symbol for what training never saw, the last; None if there is none."""
        return self.size - 1 if self.unknown else None

    @cached_property
    def _index(self) -> dict[str | int, int]:
        return {symbol: i for i, symbol in enumerate(self.symbols)}

    def encode(self, sequence: str | Sequence[Any] | np.ndarray) -> np.ndarray:
        """A string, a list of tokens, or music (a list of MIDI notes per step, or a roll) as an array.

        (T,) int64 indices into `symbols`, or a (T, 88) uint8 roll. A symbol that training never saw becomes the one for
        unknown, if there is that (`unknowns` counts them), and is an error otherwise.
        """
        if self.kind == "music":
            return roll_of(sequence)
        for token in () if isinstance(sequence, str) else sequence:
            if isinstance(token, (bool, float)):  # True == 1 == 1.0 would pass as the token 1
                raise LatflowError(f"{token!r} is no token; a token is a whole number or a string")
        try:
            if self.unknown_index is None:
                return np.fromiter(map(self._index.__getitem__, sequence), np.int64, len(sequence))
            found = map(self._index.get, sequence, repeat(self.unknown_index))
            array = np.fromiter(found, np.int64, len(sequence))
        except (KeyError, TypeError):
            at, unknown = next((i, s) for i, s in enumerate(sequence) if s not in self.symbols)
            raise LatflowError(
                f"{self.step_name} {unknown!r} at position {at + 1} is not among the {self.size} of this data"
            ) from None
        for at in np.flatnonzero(array == self.unknown_index).tolist():
            if not _is_symbol(sequence[at], self.kind):
                raise LatflowError(f"{sequence[at]!r} at position {at + 1} is no {self.step_name}")
        return array

    def unknowns(self, array: np.ndarray) -> int:
        """How many steps of an encoded sequence are symbols that training never saw."""
        return 0 if self.unknown_index is None else int((np.asarray(array) == self.unknown_index).sum())

    def label_index(self, name: str) -> int:
        """The index of a label."""
        if name not in self.labels:
            known = ", ".join(map(repr, self.labels[:30])) + " ..." * (len(self.labels) > 30)
            raise LatflowError(
                f"label {name!r}; "
                + (f"accepted: {known}" if known else "sequences of this data have no labels")
            )
        return self.labels.index(name)

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
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, raw: Any) -> DataSpec:
        """Read what `to_dict` wrote, in this version or in one that knew the first three fields alone; anything
        else is a LatflowError.
        """
        known = [field.name for field in fields(cls)]
        if not isinstance(raw, dict) or not set(known[:3]) <= set(raw) <= set(known):
            raise LatflowError(
                f"data spec: expected an object with {', '.join(known[:3])} and, if need be, {', '.join(known[3:])}"
            )
        if not isinstance(raw["kind"], str):
            raise LatflowError(f"data spec: kind is {raw['kind']!r}; accepted: text, tokens, music")
        for name in ("symbols", "length_counts", "symbol_counts", "labels"):
            if not isinstance(raw.get(name, []), (list, tuple)):
                raise LatflowError(f"data spec: {name} must be a list")
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in raw.items()}
        return cls(**values)


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
