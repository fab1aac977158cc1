"""A figure as files."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from latflow.data.files import check_files, file_stem, writing

SUFFIXES = (".png", ".svg")


def check_out(out: str | Path) -> None:
    """That `save` will find its place."""
    check_files(out, SUFFIXES)


def save(figure: Figure, out: str | Path) -> list[Path]:
    """The figure as OUT.png and OUT.svg; a suffix of the two is cut off. The same figure gives the same bytes."""
    stem = file_stem(out, SUFFIXES)
    written = []
    for suffix in SUFFIXES:
        path = stem.with_name(stem.name + suffix)
        metadata = {"Date": None} if suffix == ".svg" else {}
        with writing(path) as new, rc_context({"svg.hashsalt": "latflow"}):
            figure.savefig(new, format=suffix[1:], dpi=150, metadata=metadata)
        written.append(path)
    return written
