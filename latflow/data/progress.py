"""A progress bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def track(items: Sequence[T], label: str) -> Iterable[T]:
    """The items, with a bar on standard error while they are worked through."""
    if not sys.stderr.isatty() or len(items) < 2:
        return items
    from rich.console import Console
    from rich.progress import track as bar

    return bar(items, label, console=Console(stderr=True), transient=True)
