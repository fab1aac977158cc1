"""Keep freed memory for the next step instead of giving it back to the operating system.

A training step allocates and frees buffers of 100 MB and more. The C library asks the kernel for each and returns
it when freed, so every step touches fresh pages: 4 KB at a time, a page fault each, the zeroing on top. Measured, a
first touch costs nine times the write itself, and a training step of AF/AF a quarter more than with memory that is
kept.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""mallopt(3)."""


def keep_freed_memory() -> bool:
    """Tell the C library to serve large blocks from its heap and never to shrink it. True if it agreed.

    It changes the whole process, so programs call it (training, evaluation, the benchmark), never an import. With a
    C library other than glibc nothing happens and False is returned.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all([mallopt(_MMAP_MAX, 0), mallopt(_TRIM_THRESHOLD, 2**31 - 1), mallopt(_TOP_PAD, 2**26)])
