"""Whether the compiled kernels may be used. They are loaded at the first use: importing latflow stays quick.

Without numba (the extra `fast`), on other devices, and wherever gradients are recorded, the torch twins of the
kernels run instead: slower, with the same numbers to rounding.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

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
