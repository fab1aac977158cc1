"""The LSTM as equations, over packed rows, with position features added to its gates; whole or one step at a time.

    i, f, o = σ(·),  g = tanh(·)  of  W x_t + U h_{t-1} + b + p_t
    c_t = f c_{t-1} + i g,   h_t = o tanh(c_t)

Why not `nn.LSTM`: the paper feeds every LSTM two one-hots of width max_T (supplement D). Their product with W is a
look-up of rows p_t, which `nn.LSTM` has no place for, and rows of different lengths are never padded here. Gates are
stored in the order of `nn.LSTM`, i, f, g, o.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows.network import linear, rounded_linear
from latflow.flows.packing import Packing
from latflow.flows.seam import replaceable
from latflow.shapes import Float

State = list[tuple[Tensor, Tensor]]
"""(h, c) of each layer, each (n, units)."""
Part = tuple[slice, Tensor, Tensor, Tensor]
"""One direction of a layer: its part of the gates, W, U and b."""
Product = Callable[..., Tensor]
"""(x, W, b) -> x Wᵀ + b."""
LSTMStep = Callable[[Tensor, State, Tensor | None], tuple[Tensor, State]]
"""(x_t, state, features) -> (h_t of the last layer, state): one step of a one-directional LSTM."""


class LSTM(nn.Module):
    """`layers` layers of `units`; both directions if `bidirectional`, whose outputs stand side by side.

    In training `dropout` acts on what one layer hands to the next, `recurrent_dropout` on the entries of U, the same
    ones at every step of every sequence of a batch (Merity et al. 2018): it alone reaches what h carries on.
    """

    rounded = False
    """In training, products of what is rounded to bfloat16 (`rounded_linear`)."""

    def __init__(
        self,
        input_size: int,
        units: int,
        layers: int,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ):
        super().__init__()
        self.units, self.layers, self.dropout = units, layers, dropout
        self.recurrent_dropout = recurrent_dropout
        self.directions = 2 if bidirectional else 1
        self.gate_size = self.directions * 4 * units
        """Width of what the first layer adds to its gates (`features` below)."""
        sizes = [input_size] + [self.directions * units] * (layers - 1)
        self.input_weight = nn.ParameterList(torch.empty(self.gate_size, size) for size in sizes)
        self.recurrent_weight = nn.ParameterList(
            torch.empty(self.directions, 4 * units, units) for _ in range(layers)
        )
        self.bias = nn.ParameterList(torch.empty(self.gate_size) for _ in range(layers))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(units), 1 / math.sqrt(units))

    def forward(
        self,
        x: Float[Tensor, "n input"],
        packing: Packing,
        features: Float[Tensor, "m gates"] | None = None,
        start: State | None = None,
    ) -> Float[Tensor, "n output"]:
        """The last layer's h of every row. `start` is the state before the first step (zeros if not given).

        `features` are added to the gates of the first layer: a row each, or one for those that stand side by side at
        the same place (`packing.places`). They say where in its sequence a step stands, and nothing else.
        """
        self.refuse_autocast()
        for layer in range(self.layers):
            zeros = x.new_zeros(packing.active[0], self.units)
            h, c = (zeros, zeros) if start is None else start[layer]
            x = self.whole(layer, x, packing, features if layer == 0 else None, h, c)
            if layer < self.layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x

    @replaceable
    def whole(
        self, layer: int, x: Tensor, packing: Packing, features: Tensor | None, h: Tensor, c: Tensor
    ) -> Tensor:
        """One layer over all rows, from h and c before the first step."""
        outputs = []
        for direction, (own, matrix, recurrent, bias) in enumerate(self.parts(layer)):
            gates = self.product(x, matrix, bias)
            if features is not None:
                gates = gates + features[:, own].repeat_interleave(len(gates) // len(features), 0)
            outputs.append(
                _recurrence(gates, self.product, recurrent, h, c, packing, backwards=direction == 1)
            )
        return torch.cat(outputs, -1)

    @replaceable
    def stepper(self) -> LSTMStep:
        """One step of a one-directional LSTM from a carried state: the same numbers as `forward`.

        The closure holds what all steps share. Its `features` are a row each or one for all.
        """
        self.refuse_autocast()
        weights = [next(self.parts(layer)) for layer in range(self.layers)]

        def step(x: Tensor, state: State, features: Tensor | None = None) -> tuple[Tensor, State]:
            new: State = []
            for layer, ((h, c), (_, matrix, recurrent, bias)) in enumerate(zip(state, weights, strict=True)):
                gates = self.product(x, matrix, bias) + self.product(h, recurrent)
                gates = gates + features if layer == 0 and features is not None else gates
                h, c = lstm_cell(gates, c)
                new.append((h, c))
                x = self.between(layer, h)
            return x, new

        return step

    @property
    def rounds(self) -> bool:
        """Whether products are of rounded numbers now."""
        return self.rounded and self.training

    @property
    def product(self) -> Product:
        """x Wᵀ + b as this pass computes it."""
        return rounded_linear if self.rounds else linear

    def between(self, layer: int, h: Tensor) -> Tensor:
        """What the next layer reads of this one; of the last, h itself."""
        return F.dropout(h, self.dropout, self.training) if layer < self.layers - 1 else h

    def parts(self, layer: int) -> Iterator[Part]:
        """The directions of a layer, with the U of this pass."""
        dropped = F.dropout(self.recurrent_weight[layer], self.recurrent_dropout, self.training)
        for direction in range(self.directions):
            own = slice(4 * self.units * direction, 4 * self.units * (direction + 1))
            yield (
                own,
                self.input_weight[layer][own],
                dropped[direction],
                self.bias[layer][own],
            )

    def refuse_autocast(self) -> None:
        if torch.is_autocast_enabled(self.bias[0].device.type):
            raise RuntimeError(
                "an LSTM computes in the dtype of its weights; leave torch.autocast off around it"
            )


def round_products(model: nn.Module, rounded: bool) -> None:
    """Whether every LSTM of a model rounds what it multiplies in training."""
    for module in model.modules():
        if isinstance(module, LSTM):
            module.rounded = rounded


@replaceable
def lstm_cell(gates: Float[Tensor, "n gates"], c: Float[Tensor, "n units"]) -> tuple[Tensor, Tensor]:
    """h_t and c_t from the summed gate inputs and c_{t-1}."""
    i, f, g, o = gates.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _recurrence(
    gates: Tensor,
    product: Product,
    recurrent: Tensor,
    h: Tensor,
    c: Tensor,
    packing: Packing,
    backwards: bool,
) -> Tensor:
    """h of all rows, given W x + b of all rows.

    The running state has a row for every sequence; step t touches the first n_t of them. So in either direction a
    sequence that has not begun keeps its starting state and one that has ended is left alone.
    """
    outputs: list[Tensor] = []
    steps = range(packing.steps)
    for t in reversed(steps) if backwards else steps:
        n = packing.active[t]
        new_h, new_c = lstm_cell(gates[packing.at(t)] + product(h[:n], recurrent), c[:n])
        h, c = torch.cat([new_h, h[n:]]), torch.cat([new_c, c[n:]])
        outputs.append(new_h)
    return torch.cat(outputs[::-1] if backwards else outputs)
