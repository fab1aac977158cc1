"""Random numbers that depend on where in a run they are drawn, and on nothing that was drawn before.

So a run goes on after a kill exactly as it would have, with no generator to save.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_LOCK = threading.RLock()


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """torch's generators seeded with a key of whole numbers, and put back as they were afterwards.

    These generators are the process's, so one thread at a time.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with _LOCK, torch.random.fork_rng(devices):
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))
        yield
