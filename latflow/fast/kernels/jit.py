"""How the kernels are compiled. Imported only where numba is installed.

numba keeps what it compiled on disk for as long as the file of the function is unchanged, and does not look at the
files of what that calls: a kernel and all that it calls stand in one file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numba

REASSOCIATE = {"reassoc", "contract", "nsz"}
"""Sums in any order, which lets them become vector instructions; NaN and infinities keep their meaning."""


def jit(**options: Any) -> Callable:
    """numba.njit, kept on disk where a folder can be written."""

    def decorate(function: Callable) -> Callable:
        function = inspect.unwrap(function)  # the tests wrap every function to check shapes
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no folder for the cache: compile again in every process
            return numba.njit(nogil=True, **options)(function)

    return decorate
