"""Reading and writing files so that what fails is named and nothing half-written is left behind."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

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
    """A path to write to. A plain file is replaced when the block succeeds; what is none (a device, a pipe, this
    process's own output) is written to itself, and a link stays one. The system's refusals become one line that names
    the file asked for.
    """
    with _writable(path):
        if written_through(path):
            yield Path(path)
            return
        with replacing(_place(path)) as new:
            yield new


@contextmanager
def _writable(path: str | Path) -> Iterator[None]:
    """Turns the system's refusals inside the block into one line that names the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LatflowError(f"{path} cannot be written: {error.strerror or error}") from None


def _place(path: str | Path) -> Path:
    """Where a new file goes: behind links, which stay."""
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, "it is a link to itself", str(path))
    return place


def written_through(path: str | Path) -> bool:
    """Whether there is something at the path that a new file must not take the place of."""
    try:
        about = os.stat(path)
    except OSError:
        return False
    return not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)) or _is_output(about)


def _is_output(about: os.stat_result) -> bool:
    """Whether that is where standard output or standard error goes: /dev/stdout behind `> FILE` is a plain file."""
    for number in (1, 2):
        try:
            if os.path.samestat(about, os.fstat(number)):
                return True
        except OSError:
            pass
    return False


def check_writable(path: str | Path) -> None:
    """That `path` can be written when the work is done; - always can."""
    path = Path(path)
    if str(path) == "-":
        return
    if path.is_dir():
        raise LatflowError(f"{path} is a folder; give the name of a file in it, as in {path / 'name'}")
    if written_through(path):
        if not os.access(path, os.W_OK):
            raise LatflowError(f"{path} cannot be written: permission denied")
        return
    with _writable(path):
        above = _place(path).parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise LatflowError(f"{path} cannot be written: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise LatflowError(f"{path} cannot be written: no permission to write in {above}")


@contextmanager
def output(path: str | Path | None) -> Iterator[TextIO]:
    """A stream of UTF-8 text into `path` as `writing` has it; - or None is standard output.

    What UTF-8 has not, bytes of a file's name and halves of characters in JSON, is written as its escape.
    """
    if path is None or str(path) == "-":
        yield sys.stdout
        return
    with writing(path) as new:
        through = written_through(path)
        mode = "a" if through else "w"
        with new.open(mode, encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            yield stream


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


MOST_BYTES = 1 << 26
"""Of a file that is read whole; a device may have no end."""


def read_whole(path: str | Path) -> bytes:
    """All that a file holds, or a pipe."""
    with readable(path), open(path, "rb") as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise LatflowError(f"{path}: more than {MOST_BYTES} bytes")
    return found


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
    return stem.with_suffix("") if stem.suffix.lower() in suffixes else stem


def check_files(out: str | Path, suffixes: tuple[str, ...]) -> None:
    """That files of all these endings can be written under this name when the work is done."""
    stem = file_stem(out, suffixes)
    for suffix in suffixes:
        check_writable(stem.with_name(stem.name + suffix))


def list_files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """All files under a folder whose names end so, in either case, sorted; a closed folder is an error."""

    def refuse(error: OSError) -> None:
        raise error

    found: list[Path] = []
    with readable(folder):
        for where, _, names in os.walk(folder, onerror=refuse):
            found += [Path(where) / name for name in names if name.lower().endswith(suffixes)]
    return sorted(found)
