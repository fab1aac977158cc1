"""Reading and writing files so that what fails is named and nothing half-written is left behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latflow.errors import LatflowError


@contextmanager
def replacing(path: str | Path, partial: Path | None = None) -> Iterator[Path]:
    """A path beside `path` to write to: on the disk for good and renamed when the block succeeds, else removed.

    `partial` names it where there is one writer only: what a kill leaves behind is then written over the next time.
    """
    path = Path(path)
    if partial is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        partial = Path(name)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        _open_up(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _open_up(path: Path) -> None:
    """The mode of any new file, for one that was made private, as temporary files and those of safetensors are."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


@contextmanager
def writing(path: str | Path) -> Iterator[Path]:
    """`replacing`, with the system's refusals as one line that names the file asked for, not the one beside it."""
    try:
        with replacing(path) as new:
            yield new
    except OSError as error:
        raise LatflowError(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turns the system's refusals inside the block into one line that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise LatflowError(f"{error.filename or path}: no such file or folder") from None
    except PermissionError as error:
        raise LatflowError(f"{error.filename or path}: permission denied") from None
    except OSError as error:
        raise LatflowError(f"{error.filename or path}: {error.strerror or error}") from None


FOREIGN = (".pdf", ".eps", ".ps", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".mp3", ".ogg", ".flac")
"""Endings by which someone asks for a format that is not written; any other dot is part of a name."""


def file_stem(out: str | Path, suffixes: tuple[str, ...]) -> Path:
    """The name before the suffixes of several files, for a name given with one of them or without."""
    stem = Path(out)
    if not stem.name or stem.is_dir():
        raise LatflowError(f"{out} is a folder; give the name of a file in it, as in {stem / 'name'}")
    if stem.suffix.lower() in FOREIGN:
        raise LatflowError(
            f"{out}: {stem.suffix} is not written; accepted: a name, or one ending in {', '.join(suffixes)}"
        )
    return stem.with_suffix("") if stem.suffix in suffixes else stem


def list_files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """All files under a folder whose names end so, in either case, sorted; a closed folder is an error."""

    def refuse(error: OSError) -> None:
        raise error

    found: list[Path] = []
    with readable(folder):
        for where, _, names in os.walk(folder, onerror=refuse):
            found += [Path(where) / name for name in names if name.lower().endswith(suffixes)]
    return sorted(found)
