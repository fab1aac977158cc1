"""Standard output and the ways it can fail: one line and an exit code, never a traceback.

A terminal that lacks a character gets the nearest it has. A stop by a signal has the code that shells expect, 128 and
the signal's number, whatever was going on.
"""

from __future__ import annotations

import codecs
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

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
    """Before anything is printed. Standard error that is closed is nowhere; a closed standard output is an error when
    it is used, as that of a full disk is."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _Closed() if name == "stdout" else open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="latflow")


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
    """While the block runs Ctrl-C and SIGTERM raise `Stopped`; the numbers of those that came, also where some library
    made another error of it."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise Stopped(number)

    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, handle)
    except ValueError:  # not the main thread, where signals are another's
        pass
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
