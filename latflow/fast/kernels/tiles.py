"""Products of bfloat16 numbers summed in float32, by the tile registers of newer processors (Intel's AMX).

Tiles are as in `arranged`; four sums of 16 x 16 are in registers at a time, and what is missing at the edge of C is
outside the tile. Called only where the processor has tiles (`latflow.fast.compiled.product_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from latflow.fast.kernels.arranged import BYTES, left
from latflow.fast.kernels.jit import jit

CACHED = 2**18
"""Numbers of A that stay in the processor's second cache while all of B passes by."""


def _instruction(name: str, tiles: tuple[int, ...], numbers: int) -> Callable[..., None]:
    """A tile instruction with its registers, for compiled code; its arguments are an address and a stride in bytes."""

    def emitted(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, pointer = ir.IntType(8), ir.IntType(8).as_pointer()
        values = [byte(tile) for tile in tiles]
        values += [builder.inttoptr(arg, pointer) if k == 0 else arg for k, arg in enumerate(args)]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        full = f"llvm.x86.{name}"
        builder.call(builder.module.globals.get(full) or ir.Function(builder.module, kind, full), values)
        return context.get_dummy_value()

    if numbers == 0:

        def typed(typing):  # pyright: ignore[reportRedeclaration]
            return types.void(), emitted
    elif numbers == 1:

        def typed(typing, address):  # pyright: ignore[reportRedeclaration]
            return types.void(types.intp), emitted
    else:

        def typed(typing, address, stride):
            return types.void(types.intp, types.intp), emitted

    return intrinsic(typed)  # type: ignore[return-value]


_configure = _instruction("ldtilecfg", (), 1)
_release = _instruction("tilerelease", (), 0)
# Registers 0 to 3 are the sums (upper left, upper right, lower left, lower right), 4 and 5 of A, 6 and 7 of B.
_zero0, _zero1, _zero2, _zero3 = (_instruction("tilezero", (tile,), 0) for tile in range(4))
_load0, _load1, _load2, _load3 = (_instruction("tileloadd64", (tile,), 2) for tile in range(4))
_upper, _lower, _left, _right = (_instruction("tileloadd64", (tile,), 2) for tile in range(4, 8))
_store0, _store1, _store2, _store3 = (_instruction("tilestored64", (tile,), 2) for tile in range(4))
_add0, _add1, _add2, _add3 = (
    _instruction("tdpbf16ps", tiles, 0) for tiles in ((0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7))
)


@jit(inline="always")
def _shape(config, tile, rows, columns):  # pragma: no cover (compiled)
    config[16 + 2 * tile] = 4 * columns
    config[48 + tile] = rows


@jit()
def multiply(a, b, c, add):  # pragma: no cover (compiled)
    """C = A B, or C += A B, of tiles a and b; c (rows, columns) of float32, its rows anywhere in memory."""
    rows, columns = c.shape
    steps, stride = a.shape[1], c.strides[0]
    config = np.zeros(64, np.uint8)
    config[0] = 1
    _shape(config, 4, 16, 16)
    _shape(config, 5, 16, 16)
    chunk = max(32, CACHED // (32 * steps) // 32 * 32)
    height0, height1, width0, width1 = 0, 0, 0, 0
    for begin in range(0, rows, chunk):
        for n in range(0, columns, 32):
            left0 = b.ctypes.data + n // 16 * steps * BYTES
            right0 = left0 + steps * BYTES
            for m in range(begin, min(begin + chunk, rows), 32):
                upper0 = a.ctypes.data + m // 16 * steps * BYTES
                lower0 = upper0 + steps * BYTES
                h0, h1 = min(16, rows - m), min(16, rows - m - 16)
                w0, w1 = min(16, columns - n), min(16, columns - n - 16)
                if h0 != height0 or h1 != height1 or w0 != width0 or w1 != width1:
                    height0, height1, width0, width1 = h0, h1, w0, w1
                    for tile in range(4):
                        height, width = h1 if tile > 1 else h0, w1 if tile % 2 else w0
                        # A tile that is not there has a shape all the same; no instruction touches it.
                        _shape(config, tile, max(height, 1), max(width, 1))
                    _shape(config, 4, h0, 16)
                    _shape(config, 5, max(h1, 1), 16)
                    _shape(config, 6, 16, w0)
                    _shape(config, 7, 16, max(w1, 1))
                    _configure(config.ctypes.data)
                at = c.ctypes.data + m * stride + 4 * n
                below = at + 16 * stride
                if add:
                    _load0(at, stride)
                    if w1 > 0:
                        _load1(at + 64, stride)
                    if h1 > 0:
                        _load2(below, stride)
                    if w1 > 0 and h1 > 0:
                        _load3(below + 64, stride)
                else:
                    _zero0()
                    _zero1()
                    _zero2()
                    _zero3()
                if h1 > 0 and w1 > 0:
                    for k in range(steps):
                        _left(left0 + k * BYTES, 64)
                        _right(right0 + k * BYTES, 64)
                        _upper(upper0 + k * BYTES, 64)
                        _lower(lower0 + k * BYTES, 64)
                        _add0()
                        _add1()
                        _add2()
                        _add3()
                elif h1 > 0:
                    for k in range(steps):
                        _left(left0 + k * BYTES, 64)
                        _upper(upper0 + k * BYTES, 64)
                        _lower(lower0 + k * BYTES, 64)
                        _add0()
                        _add2()
                elif w1 > 0:
                    for k in range(steps):
                        _left(left0 + k * BYTES, 64)
                        _right(right0 + k * BYTES, 64)
                        _upper(upper0 + k * BYTES, 64)
                        _add0()
                        _add1()
                else:
                    for k in range(steps):
                        _left(left0 + k * BYTES, 64)
                        _upper(upper0 + k * BYTES, 64)
                        _add0()
                _store0(at, stride)
                if w1 > 0:
                    _store1(at + 64, stride)
                if h1 > 0:
                    _store2(below, stride)
                if w1 > 0 and h1 > 0:
                    _store3(below + 64, stride)
    _release()


@jit()
def multiply_rows(x, room, b, c, add):  # pragma: no cover (compiled)
    """`multiply` by B of rows x, which are made tiles in `room`."""
    a = room[: (x.shape[0] + 15) // 16]
    left(x, a)
    multiply(a, b, c, add)
