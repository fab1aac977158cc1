"""What is known of a sequence: some of its symbols or notes, the others free."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latflow.data.base import LOWEST, NOTES, DataSpec, roll_of
from latflow.errors import LatflowError

VOICES = ("top", "bass")
_PITCH = re.compile(r"([A-Ga-g])([#b]?)(-?\d)")
_SEMITONES = dict(zip("CDEFGAB", (0, 2, 4, 5, 7, 9, 11), strict=True))
RULES = "steps (1-16), notes (C4, C4-B5) or a voice (top, bass), several with commas between them"


@dataclass(frozen=True)
class Evidence:
    """Symbols (T,) or a roll (T, 88), and which entries of it are known; the others say nothing.

    With `open_end` T itself is free: any longer than this, as p(T) has it.
    """

    x: np.ndarray
    known: np.ndarray
    open_end: bool = False

    def __post_init__(self) -> None:
        if self.x.shape != self.known.shape or self.known.dtype != bool or self.x.ndim not in (1, 2):
            raise LatflowError(
                f"evidence is (T,) symbols or (T, {NOTES}) notes with a mask of the same shape, not {self.x.shape} "
                f"with {self.known.dtype} {self.known.shape}"
            )
        if not len(self.x) and not self.open_end:
            raise LatflowError("nothing is known and the length is 0; give a length of 1 or more")

    @classmethod
    def prefix(cls, spec: DataSpec, beginning: Any, length: int | None = None) -> Evidence:
        """A beginning, as `DataSpec.encode` takes it or gives it. Without a length T is free, longer than this."""
        x = _encoded(spec, beginning)
        return cls(x, np.ones(x.shape, bool), open_end=length is None).lengthened(length)

    @classmethod
    def template(
        cls, spec: DataSpec, pattern: str | Sequence[Any], mark: Any = "?", length: int | None = None
    ) -> Evidence:
        """Text or tokens in which `mark` stands for any symbol."""
        if spec.kind == "music":
            raise LatflowError(
                "a template is of text or tokens; of music, give a roll and which notes to keep"
            )
        if spec.kind == "text" and not (isinstance(mark, str) and len(mark) == 1):
            raise LatflowError(
                f"the mark {mark!r} stands in a text for one free character; it must be one character"
            )
        known = np.array([symbol != mark for symbol in pattern], bool)
        x = np.zeros(len(known), np.int64)
        if known.any():
            x[known] = spec.encode([symbol for symbol in pattern if symbol != mark])
        return cls(x, known).lengthened(length)

    @classmethod
    def music(
        cls, roll: Any, keep: str | None = None, free: str | None = None, length: int | None = None
    ) -> Evidence:
        """A piece of which some is kept and the rest drawn.

        `keep` and `free` are rules: see `marked`. What is kept (without a rule, everything) and not free is known;
        steps beyond the piece, up to `length`, are free.
        """
        roll = roll_of(roll)
        known = np.ones(roll.shape, bool) if keep is None else marked(roll, keep, "--keep")
        if free is not None:
            known &= ~marked(roll, free, "--free")
        return cls(roll, known).lengthened(length)

    def lengthened(self, length: int | None) -> Evidence:
        """With free steps behind it, `length` in all."""
        if length is None:
            return self
        if length < len(self.x):
            raise LatflowError(
                f"length {length}, but {len(self.x)} steps are given; a length of that or more fits"
            )
        pad = [(0, length - len(self.x))] + [(0, 0)] * (self.x.ndim - 1)
        return Evidence(np.pad(self.x, pad), np.pad(self.known, pad))

    @property
    def last(self) -> int:
        """How many steps there are up to the last of which something is known."""
        steps = self.known if self.known.ndim == 1 else self.known.any(1)
        return int(np.flatnonzero(steps)[-1]) + 1 if steps.any() else 0

    @property
    def free_steps(self) -> np.ndarray:
        """Numbers of the steps of which something is free."""
        return np.flatnonzero(~(self.known if self.known.ndim == 1 else self.known.all(1)))


def marked(roll: np.ndarray, rule: str, option: str = "rule") -> np.ndarray:
    """The entries (T, 88) that a rule speaks of, any of its parts: `1-16` steps from 1 on, `C4-B5` notes (C4 is middle
    C), `top` and `bass` the highest and the lowest note of each step together with the silence beyond it."""
    found = np.zeros(roll.shape, bool)
    for part in rule.split(","):
        word = part.strip()
        if word in VOICES:
            found |= _voice(roll, word)
        elif steps := re.fullmatch(r"(\d+)(?:-(\d*))?", word):
            first = int(steps[1])
            last = first if steps[2] is None else int(steps[2] or len(roll))
            if not 1 <= first <= last <= len(roll):
                raise LatflowError(f"{option} {word}: the piece has the steps 1 to {len(roll)}")
            found[first - 1 : last] = True
        elif notes := re.fullmatch(rf"({_PITCH.pattern})(?:-({_PITCH.pattern}))?", word):
            low = _note(notes[1], option)
            high = low if notes[5] is None else _note(notes[5], option)
            if high < low:
                raise LatflowError(f"{option} {word}: the first note is above the last")
            found[:, low : high + 1] = True
        else:
            raise LatflowError(f"{option} {word!r}; accepted: {RULES}")
    return found


def _voice(roll: np.ndarray, voice: str) -> np.ndarray:
    """The outermost note that sounds and all beyond it, which are silent; of a silent step, nothing."""
    known = np.zeros(roll.shape, bool)
    for t, notes in enumerate(map(np.flatnonzero, roll)):
        if len(notes):
            known[t, notes[-1] :] = voice == "top"
            known[t, : notes[0] + 1] |= voice == "bass"
    return known


def _note(name: str, option: str) -> int:
    letter, accidental, octave = _PITCH.fullmatch(name).groups()  # type: ignore[union-attr]
    midi = 12 * (int(octave) + 1) + _SEMITONES[letter.upper()] + {"": 0, "#": 1, "b": -1}[accidental]
    if not LOWEST <= midi < LOWEST + NOTES:
        raise LatflowError(f"{option} {name}: a piano has the notes A0 to C8")
    return midi - LOWEST


def _encoded(spec: DataSpec, x: Any) -> np.ndarray:
    if isinstance(x, np.ndarray) and spec.kind != "music":
        return x.astype(np.int64) if x.dtype.kind in "iu" else spec.encode(x.tolist())
    if not len(x):
        return np.zeros(
            (0, NOTES) if spec.kind == "music" else 0, np.uint8 if spec.kind == "music" else np.int64
        )
    return spec.encode(x)
