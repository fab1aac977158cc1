"""Whether the compiled kernels may be used. They are loaded at the first use: importing latflow stays quick.

Without numba (the extra `fast`), on other devices, and wherever torch follows what is computed (gradients in either
mode, torch.func, autocast), twins in torch or the definitions run instead: slower, with the same numbers to rounding.
(The LSTM's twin has its backward pass by hand and no forward mode: torch refuses it.)
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import platform
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

AVAILABLE: bool = importlib.util.find_spec("numba") is not None
"""Set to False to run without the kernels."""
_LOADED: dict[str, ModuleType] = {}


def generation_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels of generation, if they can work on these tensors now."""
    return None if torch.is_grad_enabled() else _load("generation", tensors, torch.float32, torch.float64)


def mixture_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels of generation from masked flows of mixtures, if they can work on these tensors now."""
    return None if torch.is_grad_enabled() else _load("masked", tensors, torch.float32, torch.float64)


def tied_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels of generation from a codebook, if they can work on these tensors now."""
    return None if torch.is_grad_enabled() else _load("tied", tensors, torch.float32, torch.float64)


def lstm_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels of the LSTM, if they can work on these tensors now."""
    return None if torch.is_grad_enabled() else _load("lstm", tensors, torch.float32)


def product_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels of rounded products, if they can work on these tensors now and the processor multiplies bfloat16."""
    if torch.is_grad_enabled() or not AVAILABLE or (name := multiplies()) is None:
        return None
    return _load(name, tensors, torch.float32)


@cache
def multiplies() -> str | None:
    """What this processor multiplies bfloat16 with: "tiles", "dots" or nothing."""
    from llvmlite.binding import get_host_cpu_features

    config: Any = importlib.import_module("numba.core.config")
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    # Told to compile for another processor, numba would end the process at an instruction that this one lacks.
    if config.CPU_NAME or config.CPU_FEATURES is not None or not config.ENABLE_AVX:
        return None
    features = get_host_cpu_features()
    if _tiles(features):
        return "tiles"
    return "dots" if features.get("avx512bf16") else None


def _tiles(features: Mapping[str, bool]) -> bool:
    """Whether the processor has tile registers (Intel's AMX) and the system, asked for it, lets us."""
    if sys.platform != "linux" or not (features.get("amx-tile") and features.get("amx-bf16")):
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0


def layer_kernels(*tensors: Tensor) -> ModuleType | None:
    """The kernels of `layers`, if they can work on these tensors; they have a gradient of their own."""
    return _load("layers", tensors, torch.float32, torch.float64)


def _load(name: str, tensors: tuple[Tensor, ...], *dtypes: torch.dtype) -> ModuleType | None:
    """A module of kernels, unless it cannot work on these tensors or numba does not run here."""
    global AVAILABLE
    if not AVAILABLE or torch.is_autocast_enabled("cpu") or not all(map(_bare, tensors)):
        return None
    if len({tensor.dtype for tensor in tensors}) > 1 or tensors[0].dtype not in dtypes:
        return None
    if name in _LOADED:  # asked for at every step of a generation
        return _LOADED[name]
    try:
        return _LOADED.setdefault(name, importlib.import_module(f"latflow.fast.kernels.{name}"))
    except ImportError as error:  # as numba raises beside a numpy newer than it knows
        AVAILABLE = False
        warnings.warn(
            f"numba does not run here, so sampling is slower: {error}", RuntimeWarning, stacklevel=2
        )
        return None


def _bare(tensor: Tensor) -> bool:
    """Whether it is numbers in memory and nothing else: no tangent of forward mode, no wrapper of torch.func."""
    if tensor.device.type != "cpu" or forward_ad.unpack_dual(tensor).tangent is not None:
        return False
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True
