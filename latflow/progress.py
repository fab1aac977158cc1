"""How far a long piece of work is: a bar on a terminal, elsewhere a line now and then; always on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Told (done, of how many) as the work goes on."""

SECONDS = 10.0
"""Lines come no more often than this."""


@contextmanager
def counting(label: str, quiet: bool = False) -> Iterator[Progress]:
    """While the block runs, what is told is shown; `quiet`, or in any process but the first of many, nothing is."""
    quiet = quiet or os.environ.get("RANK", "0") != "0"
    if not quiet and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, of: bar.update(task, completed=done, total=of)
        return
    last = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal last
        if not quiet and done < of and time.monotonic() - last >= SECONDS:
            last = time.monotonic()
            print(f"{label}: {done} of {of}", file=sys.stderr, flush=True)

    yield tell


def track(items: Sequence[T], label: str) -> Iterator[T]:
    """The items, with a bar on a terminal while they are worked through."""
    with counting(label, quiet=not sys.stderr.isatty()) as tell:
        for done, item in enumerate(items, start=1):
            yield item
            tell(done, len(items))
