"""One layer of a hidden flow dimension after dimension, for callers that choose z_d themselves.

p(z | context) = Π_d p(z_d | z_<d, context), and a layer gives the factors one by one: `raw` says what the parameters
of the next dimension are, `put` what was chosen there. Each unit of the masked network is computed once, as soon as
the dimensions that it sees are there, so that a walk costs one pass however many stops it makes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latflow.flows.hidden import Autoregressive, Elementwise, HiddenFlow
from latflow.flows.network import MADE
from latflow.shapes import Float, Int


def can_walk(flow: object) -> bool:
    """Whether its dimensions come one after the other: AF or nothing across hidden, in one layer."""
    return isinstance(flow, Autoregressive | Elementwise) and flow.layers == 1


class Walk:
    """Through the dimensions 0 … H-1 of n rows of context, for a flow that `can_walk`."""

    def __init__(self, flow: HiddenFlow, context: Float[Tensor, "n c"] | None, rows: int):
        if not can_walk(flow):
            raise ValueError(f"{type(flow).__name__} of {flow.layers} layers has no order of its dimensions")
        self.flow, self.at = flow, 0
        network = flow.network(0)
        (weights,) = flow.weights()
        self.matrices, self.biases = weights
        (share,) = flow.project(context)
        # A dimension or a unit is a row of memory: a step takes the next few of them.
        self.columns = self.biases[0].new_zeros(flow.size, rows)
        self.units: list[Tensor] = []
        self.starts: list[int] | None = None
        if isinstance(network, MADE):
            self.starts = network.starts
            self.units = [self.columns.new_empty(flow.units, rows) for _ in self.matrices[:-1]]
            self.units[0].copy_(self._added(self.biases[0], share.hidden))
            self.outputs = self.matrices[-1].unflatten(0, (-1, flow.size))
            self.start = self._added(self.biases[-1], share.raw).expand(-1, rows)
        else:  # the parameters of all dimensions are there from the start
            constant = flow.raw(0, self.columns[:0].t(), share, weights)
            self.start = constant.permute(2, 1, 0).flatten(0, 1)
        self.start = self.start.unflatten(0, (-1, flow.size))  # (p, h, n)

    @property
    def z(self) -> Float[Tensor, "n h"]:
        """What was put so far; zeros in the dimensions to come."""
        return self.columns.t()

    def raw(self, z: Float[Tensor, "n k"] | None = None) -> Float[Tensor, "n k p"]:
        """The raw parameters of the next dimension, k = 1, to be followed by `put`; or of the next k at once, whose z
        are given and put with it."""
        begin, end = self.at, self.at + (1 if z is None else z.shape[-1])
        if z is not None:
            self.columns[begin:end] = z.t()
            self.at = end
        raw = self.start[:, begin:end]
        if self.starts is not None:
            own, upto = slice(self.starts[begin], self.starts[end]), slice(0, self.starts[end])
            self.units[0][own].addmm_(self.matrices[0][own, : end - 1], self.columns[: end - 1]).relu_()
            for k in range(1, len(self.units)):
                bias, matrix = self.biases[k][own, None], self.matrices[k][own, upto]
                self.units[k][own] = torch.addmm(bias, matrix, self.units[k - 1][upto]).relu_()
            raw = raw + self.outputs[:, begin:end, upto] @ self.units[-1][upto]
        return raw.permute(2, 1, 0)

    @staticmethod
    def _added(bias: Tensor, share: Tensor | None) -> Tensor:
        """The bias with what the context adds to it, a row each."""
        return bias[:, None] if share is None else (bias + share).t()

    def put(self, z: Float[Tensor, "n"]) -> None:
        """z of the dimension that `raw` spoke of last."""
        self.columns[self.at] = z
        self.at += 1

    def draw(self, stop: int) -> None:
        """z_d ~ p(z_d | z_<d, context) for the dimensions up to `stop`."""
        dimensions = range(self.at, stop)
        drawn = self.flow.scalar.drawing(dimensions, self.z)
        for d in dimensions:
            self.put(drawn(d, self.raw()[:, 0]))

    def select(self, index: Int[Tensor, "m"]) -> None:
        """Go on with these rows."""
        self.columns, self.start = self.columns[:, index], self.start[..., index]
        self.units = [units[:, index] for units in self.units]
