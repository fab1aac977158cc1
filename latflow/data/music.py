"""The polyphonic music of Boulanger-Lewandowski et al. (2012): JSON or pickles of MIDI notes -> 88-note
rolls.

Both hold {"train": [sequence, ...], "valid": ..., "test": ...}; a sequence is a list of time steps, a step
the list (or tuple) of the MIDI notes 21..108 that sound in it; empty is silence.
"""

from __future__ import annotations

import gc
import gzip
import json
import pickle
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np

from latflow.config import DataConfig
from latflow.data.base import Corpus, DataSpec, Sequences, roll_of
from latflow.data.files import readable
from latflow.data.own import SPLITS, count_lengths, short_enough
from latflow.errors import LatflowError

MOST_BYTES = 1 << 28
"""No file of this kind, unpacked, is near 256 MiB; a larger one is refused before it fills the memory."""
MOST_STEPS = 10_000_000


def load_music(name: str, path: Path, config: DataConfig) -> Corpus:
    """One of the four corpora, from its JSON or its pickle."""
    splits = short_enough(name, read_music(path), config)
    splits, counts = count_lengths(name, splits, config.smooth_lengths in (None, True))
    spec = DataSpec("music", (), counts)
    return Corpus(name, spec, splits, f"Boulanger-Lewandowski 2012, {path}", files=(str(path),))


def read_music(path: Path) -> dict[str, Sequences]:
    """Train, valid and test of a .json.gz or a .pickle."""
    pieces = _pickle_pieces(path) if path.suffix == ".pickle" else _json_pieces(path)
    splits = {
        split: Sequences.of_rolls(_rolls((piece for _, piece in group), f"{path}, {split}"))
        for split, group in groupby(pieces, itemgetter(0))
    }
    if set(splits) != set(SPLITS):
        raise LatflowError(f"{path}: expected sequences for train, valid and test, found {list(splits)}")
    return splits


def _rolls(pieces: Iterable[Any], where: str) -> Iterator[np.ndarray]:
    """Lists of steps, checked as they become rolls."""
    steps = 0
    for number, piece in enumerate(pieces, 1):
        if not isinstance(piece, (list, tuple)) or not piece:
            raise LatflowError(f"{where}, sequence {number}: expected a list of time steps")
        if not set(map(type, piece)) <= {list, tuple} or max(map(len, piece)) > 1000:
            raise LatflowError(f"{where}, sequence {number}: a time step must be a list of notes")
        steps += len(piece)
        if steps > MOST_STEPS:  # a few bytes of pickle can stand for any number of references to one list
            raise LatflowError(f"{where}: more than {MOST_STEPS} time steps")
        try:
            yield roll_of(piece)
        except LatflowError as error:
            raise LatflowError(f"{where}, sequence {number}: {error}") from None


def _unpacked(path: Path) -> str:
    """The text of a .gz, up to a bounded size."""
    blocks, size = [], 0
    with readable(path):
        try:
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                while block := stream.read(1 << 16):
                    blocks.append(block)
                    size += len(block)
                    if size > MOST_BYTES:
                        raise LatflowError(f"{path}: more than {MOST_BYTES} bytes when unpacked")
        except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError):
            raise LatflowError(f"{path}: cut off, or not a .json.gz") from None
    return "".join(blocks)


def _json_pieces(path: Path) -> Iterator[tuple[str, Any]]:
    """(split, piece) of a .json.gz, one piece at a time: all as lists would take ten times the file."""
    text = _unpacked(path)
    scan = json.JSONDecoder().raw_decode
    try:
        _, at = _punctuation(text, 0, "{")
        mark = ","
        while mark != "}":
            split, at = scan(text, at)
            _, at = _punctuation(text, at, ":")
            mark, at = _punctuation(text, at, "[")
            while mark != "]":
                piece, at = scan(text, at)
                yield split, piece
                mark, at = _punctuation(text, at, ",]")
            mark, at = _punctuation(text, at, ",}")
    except (ValueError, RecursionError):
        raise LatflowError(f"{path}: not JSON of the form {{split: [sequence, ...]}}") from None


