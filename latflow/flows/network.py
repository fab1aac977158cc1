"""The networks that put out raw scalar parameters: masked (MADE), for coupling, and without inputs.

All are the same small perceptron; they differ in which inputs an output may see. The context enters as `hidden`,
already projected to the width of the first hidden layer, so that the contexts of J layers are one GEMM.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latflow.flows.seam import replaceable
from latflow.shapes import Float

INITIAL_RANGE = 1e-3
"""Hidden weights start within ±this, so that every flow starts near the identity (as in the authors' code)."""


@replaceable
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b."""
    return F.linear(x, weight, bias)


@replaceable
def rounded_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b with x and W rounded to bfloat16 before they are multiplied, and so is the gradient of the product in
    the backward pass; sums are of x's own precision."""
    product = _RoundedProduct.apply(x, weight)
    return product if bias is None else product + bias


class _RoundedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor):
        x, weight = rounded(x), rounded(weight)
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        grad = rounded(grad)
        return grad @ weight, grad.flatten(0, -2).t() @ x.flatten(0, -2)


def rounded(x: Tensor) -> Tensor:
    """To eight bits of mantissa, in x's own dtype."""
    return x.bfloat16().to(x.dtype)


class Weights(NamedTuple):
    """A network's layers as they are applied: masks already in."""

    matrices: Sequence[Tensor]
    biases: Sequence[Tensor]


class Conditioner(nn.Module):
    """raw = MLP(y, hidden): `depth` hidden layers of `units`, to `outputs` × `n_params` numbers.

    The outputs are laid out with the parameter axis first and viewed with it last, so that taking one parameter of
    all outputs reads contiguous memory. `start` (outputs, n_params) is where the bias of the outputs begins; zeros
    if it is not given. Dropout acts on the hidden units.
    """

    dropout = 0.0

    def __init__(
        self,
        inputs: int,
        outputs: int,
        n_params: int,
        units: int,
        depth: int,
        start: Float[Tensor, "outputs p"] | None = None,
    ):
        super().__init__()
        if depth < 1:
            raise ValueError(f"a conditioner needs at least one hidden layer, not {depth}")
        self.inputs, self.outputs, self.n_params, self.units = inputs, outputs, n_params, units
        widths = [inputs] + [units] * depth + [outputs * n_params]
        self.matrices = nn.ParameterList(torch.empty(out, into) for into, out in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(out) for out in widths[1:])
        with torch.no_grad():
            for matrix in self.matrices[:-1]:
                matrix.uniform_(-INITIAL_RANGE, INITIAL_RANGE)
            self.matrices[-1].uniform_(-1 / math.sqrt(units), 1 / math.sqrt(units))
            if start is not None:
                self.biases[-1].copy_(start.t().flatten())

    def weights(self) -> Weights:
        """What a pass needs, computed once for however many steps it has."""
        return Weights(list(self.matrices), list(self.biases))

    def forward(
        self,
        y: Float[Tensor, "*n inputs"],
        hidden: Float[Tensor, "*n units"] | None = None,
        weights: Weights | None = None,
    ) -> Float[Tensor, "*n outputs p"]:
        matrices, biases = self.weights() if weights is None else weights
        y = linear(y, matrices[0], biases[0])
        y = y if hidden is None else y + hidden
        for matrix, bias in zip(matrices[1:], biases[1:], strict=True):
            y = linear(F.dropout(F.relu(y), self.dropout, self.training), matrix, bias)
        return self.parameters_last(y)

    def parameters_last(self, flat: Float[Tensor, "*n k"]) -> Float[Tensor, "*n outputs p"]:
        """Raw parameters as the last layer lays them out, the parameter axis first, with it last."""
        return flat.unflatten(-1, (self.n_params, self.outputs)).transpose(-1, -2)


class MADE(Conditioner):
    """A masked network (Germain et al. 2015): the parameters of dimension d see y_<d, in the given order, only.

    Hidden units have degrees 0 … H-1, spread evenly and sorted; a unit of degree m sees the first m dimensions, and
    the parameters of the d-th dimension (from 0) see units of degree at most d. Degree 0 sees the context alone: so
    does the first dimension.
    """

    def __init__(
        self,
        size: int,
        n_params: int,
        units: int,
        depth: int,
        reverse: bool = False,
        start: Float[Tensor, "outputs p"] | None = None,
    ):
        super().__init__(size, size, n_params, units, depth, start)
        if units < size:
            raise ValueError(
                f"a masked network over {size} dimensions needs at least {size} units per layer, one for each "
                f"degree, not {units}"
            )
        rank = torch.arange(size)
        rank = rank.flip(0) if reverse else rank
        self.reverse = reverse
        self.degrees: list[int] = [unit * size // units for unit in range(units)]
        self.starts: list[int] = [bisect_left(self.degrees, degree) for degree in range(size + 1)]
        """Where the units of each degree begin; the last entry is `units`."""
        hidden = torch.tensor(self.degrees)
        masks = [hidden[:, None] > rank[None, :]]
        masks += [hidden[:, None] >= hidden[None, :]] * (depth - 1)
        masks += [(rank[:, None] >= hidden[None, :]).repeat(n_params, 1)]
        for layer, mask in enumerate(masks):
            self.register_buffer(f"mask{layer}", mask, persistent=False)

    def weights(self) -> Weights:
        masked = [matrix * self.get_buffer(f"mask{layer}") for layer, matrix in enumerate(self.matrices)]
        return Weights(masked, list(self.biases))
