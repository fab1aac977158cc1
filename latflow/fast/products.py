"""The products of a recurrence with its matrix U: one at every step of a pass, with the same U each time.

A product of a few rows with a large matrix spends a good part of its time arranging that matrix for the cache. Where U
is large it is arranged once for all steps of a pass: by oneDNN, which comes with torch, or, with numbers rounded to
bfloat16, for the kernels that multiply those.
"""

from __future__ import annotations

from functools import cache, cached_property

import torch
from torch import Tensor

from latflow.fast import compiled
from latflow.fast.rounded import arranged, kernels, right, right_of_transposed, transposed_times
from latflow.flows.network import rounded
from latflow.shapes import Float

LARGE = 2**18
"""Numbers in U from which on arranging it once pays, in a pass of at least `LONG` steps."""
LONG = 32


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
        return (h.t() @ grad).t()


class PackedProducts(Products):
    """With U arranged for the cache at the first step that needs it, once."""

    def __init__(self, weight: Tensor, rows: int):
        super().__init__(weight)
        self.rows = rows

    @cached_property
    def forward_packed(self) -> Tensor:
        return _packed(self.weight, self.rows)

    @cached_property
    def backward_packed(self) -> Tensor:
        return _packed(self.transposed, self.rows)

    def add(self, h: Tensor, gates: Tensor) -> None:
        gates.add_(_times(h, self.forward_packed))

    def back(self, grad: Tensor, out: Tensor) -> None:
        out.copy_(_times(grad, self.backward_packed))


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


class CompiledRoundedProducts(Products):
    """Of rounded numbers, by instructions for them. U is arranged at the first step that needs it, once."""

    def __init__(self, weight: Tensor, rows: int):
        super().__init__(weight)
        self.kernels = kernels()
        self.gate_room = arranged().tiles(rows, len(weight))
        self.state_room = arranged().tiles(rows, weight.shape[1])

    @cached_property
    def forward_arranged(self):
        return right_of_transposed(self.weight)

    @cached_property
    def backward_arranged(self):
        return right(self.weight)

    def add(self, h: Tensor, gates: Tensor) -> None:
        self.kernels.multiply_rows(h.numpy(), self.state_room, self.forward_arranged, gates.numpy(), True)

    def back(self, grad: Tensor, out: Tensor) -> None:
        self.kernels.multiply_rows(grad.numpy(), self.gate_room, self.backward_arranged, out.numpy(), False)

    def gradient(self, grad: Tensor, h: Tensor) -> Tensor:
        return transposed_times(h, grad).t()


def products(weight: Tensor, rows: int, steps: int, rounds: bool) -> Products:
    """How a recurrence of up to `rows` sequences multiplies with this U in `steps` steps."""
    if rounds:
        able = compiled.product_kernels(weight) is not None
        return CompiledRoundedProducts(weight, rows) if able else RoundedProducts(weight)
    large = weight.numel() >= LARGE and steps >= LONG
    return PackedProducts(weight, rows) if large and _can_pack(weight) else Products(weight)


def _can_pack(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and _has_packing()


@cache
def _has_packing() -> bool:
    """Whether this torch has oneDNN, and in it the calls that its own compiler uses for linear layers."""
    ops = torch.ops.mkldnn
    return torch.backends.mkldnn.is_available() and all(
        hasattr(ops, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def _packed(weight: Float[Tensor, "m k"], rows: int) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)


def _times(x: Float[Tensor, "n k"], packed: Tensor) -> Float[Tensor, "n m"]:
    """x Wᵀ."""
    return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
