"""Whether the compiled kernels may be used. They are loaded at the first use: importing latflow stays quick.

Without numba (the extra `fast`), on other devices, and wherever gradients are recorded, the torch twins of the
kernels run instead: slower, with the same numbers to rounding.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

AVAILABLE: bool = importlib.util.find_spec("numba") is not None
"""Set to False to run without the kernels."""


def kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels, if they can work on these tensors now."""
    if not AVAILABLE or torch.is_grad_enabled():
        return None
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.dtype not in (torch.float32, torch.float64):
            return None
    from latflow.flows import kernels as module

    return module


def single_precision(*tensors: Tensor) -> ModuleType | None:
    """The same for the kernels written for float32 alone."""
    return kernels(*tensors) if all(tensor.dtype == torch.float32 for tensor in tensors) else None


def by_rows(
    kernel: Callable, rows: tuple[np.ndarray, ...], shared: tuple, block: int
) -> tuple[np.ndarray, ...]:
    """kernel(*rows, *shared) for rows that do not know of each other, on as many threads as torch uses.

    The kernels let go of the interpreter's lock. Work is cut at multiples of the kernel's own `block` of rows, so
    that the result does not depend on the number of threads.
    """
    n = len(rows[0])
    parts = min(torch.get_num_threads(), n // block)
    if parts < 2:
        return kernel(*rows, *shared)
    cuts = [block * (part * (n // block) // parts) for part in range(parts)] + [n]
    pieces = [slice(start, stop) for start, stop in pairwise(cuts)]
    results = _threads(parts).map(lambda piece: kernel(*(array[piece] for array in rows), *shared), pieces)
    return tuple(np.concatenate(column) for column in zip(*results, strict=True))


@lru_cache(maxsize=1)
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="latflow")
