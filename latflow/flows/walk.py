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

BLOCK = 16
"""Dimensions that are guessed together."""


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
            self.given = self._added(self.biases[0], share.hidden).expand(-1, rows).contiguous()
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
        if z is None:
            return self._raw(self.at + 1)
        begin, self.at = self.at, self.at + z.shape[-1]
        self.columns[begin : self.at] = z.t()
        return self._raw(self.at, begin)

    def _raw(self, end: int, begin: int | None = None) -> Float[Tensor, "n k p"]:
        """Those of `begin` (by itself, the next) to `end`, by what stands before each."""
        begin = self.at if begin is None else begin
        raw = self.start[:, begin:end]
        if self.starts is not None:
            own, upto = slice(self.starts[begin], self.starts[end]), slice(0, self.starts[end])
            added, seen = self.given[own], self.columns[: end - 1]
            for k, units in enumerate(self.units):
                if k > 0:
                    added, seen = self.biases[k][own, None], self.units[k - 1][upto]
                units[own] = torch.addmm(added, self.matrices[k][own, : len(seen)], seen).relu_()
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
        """z_d ~ p(z_d | z_<d, context) for the dimensions up to `stop`.

        Where z_d is one of few values by noise that is drawn beforehand, some dimensions are decided at once: guessed,
        and decided again by what the guess says of their parameters, until nothing changes. Each round settles one
        dimension at least, so what stands is what deciding one after the other gives; mostly two or three rounds do.
        """
        decide = self.flow.scalar.drawing(range(self.at, stop), self.z)
        while self.at < stop:
            if decide is None:
                self.put(self.flow.scalar.at(self.at).draw(self.raw()[:, 0]))
                continue
            here = slice(self.at, min(self.at + BLOCK, stop))
            found = decide(here, self.start[:, here].permute(2, 1, 0))
            for _ in range(here.start, here.stop):
                self.columns[here] = found.t()
                guess, found = found, decide(here, self._raw(here.stop))
                if torch.equal(found, guess):
                    break
            self.columns[here] = found.t()
            self.at = here.stop

    def select(self, index: Int[Tensor, "m"]) -> None:
        """Go on with these rows."""
        self.columns, self.start = self.columns[:, index], self.start[..., index]
        self.units = [units[:, index] for units in self.units]
        if self.starts is not None:
            self.given = self.given[:, index]
