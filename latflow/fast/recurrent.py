"""Twins of the LSTM: its backward pass by hand over packed rows, torch's fused layer, compiled pointwise parts.

The input projection of all steps is one GEMM, so are the weight gradients, and the pointwise part of a step is one
compiled call. Where nothing stands in the way torch's own fused layer does the work.
"""

from __future__ import annotations

from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from latflow.fast import compiled
from latflow.fast.first_order import first_order
from latflow.fast.linear import DeferredWeight, across, defer, linear, linear_across
from latflow.fast.products import Products, products
from latflow.flows.packing import Packing
from latflow.flows.recurrent import LSTM, LSTMStep, Part, State
from latflow.flows.recurrent import lstm_cell as definition_of_cell
from latflow.shapes import Float

SMALL = 2**17
"""Up to this many gates the compiled pointwise kernel, on one core, beats torch's ten calls on several."""
SHORT = 8
"""Below this many steps torch's fused layer, which arranges its weights anew in every call, does not pay."""
CHUNK = 256
"""Steps in one call of torch's fused layer, which takes the positions as one-hots of that width."""


def _can_fuse(
    lstm: LSTM, layer: int, x: Tensor, packing: Packing, features: Tensor | None, h: Tensor, c: Tensor
) -> bool:
    """Whether torch's fused LSTM may do the work: without gradients, in float32 on the CPU, of one length."""
    return (
        not torch.is_grad_enabled()
        and not lstm.rounds
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and packing.steps >= SHORT
        and packing.active[-1] == packing.active[0]
    )


@LSTM.whole.twin(_can_fuse)
def fused_layer(
    lstm: LSTM, layer: int, x: Tensor, packing: Packing, features: Tensor | None, h: Tensor, c: Tensor
) -> Tensor:
    """By torch's own LSTM, for sequences of one length: with one row it uses all cores, which a matrix times a vector
    does not, and its pointwise part is one call."""
    steps, n = packing.steps, packing.active[0]
    x, directions = x.view(steps, n, -1), list(lstm.parts(layer))
    columns = None if features is None else features.view(steps, -1, lstm.gate_size)[:, 0]
    if columns is None or steps <= CHUNK:
        return _torch_lstm(x, columns, directions, h, c)[0].view(steps * n, -1)
    outputs = []
    for number, direction in enumerate(directions):
        inputs, given = (x.flip(0), columns.flip(0)) if number == 1 else (x, columns)
        parts, state = [], (h, c)
        for begin in range(0, steps, CHUNK):
            at = slice(begin, begin + CHUNK)
            part, *state = _torch_lstm(inputs[at], given[at], [direction], *state)
            parts.append(part)
        outputs.append(torch.cat(parts).flip(0) if number == 1 else torch.cat(parts))
    return torch.cat(outputs, -1).view(steps * n, -1)


@LSTM.whole.twin(lambda *_: True)
def packed_layer(
    lstm: LSTM, layer: int, x: Tensor, packing: Packing, features: Tensor | None, h: Tensor, c: Tensor
) -> Tensor:
    """On rows of any lengths."""
    outputs = []
    for direction, (own, matrix, recurrent, bias) in enumerate(lstm.parts(layer)):
        gates = lstm.product(x, matrix, bias)
        shared = None if features is None else features[:, own]
        outputs.append(
            _Recurrence.apply(gates, shared, recurrent, h, c, packing, direction == 1, lstm.rounds)
        )
    return outputs[0] if lstm.directions == 1 else torch.cat(outputs, -1)


class GateStep:
    """The stepper with (W U) and b of each layer prepared once, so that their gradients are one GEMM each.

    Called without x, W x + b of the first layer is in `features` already.
    """

    def __init__(self, lstm: LSTM):
        lstm.refuse_autocast()
        self.lstm = lstm
        parts = (next(lstm.parts(layer)) for layer in range(lstm.layers))
        self.weights = [
            defer(torch.cat([matrix, recurrent], 1), bias) for _, matrix, recurrent, bias in parts
        ]

    def __call__(
        self, x: Tensor | None, state: State, features: Tensor | None = None
    ) -> tuple[Tensor, State]:
        new_state: State = []
        output = state[-1][0]
        for layer, ((h, c), weight) in enumerate(zip(state, self.weights, strict=True)):
            recurrent_matrix = weight.matrix[:, -self.lstm.units :]
            gates = F.linear(h, recurrent_matrix) if x is None else _gates(x, h, weight)
            if layer == 0 and features is not None:
                gates = gates + features
            output, c = lstm_cell(gates, c)
            new_state.append((output, c))
            x = self.lstm.between(layer, output)
        return output, new_state


@LSTM.stepper.twin(lambda lstm: not lstm.rounds)
def deferred_stepper(lstm: LSTM) -> LSTMStep:
    """Weight gradients are one GEMM over all steps."""
    return GateStep(lstm)


