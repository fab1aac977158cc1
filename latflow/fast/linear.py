"""Linear maps applied step by step whose weight gradients are one product over all steps.

Autograd would multiply and add a gradient of the size of the weights at every step of a serial pass: T products of
few rows each and T sums over the whole matrix. Here a step's backward pass computes the gradient of its input and
leaves its rows behind; when the last step is done the weight takes Σ_t g_tᵀ x_t, one GEMM over all rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from latflow.fast.first_order import first_order
from latflow.flows import network

NARROW = 16
"""Below this many columns a weight gradient is several times as fast the other way round, (xᵀ g)ᵀ."""


FEW = 16
"""Below this many rows a product has them in front, as usual."""


class DeferredWeight(NamedTuple):
    """A matrix (and bias) prepared for `linear` at every step of one serial pass."""

    matrix: Tensor
    bias: Tensor | None
    tape: _Tape


class _Tape:
    """The rows that the steps of one backward pass leave behind."""

    def __init__(self) -> None:
        self.task = -1
        self.inputs: list[Tensor] = []
        self.grads: list[Tensor] = []

    def add(self, x: Tensor, grad: Tensor) -> None:
        self._begin()
        self.inputs.append(x)
        self.grads.append(grad)

    def take(self) -> tuple[list[Tensor], list[Tensor]]:
        self._begin()
        rows = self.inputs, self.grads
        self.inputs, self.grads = [], []
        return rows

    def _begin(self) -> None:
        # A graph may be walked more than once, and a walk that does not reach the weights never takes its rows.
        task = torch._C._current_graph_task_id()
        if task != self.task:
            self.task, self.inputs, self.grads = task, [], []


def defer(matrix: Tensor, bias: Tensor | None = None) -> DeferredWeight:
    """Prepare a weight for one serial pass. Without gradients it is the weight itself."""
    tape = _Tape()
    if not torch.is_grad_enabled():
        return DeferredWeight(matrix, bias, tape)
    if bias is None:
        return DeferredWeight(_Collect.apply(matrix, tape), None, tape)
    matrix, bias = _CollectBoth.apply(matrix, bias, tape)
    return DeferredWeight(matrix, bias, tape)


@network.linear.twin(lambda x, weight, bias=None: isinstance(weight, DeferredWeight))
def step_linear(x: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b of a weight that was prepared for a serial pass, its bias included."""
    return linear(x, weight)


@network.linear.twin(lambda x, weight, bias=None: weight.shape[1] < NARROW and torch.is_grad_enabled())
def narrow_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b of few columns: autograd multiplies in the order of the strides."""
    return F.linear(x, weight.t().contiguous().t(), bias)


def linear(x: Tensor, weight: DeferredWeight) -> Tensor:
    """x Wᵀ + b of a prepared weight."""
    if not torch.is_grad_enabled():
        return F.linear(x, weight.matrix, weight.bias)
    return _StepLinear.apply(x, weight.matrix, weight.bias, weight.tape)


def across(rows: int) -> bool:
    """Whether a step's product without gradients is better the other way round, W times columns.

    With several threads and few rows it is up to 1.5 times as fast, for what is shared out between the threads then
    is W. Its result lies in memory with the rows innermost.
    """
    return rows >= FEW and torch.get_num_threads() > 1 and not torch.is_grad_enabled()


def linear_across(columns: Tensor, weight: DeferredWeight) -> Tensor:
    """`linear` of the transposed x, given and computed across; x Wᵀ + b again."""
    if weight.bias is None:
        return (weight.matrix @ columns).t()
    return torch.addmm(weight.bias[:, None], weight.matrix, columns).t()


def _total(tape: _Tape, matrix: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """What the steps left, and what came by the ordinary way from uses other than `linear`."""
    inputs, grads = tape.take()
    if grads:
        grad = torch.cat(grads)
        rows, total = torch.cat(inputs), grad.sum(0)
        product = (rows.t() @ grad).t() if rows.shape[1] < NARROW else grad.t() @ rows
        matrix = product if matrix is None else matrix + product
        bias = total if bias is None else bias + total
    return matrix, bias


class _Collect(torch.autograd.Function):
    """A weight; its gradient is what the steps left on the tape."""

    @staticmethod
    def forward(ctx, matrix: Tensor, tape: _Tape):
        ctx.tape = tape
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    @first_order
    def backward(ctx, matrix: Tensor | None):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _total(ctx.tape, matrix, None)[0], None


class _CollectBoth(torch.autograd.Function):
    """A weight and its bias."""

    @staticmethod
    def forward(ctx, matrix: Tensor, bias: Tensor, tape: _Tape):
        ctx.tape = tape
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix), bias.view_as(bias)

    @staticmethod
    @first_order
    def backward(ctx, matrix: Tensor | None, bias: Tensor | None):  # pyright: ignore[reportIncompatibleMethodOverride]
        return *_total(ctx.tape, matrix, bias), None


class _StepLinear(torch.autograd.Function):
    """One step's product."""

    @staticmethod
    def forward(ctx, x: Tensor, matrix: Tensor, bias: Tensor | None, tape: _Tape):
        ctx.tape = tape
        ctx.save_for_backward(x, matrix)
        return F.linear(x, matrix, bias)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, matrix = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.tape.add(x.flatten(0, -2), grad.flatten(0, -2))
        return grad @ matrix if ctx.needs_input_grad[0] else None, None, None, None
