"""Products of what is rounded to bfloat16, by the processor's tiles where it has them (`fast.kernels.tiles`).

Rounded numbers multiply without a rounding and sums are of float32 in both ways, so the twin differs from the
definition by the order of its sums alone. It works on one core.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from latflow.fast import compiled
from latflow.fast.first_order import first_order
from latflow.flows.network import rounded_linear
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
