"""One layer of a hidden flow dimension after dimension, for callers that choose z_d themselves.

p(z | context) = Π_d p(z_d | z_<d, context), and a layer gives the factors one by one: `raw` says what the parameters
of the next dimension are, `put` what was chosen there. Each unit of the masked network is computed once, as soon as
the dimensions that it sees are there, so that a walk costs one pass however many stops it makes.
"""

from __future__ import annotations

import torch.nn.functional as F
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
        (self.share,) = flow.project(context)
        self.z = self.biases[0].new_zeros(rows, flow.size)
        """What was put so far; zeros in the dimensions to come."""
        self.units: list[Tensor] = []
        self.starts: list[int] | None = None
        if isinstance(network, MADE):
            self.starts = network.starts
            self.units = [self.z.new_zeros(rows, flow.units) for _ in self.matrices[:-1]]
            self.outputs = tuple(self._outputs(part) for part in (self.matrices[-1], self.biases[-1]))
        else:  # the parameters of all dimensions are there from the start
            self.constant = flow.raw(0, self.z[:, :0], self.share, weights)

    def raw(self, z: Float[Tensor, "n k"] | None = None) -> Float[Tensor, "n k p"]:
        """The raw parameters of the next dimension, k = 1, to be followed by `put`; or of the next k at once, whose z
        are given and put with it."""
        begin, end = self.at, self.at + (1 if z is None else z.shape[-1])
        if z is not None:
            self.z[:, begin:end] = z
            self.at = end
        if self.starts is None:
            return self.constant[:, begin:end]
        own, upto = slice(self.starts[begin], self.starts[end]), slice(0, self.starts[end])
        y = F.linear(self.z[:, : end - 1], self.matrices[0][own, : end - 1], self.biases[0][own])
        y = y if self.share.hidden is None else y + self.share.hidden[:, own]
        self.units[0][:, own] = F.relu(y)
        for k in range(1, len(self.units)):
            y = F.linear(self.units[k - 1][:, upto], self.matrices[k][own, upto], self.biases[k][own])
            self.units[k][:, own] = F.relu(y)
        matrix, bias = self.outputs
        raw = F.linear(
            self.units[-1][:, upto], matrix[:, begin:end, upto].flatten(0, 1), bias[:, begin:end].flatten()
        )
        raw = raw.view(len(raw), -1, end - begin)  # (n, p, k)
        if self.share.raw is not None:
            raw = raw + self.share.raw.view(len(raw), -1, self.flow.size)[..., begin:end]
        return raw.transpose(-1, -2)

    def _outputs(self, flat: Tensor) -> Tensor:
        """The rows of the last layer, the parameter first, then the dimension."""
        return flat.unflatten(0, (self.flow.scalar.n_params, self.flow.size))

    def put(self, z: Float[Tensor, "n"]) -> None:
        """z of the dimension that `raw` spoke of last."""
        self.z[:, self.at] = z
        self.at += 1

    def select(self, index: Int[Tensor, "m"]) -> None:
        """Go on with these rows."""
        self.z, self.units = self.z[index], [units[index] for units in self.units]
        hidden, raw = self.share
        self.share = type(self.share)(*(None if part is None else part[index] for part in (hidden, raw)))
        if self.starts is None:
            self.constant = self.constant[index]
