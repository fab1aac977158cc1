"""Random numbers that depend on where in a run they are drawn, and on nothing that was drawn before.

So a run goes on after a kill exactly as it would have, with no generator to save.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch

_LOCK = threading.RLock()


class Stream(IntEnum):
    """What random numbers are for; those of one are independent of those of another.

    The numbers are part of what a seed means: the same seed gives the same run, samples and figures as long as they
    stay.
    """

    WEIGHTS = 0
    TRAINING = 1
    EVALUATION = 2
    SAMPLING = 3
    SCORING = 4
    FIGURE_POSTERIOR = 5
    FIGURE_PRIOR = 6
    FIGURE_DATA = 7
    GIVEN = 8


class Numbers:
    """The random numbers of a place, drawn in several sittings: each `with numbers.going_on():` goes on where the last
    one ended, whatever was drawn elsewhere in between."""

    def __init__(self, seed: int, stream: Stream, *place: int):
        self.key = (seed, stream, *place)
        self.states: list[torch.Tensor] = []

    @contextmanager
    def going_on(self) -> Iterator[None]:
        with seeded(*self.key):
            for put, state in zip(_PUT, self.states, strict=False):
                put(state)
            yield
            self.states = [torch.get_rng_state()]
            if torch.cuda.is_available():
                self.states.append(torch.cuda.get_rng_state())


_PUT = (torch.set_rng_state, torch.cuda.set_rng_state)


@contextmanager
def seeded(seed: int, stream: Stream, *place: int) -> Iterator[None]:
    """torch's generators seeded for a place (epoch, step, process ...) of a stream, and put back as they were after it.

    These generators are the process's, so one thread at a time.
    """
    key = (seed, int(stream), *place)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with _LOCK, torch.random.fork_rng(devices):
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))
        yield
