"""Products of what is rounded to bfloat16, where the processor has instructions for them: tiles (`fast.kernels.tiles`)
or dot products of pairs (`fast.kernels.dots`).

Rounded numbers multiply without a rounding and sums are of float32 in both ways, so the twin differs from the
definition by the order of its sums alone. It works on one core.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from latflow.fast import compiled
from latflow.fast.first_order import first_order
from latflow.flows.network import rounded_linear
from latflow.shapes import Float


def _multiplied_by_kernels(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    with torch.no_grad():
        return x.numel() > 0 and compiled.product_kernels(x, weight) is not None


@rounded_linear.twin(_multiplied_by_kernels)
def compiled_rounded_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _Product.apply(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """x Wᵀ + b."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None):
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        if bias is None:
            return _multiplied(x, right_of_transposed(weight), len(weight))
        product, room = bias.detach().expand(len(x), -1).contiguous(), arranged().tiles(*x.shape)
        kernels().multiply_rows(_array(x), room, right_of_transposed(weight), product.numpy(), True)
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
    """What multiplies here."""
    return import_module(f"latflow.fast.kernels.{compiled.multiplies()}")


def arranged() -> ModuleType:
    """What brings matrices into the order that this takes."""
    from latflow.fast.kernels import arranged

    return arranged


def transposed_times(x: Float[Tensor, "n k"], y: Float[Tensor, "n m"]) -> Float[Tensor, "k m"]:
    """xᵀ y, of which x had better be the narrower."""
    product, a = x.new_empty(x.shape[1], y.shape[1]), arranged().tiles(x.shape[1], len(x))
    arranged().left_of_transposed(_array(x), a)
    kernels().multiply(a, right(y), product.numpy(), False)
    return product


def right(w: Float[Tensor, "k m"]):
    """w as the second factor of products."""
    out = arranged().tiles(w.shape[1], len(w))
    arranged().right(_array(w), out)
    return out


def right_of_transposed(w: Float[Tensor, "m k"]):
    """wᵀ as the second factor of products."""
    out = arranged().tiles(*w.shape)
    arranged().right_of_transposed(_array(w), out)
    return out


def _multiplied(x: Tensor, b, columns: int) -> Tensor:
    product = x.new_empty(len(x), columns)
    kernels().multiply_rows(_array(x), arranged().tiles(*x.shape), b, product.numpy(), False)
    return product


def _array(x: Tensor):
    return x.detach().contiguous().numpy()
