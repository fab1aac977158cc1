"""Standard output and the ways it can fail: one line and an exit code, never a traceback.

A terminal that lacks a character gets the nearest it has. A stop by a signal has the code that shells expect, 128 and
the signal's number, whatever was going on.
"""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from latflow.stops import stops

NEAREST = {
    "Σ": "sum",
    "±": "+-",
    "σ": "sigma",
    "μ": "mu",
    "ε": "eps",
    "…": "...",
    "–": "-",
    "·": ".",
    "×": "x",
    "≤": "<=",
}
"""What stands for characters of our own where they cannot be printed."""


class Stopped(BaseException):
    """A signal asked for an end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number

    @property
    def code(self) -> int:
        return 128 + self.number


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs: the nearest we know, else the escape of JSON, which keeps JSON what it was."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = []
    for c in error.object[error.start : error.end]:
        units = c.encode("utf-16-be", "surrogatepass")
        escaped = "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
        found.append(NEAREST.get(c, escaped))
    return "".join(found), error.end


codecs.register_error("latflow", _nearest)


def prepare() -> None:
    """Before anything is printed. A closed standard output is an error when it is used, as that of a full disk is;
    standard error that is closed, full or broken is no reason to stop."""
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    elif sys.stderr is sys.__stderr__:
        unfailing = io.BufferedWriter(_Unfailing(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(unfailing, sys.stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="latflow")


class _Unfailing(io.FileIO):
    """Standard error: what cannot be written is lost."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


class _Closed:
    """Standard output that was closed before we began."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError("it is closed")

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


def abandon_output() -> None:
    """What is still to be written goes nowhere, so that the interpreter's last flush cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        pass
    finally:
        os.close(nowhere)


@contextmanager
def signals() -> Iterator[list[int]]:
    """While the block runs a signal that asks for an end raises `Stopped`; the numbers of those that came, also where
    some library made another error of it. One more while the first is being obeyed ends the process at once."""

    def handle(number: int) -> None:
        if len(came) > 1:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        raise Stopped(number)

    with stops(handle) as came:
        yield came
