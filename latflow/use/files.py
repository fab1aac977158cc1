"""A user's sequences from files, and samples into files: text, tokens, notes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latflow.config import DataConfig
from latflow.data.base import DataSpec
from latflow.errors import LatflowError
from latflow.plain import shown

STANDARD_INPUT = Path("/dev/stdin")
MUSIC_FILES = (".mid", ".midi", ".wav", ".png")


class Read(NamedTuple):
    """One of a user's sequences."""

    number: int
    """The number of its line in the file, from 1 and with empty lines counted; of a folder, that of the file."""
    name: str
    """The line, or the file's path."""
    x: np.ndarray | LatflowError
    """Or why this model cannot read it."""


def read_sequences(path: str | Path, spec: DataSpec, config: DataConfig) -> list[Read]:
    """A user's sequences: lines of text, JSON lines of tokens, a .mid file or a folder of them; - is standard input.

    If the model can read none, that is an error.
    """
    from latflow.data.files import list_files
    from latflow.data.midi import read_midi
    from latflow.data.text import read_list, text_lines, token_lines

    if not os.path.exists(STANDARD_INPUT if str(path) == "-" else path):
        raise LatflowError(f"{str(path)!r:.80}: no such file or folder")
    path = STANDARD_INPUT if str(path) == "-" else Path(path)
    if spec.kind == "music":
        files = list_files(path, (".mid", ".midi")) if path.is_dir() else [path]
        items = [(i, str(file)) for i, file in enumerate(files, start=1)]
    else:
        items = text_lines(path, config) if spec.kind == "text" else token_lines(path)

    @cache
    def taken(item: str) -> np.ndarray | LatflowError:
        try:
            if spec.kind == "music":
                return spec.encode(read_midi(Path(item), config.steps_per_beat, config.steps_per_second))
            return spec.encode(read_list(item, config) if spec.kind == "tokens" else item)
        except LatflowError as error:
            return error

    found = [Read(index, item, taken(item)) for index, item in items]
    if not found:
        raise LatflowError(f"{path}: no sequences in it")
    if all(isinstance(read.x, LatflowError) for read in found):
        first = found[0]  # what is wrong with music names its file already
        where = "" if spec.kind == "music" else f"{path}: sequence {first.number} ({first.name[:40]}): "
        raise LatflowError(f"{where}{first.x}")
    return found


def read_one(given: str, spec: DataSpec, config: DataConfig) -> np.ndarray:
    """One sequence: the first of a file; of text and tokens also what was typed itself, where there is no such file."""
    if spec.kind == "music" or os.path.exists(given):
        found = read_sequences(given, spec, config)
        return next(read.x for read in found if not isinstance(read.x, LatflowError))
    return spec.encode(typed(given, spec))


def typed(given: str, spec: DataSpec) -> Any:
    """Text as it is typed, tokens as a JSON list."""
    if spec.kind != "tokens":
        return given
    try:
        tokens = json.loads(given)
    except (ValueError, RecursionError):  # no JSON, too large a number, too deep
        tokens = None
    if not isinstance(tokens, list):
        raise LatflowError(f"{given!r:.80}: tokens are given as a JSON list, such as [1, 2, 3]")
    return tokens


def write_samples(
    samples: Iterable[np.ndarray],
    spec: DataSpec,
    out: str | Path,
    config: DataConfig,
    *,
    several: bool = True,
    tempo: float | None = None,
    known: np.ndarray | None = None,
) -> Iterator[Path]:
    """Text and tokens into one file, a line each; music as a .mid, a .wav and a .png each, or the one of them that
    `out` ends in, numbered if `several`. What was written, as it is.

    `tempo` is in beats a minute, by itself 120 or what steps of a fixed time come to; notes that are `known`, an
    entry (T, 88) of all samples, have a colour of their own in the .png.
    """
    from latflow.data.export import save_png, save_wav
    from latflow.data.files import file_stem, output
    from latflow.data.midi import SLOWEST, write_midi

    if spec.kind != "music":
        with output(out) as stream:
            stream.writelines(f"{as_text(x, spec)}\n" for x in samples)
        yield Path(out)
        return
    stem, ending = file_stem(out, MUSIC_FILES), Path(out).suffix
    suffixes = (ending,) if ending.lower() in MUSIC_FILES else (".mid", ".wav", ".png")
    given, per_beat, tempo = tempo, config.steps_per_beat, 120.0
    if config.steps_per_second is not None:
        # Written as beats of the tempo that gives steps their length, of which MIDI has four a minute or more.
        per_beat = max(1, min(per_beat, int(60 * config.steps_per_second / SLOWEST)))
        tempo = max(SLOWEST, 60 * config.steps_per_second / per_beat)
    tempo = tempo if given is None else given
    for number, roll in enumerate(samples, start=1):
        name = stem.with_name(f"{stem.name}-{number}") if several else stem
        roll = roll.astype(np.uint8)
        for suffix in suffixes:
            path = name.with_name(name.name + suffix)
            if suffix.lower() == ".png":
                save_png(path, roll, known=None if known is None else extended(known, len(roll)))
            else:
                write = save_wav if suffix.lower() == ".wav" else write_midi
                write(path, roll, per_beat, tempo)
            yield path


def as_text(x: np.ndarray, spec: DataSpec, terminal: bool = False, known: np.ndarray | None = None) -> str:
    """A sample as one line: the text itself with line ends escaped, for a terminal all control characters; or JSON.

    On a terminal symbols that are `known` are bold.
    """
    decoded = spec.decode(x)
    text = spec.kind == "text"
    if known is None or not terminal or spec.kind == "music":
        return _escaped(decoded, terminal) if text else json.dumps(decoded, ensure_ascii=False)
    pieces = [_escaped(s, terminal) if text else json.dumps(s, ensure_ascii=False) for s in decoded]
    marks = extended(known, len(x)).tolist()
    bold = [f"\x1b[1m{piece}\x1b[0m" if mark else piece for piece, mark in zip(pieces, marks, strict=True)]
    return "".join(bold) if text else f"[{', '.join(bold)}]"


def _escaped(text: str, terminal: bool) -> str:
    return shown(text) if terminal else text.replace("\n", "\\n").replace("\r", "\\r")


def extended(known: np.ndarray, length: int) -> np.ndarray:
    """A mask over `length` steps, in which what is behind its end is free."""
    return np.pad(known, [(0, length - len(known))] + [(0, 0)] * (known.ndim - 1))
