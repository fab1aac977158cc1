"""text8 and enwik8: the first 10^8 bytes of a Wikipedia, cleaned to letters and spaces, and as they are.

The split is that of the literature: the first 90 %, the next 5 % and the last 5 % of the bytes, each cut every `chunk`
bytes (256 unless set); the last piece of a split may be shorter. A step is a byte. In enwik8 the symbol of byte b is
the character of code b (Latin-1), so that a letter of more than one byte is as many symbols, and
`sample.encode("latin-1").decode("utf-8", "replace")` reads a sample.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from latflow.config import DataConfig
from latflow.data.base import Corpus, DataSpec, Sequences
from latflow.data.files import readable
from latflow.data.own import SPLITS, count_lengths, short_enough
from latflow.errors import LatflowError

CHUNK = 256
WIKI = ("text8", "enwik8")


def load_wiki(name: str, path: Path, config: DataConfig) -> Corpus:
    """One of the two, from the file itself or the archive it comes in."""
    flat = np.frombuffer(_content(name, path), np.uint8)
    used = np.flatnonzero(Sequences(flat, np.array([len(flat)]), music=False).counts(256))
    table = np.zeros(256, np.uint8)
    table[used] = np.arange(len(used))
    flat = table[flat]
    bounds = (0, len(flat) * 90 // 100, len(flat) * 95 // 100, len(flat))
    parts = {
        split: _cut(flat[start:stop], config.chunk or CHUNK)
        for split, start, stop in zip(SPLITS, bounds, bounds[1:], strict=False)
    }
    splits, counts = count_lengths(name, short_enough(name, parts, config), bool(config.smooth_lengths))
    spec = DataSpec("text", tuple(map(chr, used.tolist())), counts)
    return Corpus(name, spec, splits, f"mattmahoney.net/dc/textdata, {path}", files=(str(path),))


def _content(name: str, path: Path) -> bytes:
    with readable(path):
        if path.suffix != ".zip":
            return path.read_bytes()
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read(name)
        except (zipfile.BadZipFile, KeyError):
            raise LatflowError(f"{path}: not an archive that holds {name}") from None


def _cut(flat: np.ndarray, size: int) -> Sequences:
    """Every `size` symbols a sequence."""
    if not len(flat):
        return Sequences(flat, np.zeros(0), music=False)
    lengths = np.full(-(-len(flat) // size), size)
    lengths[-1] = len(flat) - size * (len(lengths) - 1)
    return Sequences(flat, lengths, music=False)