_SPACE = re.compile(r"\s*")


def _punctuation(text: str, at: int, expected: str) -> tuple[str, int]:
    """The mark at `at`, one of those expected, and where the next thing starts."""
    at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches always, if only nothing
    if text[at : at + 1] not in tuple(expected):
        raise ValueError(at)
    return text[at], _SPACE.match(text, at + 1).end()  # type: ignore[union-attr]


def _pickle_pieces(path: Path) -> Iterator[tuple[str, Any]]:
    raw = read_pickle(path)
    for split in SPLITS:
        pieces = raw.get(split) if isinstance(raw, dict) else None
        if not isinstance(pieces, (list, tuple)):
            raise LatflowError(f"{path}: expected {{split: [sequence, ...]}} with train, valid and test")
        yield from ((split, piece) for piece in pieces)


def read_pickle(path: Path) -> Any:
    """The notes of a pickle, which may hold nothing but lists, tuples, dicts, strings and numbers."""
    with readable(path), path.open("rb") as stream:
        if path.stat().st_size > MOST_BYTES:
            raise LatflowError(f"{path}: more than {MOST_BYTES} bytes")
        collecting = gc.isenabled()
        gc.disable()  # millions of small tuples and no cycle among them: looking for some takes half the time
        try:
            return _Restricted(stream, str(path)).load()
        except LatflowError:
            raise
        except MemoryError:
            raise LatflowError(f"{path}: asks for more memory than there is") from None
        except Exception as error:  # a broken pickle can raise nearly anything
            raise LatflowError(f"{path}: cut off or not a pickle of notes ({type(error).__name__})") from None
        finally:
            if collecting:
                gc.enable()


class _Restricted(pickle.Unpickler):
    """Builds plain data only. Every function or class a pickle names is found by `find_class` or not at all.

    numpy's int64 scalars are pickled as scalar(dtype("i8"), 8 bytes). Those two names, and the encode that
    Python 3 writes for bytes in old protocols, are answered by stand-ins that know these numbers and
    nothing else; no other name is looked up, so nothing of this or any other module can be reached, let
    alone called.
    """

    def __init__(self, stream: IO[bytes], name: str) -> None:
        super().__init__(stream, encoding="latin1")
        self._name = name

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in _STAND_INS:
            return _STAND_INS[module, name]
        raise LatflowError(f"{self._name}: the pickle asks for {module}.{name}; only plain data is read")


class _StandIn:
    """A callable without attributes, so that a pickle can neither read nor set any."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("state for a function")


class _Dtype:
    """What dtype("i8") becomes: the code and the byte order that follows as its state."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "<"

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("unknown byte order")
        self.order = state[1]


class _MakeDtype(_StandIn):
    def __call__(self, code: Any, *_: Any) -> _Dtype:
        if code not in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
            raise pickle.UnpicklingError("a dtype that is no whole number")
        return _Dtype(code)


class _MakeScalar(_StandIn):
    def __call__(self, dtype: Any, raw: Any) -> int:
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if type(dtype) is not _Dtype or type(raw) is not bytes or len(raw) != int(dtype.code[1]):
            raise pickle.UnpicklingError("a scalar that is no whole number")
        return int.from_bytes(raw, "big" if dtype.order == ">" else "little", signed=dtype.code[0] == "i")


class _Encode(_StandIn):
    def __call__(self, text: Any, encoding: Any) -> bytes:
        if type(text) is not str or encoding != "latin1" or len(text) > 8:
            raise pickle.UnpicklingError("bytes that are no number")
        return text.encode("latin1")


_STAND_INS = {
    ("numpy", "dtype"): _MakeDtype(),
    ("numpy.core.multiarray", "scalar"): _MakeScalar(),
    ("numpy._core.multiarray", "scalar"): _MakeScalar(),
    ("_codecs", "encode"): _Encode(),
}
