"""Signals that ask for an end: Ctrl-C, a polite kill, a terminal that goes away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def stops(handle: Callable[[int], None]) -> Iterator[list[int]]:
    """While the block runs `handle` is called with the number of each that comes; those that came.

    What is ignored stays so: `nohup` and a script's `&` ask for work that goes on. Outside of the main thread signals
    are another's.
    """
    came: list[int] = []

    def called(number: int, frame: object) -> None:
        came.append(number)
        handle(number)

    main = threading.current_thread() is threading.main_thread()
    heard = [number for number in STOPS if main and signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, called) for number in heard}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
