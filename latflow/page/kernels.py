"""Compiled kernels, made ready beside the server: compiling takes minutes once, and then seconds at every start.

Until they are there the page computes by the definitions. A temperature other than 1 needs roots, which those find some
twenty times slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from latflow import shipped
from latflow.fast import compiled
from latflow.flows.seam import active
from latflow.page.draws import fresh
from latflow.training.run import load
from latflow.use.ahead import next_symbol, surprise


class Kernels:
    """Sets `ready` once another process has compiled them to numba's folder and this one has read them there."""

    def __init__(self, ready: threading.Event):
        self.ready = ready
        self._child: subprocess.Popen[bytes] | None = None
        if compiled.AVAILABLE and active():
            words, nowhere = [sys.executable, "-m", "latflow.page.kernels"], subprocess.DEVNULL
            self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere)
            threading.Thread(target=self._wait, args=(self._child,), daemon=True).start()

    def _wait(self, child: subprocess.Popen[bytes]) -> None:
        if child.wait() == 0:
            exercise()
            self.ready.set()

    def close(self) -> None:
        if self._child is not None:
            self._child.terminate()
            self._child.communicate()


def exercise() -> None:
    """A little of all that the page does, so that all of it is compiled."""
    for name in shipped.names():
        model = load(name)
        for temperature in (0.7, 1.0):
            for n in (1, 2):
                (x, *_) = fresh(model, n, 4, temperature, False, 0, lambda done, of: None)
        surprise(model, x)
        if model.spec.kind == "text":
            next_symbol(model, x, 1)


def end_with_the_server() -> None:
    """However that ends: the pipe it holds is closed with it."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_server, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(10)
    exercise()
