"""An LSTM over packed rows, with position features added to its gates, whole or one step at a time.

    o, i, f = σ(·),  g = tanh(·)  of  W x_t + U h_{t-1} + b + p_t
    c_t = f c_{t-1} + i g,   h_t = o tanh(c_t)

Why not `nn.LSTM`: the paper feeds every LSTM two one-hots of width max_T (supplement D). Their product with W is a
look-up of rows p_t, which `nn.LSTM` has no place for. Here the input projection of all steps is one GEMM, so are
the weight gradients, and rows of different lengths are never padded. Gates are stored in the order o, i, f, g.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows import fast
from latflow.flows.deferred import DeferredWeight, defer, linear
from latflow.flows.packing import Packing
from latflow.shapes import Float

SMALL = 8192
"""Up to this many gates the compiled pointwise kernel, on one core, beats torch's ten calls."""

State = list[tuple[Tensor, Tensor]]
"""(h, c) of each layer, each (n, units)."""


class LSTM(nn.Module):
    """`layers` layers of `units`; both directions if `bidirectional`, whose outputs stand side by side."""

    def __init__(
        self, input_size: int, units: int, layers: int, *, bidirectional: bool = False, dropout: float = 0.0
    ):
        super().__init__()
        self.units, self.layers, self.dropout = units, layers, dropout
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

        `features` are added to the gates of the first layer: a row each, or one for the copies of a sequence that
        stand side by side (`packing.single`).
        """
        for layer in range(self.layers):
            gates = F.linear(x, self.input_weight[layer], self.bias[layer])
            if layer == 0 and features is not None:
                gates = _add_shared(gates, features)
            h, c = self._zero_state(packing, x) if start is None else start[layer]
            outputs = [
                _Recurrence.apply(part, weight, h, c, packing, direction == 1)
                for direction, (part, weight) in enumerate(
                    zip(gates.chunk(self.directions, -1), self.recurrent_weight[layer], strict=True)
                )
            ]
            x = outputs[0] if self.directions == 1 else torch.cat(outputs, -1)
            if layer < self.layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x

    def prepare(self) -> list[tuple[DeferredWeight, DeferredWeight]]:
        """(W and b, U) of each layer for a pass of many calls to `step`, whose weight gradients then are one GEMM."""
        return [
            (defer(self.input_weight[layer], self.bias[layer]), defer(self.recurrent_weight[layer][0]))
            for layer in range(self.layers)
        ]

    def step(
        self,
        x: Float[Tensor, "n input"],
        state: State,
        features: Float[Tensor, "n gates"] | None = None,
        weights: list[tuple[DeferredWeight, DeferredWeight]] | None = None,
    ) -> tuple[Float[Tensor, "n units"], State]:
        """One step of a one-directional LSTM from a carried state: the same numbers as `forward`."""
        weights = self.prepare() if weights is None else weights
        new_state: State = []
        for layer, ((h, c), (input_weight, recurrent_weight)) in enumerate(zip(state, weights, strict=True)):
            gates = linear(x, input_weight) + linear(h, recurrent_weight)
            if layer == 0 and features is not None:
                gates = gates + features
            h, c = lstm_cell(gates, c)
            new_state.append((h, c))
            x = F.dropout(h, self.dropout, self.training) if layer < self.layers - 1 else h
        return x, new_state

    def _zero_state(self, packing: Packing, like: Tensor) -> tuple[Tensor, Tensor]:
        zeros = like.new_zeros(packing.active[0], self.units)
        return zeros, zeros


def lstm_cell(gates: Float[Tensor, "n gates"], c: Float[Tensor, "n units"]) -> tuple[Tensor, Tensor]:
    """h_t and c_t from the summed gate inputs and c_{t-1}."""
    if gates.numel() <= SMALL and (kernels := fast.single_precision(gates, c)) is not None:
        h, c = torch.empty_like(c), c.detach().clone(memory_format=torch.contiguous_format)
        kernels.lstm_cell(gates.detach().numpy(), c.numpy(), h.numpy(), h.numpy())
        return h, c
    h, c = _Cell.apply(gates, c)
    return h, c


class _Cell(torch.autograd.Function):
    """The pointwise part of a step, as one node of the graph."""

    @staticmethod
    def forward(ctx, gates: Tensor, c: Tensor):
        units = c.shape[-1]
        sigmoids, g = gates[..., : 3 * units].sigmoid(), gates[..., 3 * units :].tanh()
        o, i, f = sigmoids.chunk(3, -1)
        new_c = torch.addcmul(f * c, i, g)
        tanh_c = new_c.tanh()
        ctx.save_for_backward(sigmoids, g, c, tanh_c)
        return o * tanh_c, new_c

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h: Tensor, grad_c: Tensor):
        sigmoids, g, c, tanh_c = ctx.saved_tensors
        o, i, f = sigmoids.chunk(3, -1)
        grad = torch.empty(*c.shape[:-1], 4 * c.shape[-1], dtype=c.dtype, device=c.device)
        grad_o, grad_i, grad_f, grad_g = grad.chunk(4, -1)
        torch.mul(grad_h, tanh_c, out=grad_o)
        grad_c = torch.addcmul(grad_c, grad_h * o, torch.addcmul(torch.ones_like(g[..., :1]), tanh_c, tanh_c, value=-1))
        torch.mul(grad_c, g, out=grad_i)
        torch.mul(grad_c, c, out=grad_f)
        torch.mul(grad_c, i, out=grad_g)
        grad[..., : 3 * c.shape[-1]].mul_(sigmoids * (1 - sigmoids))
        grad_g.mul_(1 - g.square())
        return grad, grad_c * f


class _Recurrence(torch.autograd.Function):
    """One layer in one direction over packed rows, given the gate inputs W x + b of all rows.

    The running state has a row for every sequence; step t touches the first n_t of them. So in either direction a
    sequence that has not begun keeps its starting state and one that has ended is left alone.

    The gate inputs are overwritten with the gates: they are as large as all else together, and the caller has no
    further use for them.
    """

    @staticmethod
    def forward(ctx, inputs: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, packing: Packing, backwards: bool):
        rows, units = len(inputs), weight.shape[1]
        keep = any(ctx.needs_input_grad)
        ctx.packing, ctx.backwards = packing, backwards
        gates = inputs.data  # not `detach`: the caller may hold the two directions as views of one tensor
        h_before, c_before, tanh_c = (gates.new_empty(rows if keep else 0, units) for _ in range(3))
        output = gates.new_empty(rows, units)
        transposed = weight.t()
        h, c = h0.clone(), c0.clone()
        kernels = None if keep or packing.active[0] * 4 * units > SMALL else fast.single_precision(gates)
        for t in _time_order(packing, backwards):
            at, n = packing.at(t), packing.active[t]
            gate, h_n, c_n = gates[at], h[:n], c[:n]
            gate.addmm_(h_n, transposed)
            if kernels is not None:
                kernels.lstm_cell(gate.numpy(), c_n.numpy(), h_n.numpy(), output[at].numpy())
                continue
            if keep:
                h_before[at] = h_n
                c_before[at] = c_n
            gate[:, : 3 * units].sigmoid_()
            o, i, f, g = gate.chunk(4, -1)
            g.tanh_()
            c_n.mul_(f).addcmul_(i, g)
            squashed = torch.tanh(c_n, out=tanh_c[at]) if keep else c_n.tanh()
            torch.mul(o, squashed, out=h_n)
            output[at] = h_n
        if keep:
            ctx.save_for_backward(weight, gates, h_before, c_before, tanh_c)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor):
        weight, gates, h_before, c_before, tanh_c = ctx.saved_tensors
        packing: Packing = ctx.packing
        rows, units = len(gates), weight.shape[1]
        one = gates.new_ones(())
        grad_gates = gates.new_empty(rows, 4 * units)
        grad_h, grad_c = (gates.new_zeros(packing.active[0], units) for _ in range(2))
        # Working space of one step, which stays in the cache.
        slope, wide = gates.new_empty(packing.active[0], units), gates.new_empty(packing.active[0], 3 * units)
        for t in reversed(_time_order(packing, ctx.backwards)):
            at, n = packing.at(t), packing.active[t]
            gate, out, squashed = gates[at], grad_gates[at], tanh_c[at]
            o, i, f, g = gate.chunk(4, -1)
            grad_o, grad_i, grad_f, grad_g = out.chunk(4, -1)
            dh, dc, s, w = grad_h[:n], grad_c[:n], slope[:n], wide[:n]
            dh.add_(grad[at])
            # dc_t += dh_t o (1 - tanh² c_t)
            torch.mul(dh, squashed, out=grad_o)
            torch.mul(dh, o, out=s)
            dc.add_(s).addcmul_(s.mul_(squashed), squashed, value=-1)
            torch.mul(dc, g, out=grad_i)
            torch.mul(dc, c_before[at], out=grad_f)
            torch.mul(dc, i, out=grad_g)
            sigmoids = gate[:, : 3 * units]
            out[:, : 3 * units].mul_(torch.addcmul(sigmoids, sigmoids, sigmoids, value=-1, out=w))
            grad_g.mul_(torch.addcmul(one, g, g, value=-1, out=s))
            dc.mul_(f)
            torch.mm(out, weight, out=dh)
        return grad_gates, grad_gates.t() @ h_before, grad_h, grad_c, None, None


def _add_shared(gates: Float[Tensor, "n gates"], features: Float[Tensor, "m gates"]) -> Float[Tensor, "n gates"]:
    """gates + features, in place, where each row of features serves n/m rows."""
    copies = len(gates) // len(features)
    gates.view(len(features), copies, -1).add_(features[:, None])
    return gates


def _time_order(packing: Packing, backwards: bool) -> range:
    return range(packing.steps - 1, -1, -1) if backwards else range(packing.steps)