def _torch_lstm(
    x: Float[Tensor, "t n input"],
    columns: Float[Tensor, "t gates"] | None,
    directions: list[Part],
    h: Tensor,
    c: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """A layer by torch's fused call: all steps of its output, and the states at the end.

    It has no place for features in the gates. As the sequences share them, those of a step are a column of its input
    matrix, which a one-hot picks.
    """
    weights = []
    for own, matrix, recurrent, bias in directions:
        matrix = matrix if columns is None else torch.cat([matrix, columns[:, own].t()], 1)
        weights += [matrix, recurrent, bias, torch.zeros_like(bias)]
    if columns is not None:
        hot = torch.eye(len(x), dtype=x.dtype)[:, None].expand(-1, x.shape[1], -1)
        x = torch.cat([x, hot], -1)
    both = len(directions) == 2
    state = [part.expand(len(directions), x.shape[1], -1).contiguous() for part in (h, c)]
    return torch.lstm(x, state, weights, True, 1, 0.0, False, both, False)


def _gates(x: Tensor, h: Tensor, weight: DeferredWeight) -> Float[Tensor, "n gates"]:
    """W x + U h + b."""
    if across(len(h)):
        return linear_across(torch.cat([x.t(), h.t()]), weight)
    return linear(torch.cat([x, h], -1), weight)


@definition_of_cell.twin(lambda *_: True)
def lstm_cell(gates: Float[Tensor, "n gates"], c: Float[Tensor, "n units"]) -> tuple[Tensor, Tensor]:
    """h_t and c_t from the summed gate inputs and c_{t-1}."""
    if torch.is_grad_enabled() or (kernels := _kernels(gates.numel(), gates, c)) is None:
        h, c = _Cell.apply(gates, c)
        return h, c
    if across := not gates.is_contiguous():  # rows innermost: for a pointwise map that is one long row
        gates, c = gates.t(), c.t()
    c = c.detach().clone(memory_format=torch.contiguous_format)
    h, tanh_c = torch.empty_like(c), torch.empty_like(c)
    width = c.numel() if across else c.shape[-1]
    kernels.lstm_cell(
        gates.detach().reshape(-1, 4 * width).numpy(), *(a.view(-1, width).numpy() for a in (c, h, tanh_c))
    )
    return (h.t(), c.t()) if across else (h, c)


class _Cell(torch.autograd.Function):
    """The pointwise part of a step, as one node of the graph."""

    @staticmethod
    def forward(ctx, gates: Tensor, c: Tensor):
        values, units = gates.contiguous().clone(), c.shape[-1]
        if (kernels := _kernels(gates.numel(), gates, c)) is not None:
            new_c = c.contiguous().clone()
            h, tanh_c = torch.empty_like(new_c), torch.empty_like(new_c)
            kernels.lstm_cell(*(a.numpy() for a in (values, new_c, h, tanh_c)))
        else:
            values[..., : 2 * units].sigmoid_()
            values[..., 2 * units : 3 * units].tanh_()
            values[..., 3 * units :].sigmoid_()
            i, f, g, o = values.chunk(4, -1)
            new_c = torch.addcmul(f * c, i, g)
            tanh_c = new_c.tanh()
            h = o * tanh_c
        ctx.save_for_backward(values, c, tanh_c)
        return h, new_c

    @staticmethod
    @first_order
    def backward(ctx, grad_h: Tensor, grad_c: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        values, c, tanh_c = ctx.saved_tensors
        if (kernels := _kernels(values.numel(), values, c, grad_h, grad_c)) is not None:
            before, grad_gates, through = (
                grad_c.contiguous().clone(),
                torch.empty_like(values),
                grad_h.clone(),
            )
            zeros = torch.zeros_like(through)
            arrays = (c, tanh_c, zeros, through, before, grad_gates)
            kernels.lstm_rows_backward(values.numpy(), 0, len(values), *(a.numpy() for a in arrays))
            return grad_gates, before
        i, f, g, o = values.chunk(4, -1)
        grad_c = torch.addcmul(grad_c, grad_h * o, 1 - tanh_c.square())
        parts = (
            grad_c * g * (i * (1 - i)),
            grad_c * c * (f * (1 - f)),
            grad_c * i * (1 - g.square()),
            grad_h * tanh_c * (o * (1 - o)),
        )
        return torch.cat(parts, -1), grad_c * f


class _Recurrence(torch.autograd.Function):
    """One layer in one direction over packed rows, given the gate inputs W x + b of all rows and the features that
    are added to them, each row of which serves as many rows as stand side by side.

    The running state has a row for every sequence; step t touches the first n_t of them. So in either direction a
    sequence that has not begun keeps its starting state and one that has ended is left alone.

    The gate inputs are overwritten with the gates: they are as large as all else together, and the caller has no
    further use for them.
    """

    @staticmethod
    def forward(
        ctx,
        inputs: Tensor,
        features: Tensor | None,
        weight: Tensor,
        h0: Tensor,
        c0: Tensor,
        packing: Packing,
        backwards: bool,
        rounds: bool,
    ):
        rows, units = len(inputs), weight.shape[1]
        keep = any(ctx.needs_input_grad)
        ctx.packing, ctx.backwards = packing, backwards
        ctx.products = products(weight, packing.active[0], packing.steps, rounds)
        gates = inputs.data
        ctx.shared = None if features is None else len(features)
        if features is not None:
            gates.view(len(features), -1, 4 * units).add_(features[:, None])
        h_before, c_before, tanh_c = (gates.new_empty(rows if keep else 0, units) for _ in range(3))
        output, working = gates.new_empty(rows, units), gates.new_empty(packing.active[0], units)
        h, c = h0.clone(), c0.clone()
        if (kernels := _kernels(packing.active[0] * 4 * units, gates)) is not None:
            states = (c, h, output, h_before, c_before, tanh_c if keep else working)
            arrays = tuple(state.numpy() for state in states)
            gate_array = gates.numpy()
            for t in _time_order(packing, backwards):
                begin, end = packing.offsets[t : t + 2]
                ctx.products.add(h[: end - begin], gates[begin:end])
                kernels.lstm_rows(gate_array, begin, end, *arrays)
        else:
            for t in _time_order(packing, backwards):
                at, n = packing.at(t), packing.active[t]
                gate, h_n, c_n, tanh_n = gates[at], h[:n], c[:n], tanh_c[at] if keep else working[:n]
                if keep:
                    h_before[at] = h_n
                    c_before[at] = c_n
                ctx.products.add(h_n, gate)
                gate[:, : 2 * units].sigmoid_()
                i, f, g, o = gate.chunk(4, -1)
                g.tanh_()
                o.sigmoid_()
                c_n.mul_(f).addcmul_(i, g)
                torch.tanh(c_n, out=tanh_n)
                torch.mul(o, tanh_n, out=h_n)
                output[at] = h_n
        if keep:
            ctx.save_for_backward(weight, gates, h_before, c_before, tanh_c)
        return output

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        _, gates, h_before, c_before, tanh_c = ctx.saved_tensors
        packing: Packing = ctx.packing
        multiply: Products = ctx.products
        grad, (rows, units) = grad.contiguous(), h_before.shape
        grad_gates = gates.new_empty(rows, 4 * units)
        grad_h, grad_c = (gates.new_zeros(packing.active[0], units) for _ in range(2))
        order = reversed(_time_order(packing, ctx.backwards))
        if (kernels := _kernels(packing.active[0] * 4 * units, gates, grad)) is not None:
            gate_array = gates.numpy()
            arrays = tuple(a.numpy() for a in (c_before, tanh_c, grad, grad_h, grad_c, grad_gates))
            for t in order:
                begin, end = packing.offsets[t : t + 2]
                kernels.lstm_rows_backward(gate_array, begin, end, *arrays)
                multiply.back(grad_gates[begin:end], grad_h[: end - begin])
        else:
            one = gates.new_ones(())
            # Working space of one step, which stays in the cache.
            slope = gates.new_empty(packing.active[0], units)
            wide = gates.new_empty(packing.active[0], 2 * units)
            for t in order:
                at, n = packing.at(t), packing.active[t]
                gate, squashed, out = gates[at], tanh_c[at], grad_gates[at]
                dh, dc, s, w = grad_h[:n], grad_c[:n], slope[:n], wide[:n]
                i, f, g, o = gate.chunk(4, -1)
                grad_i, grad_f, grad_g, grad_o = out.chunk(4, -1)
                dh.add_(grad[at])
                # dc_t += dh_t o (1 - tanh² c_t)
                torch.mul(dh, squashed, out=grad_o)
                torch.mul(dh, o, out=s)
                dc.add_(s).addcmul_(s.mul_(squashed), squashed, value=-1)
                torch.mul(dc, g, out=grad_i)
                torch.mul(dc, c_before[at], out=grad_f)
                torch.mul(dc, i, out=grad_g)
                both = gate[:, : 2 * units]
                out[:, : 2 * units].mul_(torch.addcmul(both, both, both, value=-1, out=w))
                grad_g.mul_(torch.addcmul(one, g, g, value=-1, out=s))
                grad_o.mul_(torch.addcmul(o, o, o, value=-1, out=s))
                dc.mul_(f)
                multiply.back(out, dh)
        grad_features = None
        if ctx.shared is not None:
            alone = ctx.shared == rows
            grad_features = grad_gates if alone else grad_gates.view(ctx.shared, -1, 4 * units).sum(1)
        return (
            grad_gates,
            grad_features,
            multiply.gradient(grad_gates, h_before),
            grad_h,
            grad_c,
            None,
            None,
            None,
        )


def _kernels(gates: int, *tensors: Tensor) -> ModuleType | None:
    """The compiled pointwise part, where it is faster for so many gates at a step."""
    if gates > SMALL and torch.get_num_threads() > 1:
        return None
    return compiled.lstm_kernels(*tensors)


def _time_order(packing: Packing, backwards: bool) -> range:
    return range(packing.steps - 1, -1, -1) if backwards else range(packing.steps)
