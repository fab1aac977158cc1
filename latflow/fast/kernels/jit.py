"""How the kernels are compiled. Imported only where numba is installed.

numba keeps what it compiled on disk for as long as the file of the function is unchanged, and does not look at the
files of what that calls. Here kernels call those of other files, so what is kept belongs to all files of this folder
as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

REASSOCIATE = {"reassoc", "contract", "nsz"}
"""Sums in any order, which lets them become vector instructions; NaN and infinities keep their meaning."""
STRAIGHT: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "forceinline": True}
"""For scalar code without calls and branches, which the compiler makes vector instructions of in a loop."""


def _stamp() -> tuple[tuple[str, float, int], ...]:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files)


STAMP = _stamp()


def jit(**options: Any) -> Callable:
    """numba.njit, kept on disk where a folder can be written."""

    def decorate(function: Callable) -> Callable:
        function = inspect.unwrap(function)  # the tests wrap every function to check shapes
        try:
            compiled: Any = numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no folder for the cache: compile again in every process
            return numba.njit(nogil=True, **options)(function)
        compiled._cache._cache_file._source_stamp = STAMP
        return compiled

    return decorate
