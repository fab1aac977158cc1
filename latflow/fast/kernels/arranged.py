"""bfloat16 numbers as the instructions that multiply them want them, and float32 rounded to such.

A tile has 16 rows of 64 bytes. C += A B takes A as tiles of 16 x 32 numbers, and B as tiles of 32 x 16 in which two
rows of B, which are multiplied in one go, stand side by side: row r of such a tile is B[2r, 0], B[2r + 1, 0],
B[2r, 1], ... What is missing at the edge of a matrix is zero in A and B. Tile registers (`tiles`) take them as they
are; to vector registers (`dots`) a row of a tile of B is one register.
"""

from __future__ import annotations

import numpy as np

from latflow.fast.kernels.jit import jit

ROWS, PAIRED = 16, 32
"""Rows of a tile, and numbers of bfloat16 in one."""
BYTES = 64 * ROWS


@jit(inline="always")
def _rounded(x):  # pragma: no cover (compiled)
    """The bits of a float32 as those of bfloat16, to the nearest, ties to even; a NaN stays one."""
    near = (x + np.uint32(0x7FFF) + ((x >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (x & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.uint32(0x7FC0) if nan else near


def tiles(rows: int, columns: int) -> np.ndarray:
    """Room for the tiles of `rows` x `columns` of A; those of B have the axes of their size the other way round."""
    return np.empty((-(-rows // ROWS), -(-columns // PAIRED), ROWS, PAIRED), np.uint16)


@jit()
def left(x, out):  # pragma: no cover (compiled)
    """A = x as tiles."""
    bits = x.view(np.uint32)
    rows, columns = bits.shape
    whole = columns // 32
    for m in range(out.shape[0]):
        for r in range(16):
            if 16 * m + r >= rows:
                out[m, :, r] = 0
                continue
            row = bits[16 * m + r]
            for k in range(whole):
                part, to = row[32 * k : 32 * k + 32], out[m, k, r]
                for c in range(32):
                    to[c] = _rounded(part[c])
            for k in range(whole, out.shape[1]):
                to = out[m, k, r]
                for c in range(32):
                    to[c] = _rounded(row[32 * k + c]) if 32 * k + c < columns else np.uint16(0)


@jit()
def left_of_transposed(x, out):  # pragma: no cover (compiled)
    """A = xᵀ as tiles."""
    bits = x.view(np.uint32)
    columns, rows = bits.shape
    for k in range(out.shape[1]):
        for m in range(out.shape[0]):
            tile = out[m, k]
            present = min(16, rows - 16 * m)
            for c in range(32):
                if 32 * k + c < columns:
                    row = bits[32 * k + c, 16 * m : 16 * m + present]
                    for r in range(present):
                        tile[r, c] = _rounded(row[r])
                    tile[present:, c] = 0
                else:
                    tile[:, c] = 0


@jit()
def right(w, out):  # pragma: no cover (compiled)
    """B = w as tiles."""
    bits, pairs = w.view(np.uint32), out.view(np.uint32)  # a pair is two rows' numbers of a column
    rows, columns = bits.shape
    high = np.uint32(16)
    for k in range(out.shape[1]):
        for r in range(16):
            at = 32 * k + 2 * r
            if at >= rows:
                out[:, k, r] = 0
                continue
            first, second = bits[at], bits[min(at + 1, rows - 1)]
            keep = np.uint32(1) if at + 1 < rows else np.uint32(0)
            for n in range(out.shape[0]):
                to, present = pairs[n, k, r], min(16, columns - 16 * n)
                one, two = first[16 * n : 16 * n + present], second[16 * n : 16 * n + present]
                for c in range(present):
                    to[c] = _rounded(one[c]) | (keep * _rounded(two[c])) << high
                to[present:] = 0


@jit()
def right_of_transposed(w, out):  # pragma: no cover (compiled)
    """B = wᵀ as tiles."""
    bits = w.view(np.uint32)
    columns, rows = bits.shape
    for n in range(out.shape[0]):
        for c in range(16):
            if 16 * n + c >= columns:
                out[n, :, :, 2 * c : 2 * c + 2] = 0
                continue
            row = bits[16 * n + c]
            for k in range(out.shape[1]):
                for r in range(16):
                    for j in range(2):
                        at = 32 * k + 2 * r + j
                        out[n, k, r, 2 * c + j] = _rounded(row[at]) if at < rows else np.uint16(0)
