"""Products of bfloat16 numbers summed in float32, by the dot products of pairs that AVX-512 processors with BF16 have.

Matrices are arranged as for tiles (`arranged`). Sums of 8 rows of A with 48 columns of B are in 24 registers while a
stretch of their rows and columns passes by. Called only where the processor has the instruction
(`latflow.fast.compiled.product_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from latflow.fast.kernels.arranged import BYTES, left
from latflow.fast.kernels.jit import jit

HEIGHT, PANELS = 8, 3
"""Rows of A, and tiles of 16 columns of B, whose sums are in registers."""
STRETCH, CHUNK = 32, 256
"""Tiles along a sum, and rows of A, that stay in the processor's second cache while all of B passes by."""


class _BFloat(ir.Type):
    """llvmlite does not name this type."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _block(panels: int) -> Callable[..., None]:
    """The sums of HEIGHT rows of A, from the address `a` on, with some tiles of columns of B, `stride` bytes apart from
    `b` on, over `count` tiles; written as rows of 16 x panels numbers at `out`."""
    whole, word = ir.IntType(64), ir.IntType(32)
    sums, words = ir.VectorType(ir.FloatType(), 16), ir.VectorType(word, 16)
    pairs = ir.VectorType(_BFloat(), 32)

    def emitted(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b, stride, count, out = args
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        kind = ir.FunctionType(sums, [sums, pairs, pairs])
        dot = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        zero, nothing = ir.Constant(sums, [0.0] * 16), ir.Constant(words, ir.Undefined)
        totals = [[cgutils.alloca_once_value(builder, zero) for _ in range(panels)] for _ in range(HEIGHT)]

        def at(address: Any, offset: Any, kind: Any) -> Any:
            return builder.inttoptr(builder.add(address, offset), kind.as_pointer())

        with cgutils.for_range(builder, count) as tile, cgutils.for_range(builder, whole(16)) as pair:
            begin = builder.mul(tile.index, whole(BYTES))
            row = builder.add(begin, builder.mul(pair.index, whole(64)))
            column = builder.add(begin, builder.mul(pair.index, whole(4)))
            right = []
            for panel in range(panels):
                place = builder.add(row, builder.mul(stride, whole(panel)))
                right.append(builder.bitcast(builder.load(at(b, place, words), align=4), pairs))
            for height in range(HEIGHT):
                one = builder.load(at(a, builder.add(column, whole(64 * height)), word), align=4)
                first = builder.insert_element(nothing, one, word(0))
                everywhere = builder.shuffle_vector(first, nothing, ir.Constant(words, [0] * 16))
                for total, panel in zip(totals[height], right, strict=True):
                    pair_sums = [builder.load(total), panel, builder.bitcast(everywhere, pairs)]
                    builder.store(builder.call(dot, pair_sums), total)
        for number, total in enumerate(total for row in totals for total in row):
            builder.store(builder.load(total), at(out, whole(64 * number), sums), align=4)
        return context.get_dummy_value()

    def typed(typing, a, b, stride, count, out):
        return types.void(*[types.intp] * 5), emitted

    return intrinsic(typed)  # type: ignore[return-value]


_one, _two, _three = (_block(panels) for panels in range(1, PANELS + 1))


@jit()
def multiply(a, b, c, add):  # pragma: no cover (compiled)
    """C = A B, or C += A B, of arranged a and b; c (rows, columns) of float32, its rows anywhere in memory."""
    rows, columns = c.shape
    steps, panels = a.shape[1], b.shape[0]
    sums = np.empty(HEIGHT * 16 * PANELS, np.float32)
    if not add:
        c[:] = 0
    for k in range(0, steps, STRETCH):
        count = min(STRETCH, steps - k)
        for begin in range(0, rows, CHUNK):
            for n in range(0, panels, PANELS):
                right = b.ctypes.data + (n * steps + k) * BYTES
                present = min(PANELS, panels - n)
                width = min(16 * present, columns - 16 * n)
                for m in range(begin, min(begin + CHUNK, rows), HEIGHT):
                    upper = a.ctypes.data + (m // 16 * steps + k) * BYTES + m % 16 * 64
                    if present == 3:
                        _three(upper, right, steps * BYTES, count, sums.ctypes.data)
                    elif present == 2:
                        _two(upper, right, steps * BYTES, count, sums.ctypes.data)
                    else:
                        _one(upper, right, steps * BYTES, count, sums.ctypes.data)
                    for r in range(min(HEIGHT, rows - m)):
                        to, own = c[m + r, 16 * n : 16 * n + width], sums[16 * present * r :]
                        for i in range(width):
                            to[i] += own[i]


@jit()
def multiply_rows(x, room, b, c, add):  # pragma: no cover (compiled)
    """`multiply` by B of rows x, which are arranged in `room`."""
    a = room[: (x.shape[0] + 15) // 16]
    left(x, a)
    multiply(a, b, c, add)
