"""Labels of sequences: where their names come from, and the key of a piece of music.

The key is that of Krumhansl and Schmuckler (Krumhansl 1990, chapter 4): with d_c the steps in which notes of pitch
class c sound and P the profile of a major or minor key on C, how well each tone fits it, the key on c of a piece is

    argmax over c and P of  corr( d_(c + ·), P ),      the twelve pitch classes counted from c on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from latflow.config import DataConfig
from latflow.data.spec import LOWEST, NOTES
from latflow.errors import LatflowError

FIELD = "field:"

TONICS = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
KEYS = tuple(f"{tonic} {mode}" for tonic in TONICS for mode in ("major", "minor"))
"""C major, C minor, C# major, ...: two for each semitone, so that music moved up by s has key k + 2 s (mod 24)."""

_MAJOR = (6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88)
_MINOR = (6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17)


def _profiles() -> np.ndarray:
    """(24, 12) the profiles of `KEYS` over C, C#, ..., each of mean 0 and length 1."""
    found = np.array([np.roll(p, tonic) for tonic in range(12) for p in (_MAJOR, _MINOR)])
    found -= found.mean(axis=1, keepdims=True)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def key_of(roll: np.ndarray) -> int:
    """The key of a roll (T, 88), an index into `KEYS`; 0 where no key fits better than another, as in silence."""
    sounding = np.asarray(roll).sum(axis=0, dtype=np.int64)
    durations = np.bincount((np.arange(NOTES) + LOWEST) % 12, weights=sounding, minlength=12)
    return int(np.argmax(_profiles() @ (durations - durations.mean())))


def moved_keys(keys: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The keys of music moved up by so many semitones."""
    return (keys + 2 * shift) % len(KEYS)


def check_labels(config: DataConfig) -> None:
    """That the labels asked for are such as this data can have; whether it is music is known only when it is read."""
    asked, own = config.labels, config.name.partition(":")[0] if ":" in config.name else ""
    if asked is None:
        return
    if asked == "key":
        if own in ("text", "tokens"):
            raise LatflowError(f"labels are key, which music has; {config.name} is {own}")
    elif asked == "folder":
        if not own:
            raise LatflowError(
                f"labels are folder, but {config.name} is no folder of yours; give text:DIR or midi:DIR"
            )
    elif asked.startswith(FIELD) and asked not in (FIELD, f"{FIELD}tokens"):
        if own != "tokens":
            raise LatflowError(
                f"labels are {asked}, which lines of tokens:FILE have; {config.name} has no fields"
            )
    else:
        raise LatflowError(f"labels are {asked!r}; accepted: folder, field:NAME, key")


def field_name(config: DataConfig) -> str | None:
    """NAME of field:NAME, if labels are that."""
    labels = config.labels or ""
    return labels.removeprefix(FIELD) if labels.startswith(FIELD) else None


def folder_label(file: Path, root: Path, part: str) -> str:
    """The first folder on the way from the user's (or from its train, valid or test) to a file."""
    top = root if part == "all" else root / part
    if file == root or not file.is_relative_to(top) or file.parent == top:
        raise LatflowError(
            f"{file}: labels are folder, but it lies in no folder below {top}; put it into one"
        )
    return file.relative_to(top).parts[0]


def numbered(names: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The labels of the sequences of each part as numbers, and the sorted names they stand for."""
    table = tuple(sorted(set().union(*names.values())))
    index = {name: i for i, name in enumerate(table)}
    return table, {part: np.array([index[name] for name in found], np.int64) for part, found in names.items()}
