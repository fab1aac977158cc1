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
    """The kernels of generation, if they can work on these tensors now."""
    if not _usable(tensors, torch.float32, torch.float64):
        return None
    from latflow.flows import kernels

    return kernels


def lstm_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels of the LSTM, if they can work on these tensors now."""
    if not _usable(tensors, torch.float32):
        return None
    from latflow.flows import lstm_kernels

    return lstm_kernels


def stack_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels of `stack`, if they can work on these tensors; they have a gradient of their own."""
    if not _compiled(tensors, torch.float32, torch.float64):
        return None
    from latflow.flows import stack_kernels

    return stack_kernels


def _usable(tensors: tuple[Tensor, ...], *dtypes: torch.dtype) -> bool:
    return not torch.is_grad_enabled() and _compiled(tensors, *dtypes)


def _compiled(tensors: tuple[Tensor, ...], *dtypes: torch.dtype) -> bool:
    return AVAILABLE and all(tensor.device.type == "cpu" and tensor.dtype in dtypes for tensor in tensors)
