"""Products of what is rounded to bfloat16, by the processor's tiles where it has them (`fast.kernels.tiles`).

Rounded numbers multiply without a rounding and sums are of float32 in both ways, so the twin differs from the
definition by the order of its sums alone. It works on one core.
"""

from __future__ import annotations

from functools import cached_property
from types import ModuleType

import torch
from torch import Tensor

from latflow.fast import compiled
from latflow.fast.first_order import first_order
from latflow.flows.network import rounded, rounded_linear
from latflow.shapes import Float


def _has_tiles(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    with torch.no_grad():
        return x.numel() > 0 and compiled.tile_kernels(x, weight) is not None


@rounded_linear.twin(_has_tiles)
def tiled_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _Product.apply(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """x Wᵀ + b."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None):
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        if bias is None:
            return _multiplied(x, right_of_transposed(weight), len(weight))
        tiles, product = kernels(), bias.detach().expand(len(x), -1).contiguous()
        tiles.multiply_rows(
            _array(x), tiles.tiles(*x.shape), right_of_transposed(weight), product.numpy(), True
        )
        return product

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        narrow = x.shape[1] <= grad.shape[1]
        grad_weight = transposed_times(x, grad).t() if narrow else transposed_times(grad, x)
        return (
            _multiplied(grad, right(weight), weight.shape[1]) if ctx.needs_input_grad[0] else None,
            grad_weight,
            grad.sum(0) if ctx.biased else None,
        )


class Products:
    """The products with one matrix U at every step of a pass of a recurrence, and of its gradient."""

    def __init__(self, weight: Float[Tensor, "gates units"]):
        self.weight, self.transposed = weight, weight.t()

    def add(self, h: Float[Tensor, "n units"], gates: Float[Tensor, "n gates"]) -> None:
        """gates += h Uᵀ."""
        gates.addmm_(h, self.transposed)

    def back(self, grad: Float[Tensor, "n gates"], out: Float[Tensor, "n units"]) -> None:
        """out = grad U."""
        torch.mm(grad, self.weight, out=out)

    def gradient(self, grad: Float[Tensor, "rows gates"], h: Float[Tensor, "rows units"]) -> Tensor:
        """gradᵀ h: that of U, of all rows."""
        return grad.t() @ h


class RoundedProducts(Products):
    """Of rounded numbers, multiplied as they are."""

    def __init__(self, weight: Tensor):
        super().__init__(rounded(weight))

    def add(self, h: Tensor, gates: Tensor) -> None:
        super().add(rounded(h), gates)

    def back(self, grad: Tensor, out: Tensor) -> None:
        super().back(rounded(grad), out)

    def gradient(self, grad: Tensor, h: Tensor) -> Tensor:
        return super().gradient(rounded(grad), rounded(h))


class TiledProducts(Products):
    """Of rounded numbers, by tiles. U is made tiles at the first step that needs it, once."""

    def __init__(self, weight: Tensor, rows: int):
        super().__init__(weight)
        self.tiles = kernels()
        self.gate_room = self.tiles.tiles(rows, len(weight))
        self.state_room = self.tiles.tiles(rows, weight.shape[1])

    @cached_property
    def forward_tiles(self):
        return right_of_transposed(self.weight)

    @cached_property
    def backward_tiles(self):
        return right(self.weight)

    def add(self, h: Tensor, gates: Tensor) -> None:
        self.tiles.multiply_rows(h.numpy(), self.state_room, self.forward_tiles, gates.numpy(), True)

    def back(self, grad: Tensor, out: Tensor) -> None:
        self.tiles.multiply_rows(grad.numpy(), self.gate_room, self.backward_tiles, out.numpy(), False)

    def gradient(self, grad: Tensor, h: Tensor) -> Tensor:
        return transposed_times(h, grad).t()


def products(weight: Tensor, rows: int, rounds: bool) -> Products:
    """How a recurrence of up to `rows` sequences multiplies with this U."""
    if not rounds:
        return Products(weight)
    return (
        TiledProducts(weight, rows) if compiled.tile_kernels(weight) is not None else RoundedProducts(weight)
    )


def kernels() -> ModuleType:
    from latflow.fast.kernels import tiles

    return tiles


def transposed_times(x: Float[Tensor, "n k"], y: Float[Tensor, "n m"]) -> Float[Tensor, "k m"]:
    """xᵀ y, of which x had better be the narrower."""
    tiles, product = kernels(), x.new_empty(x.shape[1], y.shape[1])
    a = tiles.tiles(x.shape[1], len(x))
    tiles.left_of_transposed(_array(x), a)
    tiles.multiply(a, right(y), product.numpy(), False)
    return product


def right(w: Float[Tensor, "k m"]):
    """w as the second factor of products."""
    tiles = kernels()
    out = tiles.tiles(w.shape[1], len(w))
    tiles.right(_array(w), out)
    return out


def right_of_transposed(w: Float[Tensor, "m k"]):
    """wᵀ as the second factor of products."""
    tiles = kernels()
    out = tiles.tiles(*w.shape)
    tiles.right_of_transposed(_array(w), out)
    return out


def _multiplied(x: Tensor, b, columns: int) -> Tensor:
    tiles, product = kernels(), x.new_empty(len(x), columns)
    tiles.multiply_rows(_array(x), tiles.tiles(*x.shape), b, product.numpy(), False)
    return product


def _array(x: Tensor):
    return x.detach().contiguous().numpy()
