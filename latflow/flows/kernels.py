"""Compiled fast paths, each equal to its torch twin to rounding. Imported only where numba is installed.

`made_forward` generates from a stack of masked flows. Dimension after dimension, each hidden unit is computed once,
as soon as the dimensions it sees are known: a unit of degree m waits for the first m dimensions, and degrees are
sorted, so the units that become known together lie side by side. A full pass of the network for every dimension
would cost H times as much.

    one row     products are dot products along the units, which the compiler turns into vector instructions
    many rows   a block of rows is transposed so that rows are innermost: every weight is read once for the block

Scalar maps are solved in float64 whatever the dtype of the tensors.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

_REASSOCIATE = {"reassoc", "contract", "nsz"}
BLOCK = 32
"""Rows of a block."""
AFFINE, NLSQ = 0, 1


def _jit(**options: Any) -> Callable:
    """numba.njit, kept on disk where a folder can be written."""

    def decorate(function: Callable) -> Callable:
        function = inspect.unwrap(function)  # the tests wrap every function to check shapes
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no folder for the cache: compile again in every process
            return numba.njit(nogil=True, **options)(function)

    return decorate


@_jit()
def nlsq_forward(eps, a, log_b, kappa, log_d, g):  # pragma: no cover (compiled)
    """z and log dz/deps of `NLSq.forward`, for one number."""
    w = (eps - a) * math.exp(log_d - log_b)
    low, high = w - max(kappa, 0.0), w - min(kappa, 0.0)
    delta = _cubic_root(g + w, kappa) - g
    delta = min(max(delta, low), high)
    for _ in range(12):
        u = g + delta
        r = 1 / (1 + u * u)
        value = delta + kappa * r - w
        if value < 0:
            low = delta
        elif value > 0:
            high = delta
        else:
            break
        new = delta - value / (1 - 2 * kappa * u * r * r)
        if not (low <= new <= high):
            new = 0.5 * (low + high)
        if abs(new - delta) <= 1e-15 * (1 + abs(new)):
            delta = new
            break
        delta = new
    u = g + delta
    r = 1 / (1 + u * u)
    return delta * math.exp(-log_d), -(log_b + math.log1p(-2 * kappa * (u * r) * r))


@_jit()
def _cubic_root(w, kappa):  # pragma: no cover (compiled)
    """Cardano's start, as in `scalar._cubic_root`."""
    if abs(w) > 20:
        return w - kappa / (1 + w * w)
    p = 1 - w * w / 3
    q = kappa - w * (2 / 3 + w * w * (2 / 27))
    radical = math.sqrt(max(q * q / 4 + p * p * p / 27, 0.0))
    cube = -(q / 2 + math.copysign(radical, q))
    s = math.copysign(abs(cube) ** (1 / 3), cube)
    if abs(s) < 1e-6:
        s = 1e-6
    return s - p / (3 * s) + w / 3


@_jit()
def _scalar_forward(kind, settings, eps, raw):  # pragma: no cover (compiled)
    if kind == AFFINE:
        log_b = settings[1] * raw[1]
        return raw[0] + math.exp(log_b) * eps, log_b
    kappa = settings[0] * math.tanh(settings[2] * raw[2])
    return nlsq_forward(eps, raw[0], settings[1] * raw[1], kappa, settings[3] * raw[3], raw[4])


@_jit(fastmath=_REASSOCIATE)
def _dot(a, b, start, stop):  # pragma: no cover (compiled)
    total = a[0] * 0
    for k in range(start, stop):
        total += a[k] * b[k]
    return total


@_jit()
def _one_row(z, context, first, between, biases, last, last_bias, starts, kind, settings):  # pragma: no cover
    """z (H,) holds eps and becomes z. `context` (J, units) is what the context adds to each layer's first units."""
    layers, units, size = first.shape
    depth, params = biases.shape[1], last.shape[1]
    hidden = np.empty((depth, units), z.dtype)
    raw = np.empty(params, np.float64)
    total = 0.0
    for layer in range(layers):
        for rank in range(size):
            reverse = layer % 2 == 1
            d = size - 1 - rank if reverse else rank
            low, high = (d + 1, size) if reverse else (0, d)
            for unit in range(starts[rank], starts[rank + 1]):
                value = biases[layer, 0, unit] + context[layer, unit] + _dot(first[layer, unit], z, low, high)
                hidden[0, unit] = max(value, value * 0)
            known = starts[rank + 1]
            for k in range(1, depth):
                for unit in range(starts[rank], known):
                    value = biases[layer, k, unit] + _dot(
                        between[layer, k - 1, unit], hidden[k - 1], 0, known
                    )
                    hidden[k, unit] = max(value, value * 0)
            for p in range(params):
                raw[p] = last_bias[layer, p, d] + _dot(last[layer, p, d], hidden[depth - 1], 0, known)
            value, logdet = _scalar_forward(kind, settings, z[d], raw)
            z[d] = value
            total += logdet
    return total


@_jit()
def _fill(out, bias, matrix, rows, start, stop):  # pragma: no cover (compiled)
    """out[b] = bias + Σ_k matrix[k] rows[k, b]: one unit for a block of rows."""
    for b in range(out.shape[0]):
        out[b] = bias
    for k in range(start, stop):
        weight = matrix[k]
        row = rows[k]
        for b in range(out.shape[0]):
            out[b] += weight * row[b]


@_jit()
def _block(
    z, logdet, context, first, between, biases, last, last_bias, starts, kind, settings
):  # pragma: no cover
    """The same for z (H, B) and context (J, units, B), rows innermost."""
    layers, units, size = first.shape
    depth, params, width = biases.shape[1], last.shape[1], z.shape[1]
    hidden = np.empty((depth, units, width), z.dtype)
    raw = np.empty((params, width), z.dtype)
    one = np.empty(params, np.float64)
    for layer in range(layers):
        for rank in range(size):
            reverse = layer % 2 == 1
            d = size - 1 - rank if reverse else rank
            low, high = (d + 1, size) if reverse else (0, d)
            known = starts[rank + 1]
            for unit in range(starts[rank], known):
                out = hidden[0, unit]
                _fill(out, biases[layer, 0, unit], first[layer, unit], z, low, high)
                for b in range(width):
                    value = out[b] + context[layer, unit, b]
                    out[b] = max(value, value * 0)
            for k in range(1, depth):
                for unit in range(starts[rank], known):
                    out = hidden[k, unit]
                    _fill(out, biases[layer, k, unit], between[layer, k - 1, unit], hidden[k - 1], 0, known)
                    for b in range(width):
                        out[b] = max(out[b], out[b] * 0)
            for p in range(params):
                _fill(raw[p], last_bias[layer, p, d], last[layer, p, d], hidden[depth - 1], 0, known)
            for b in range(width):
                for p in range(params):
                    one[p] = raw[p, b]
                value, log_slope = _scalar_forward(kind, settings, z[d, b], one)
                z[d, b] = value
                logdet[b] += log_slope


@_jit()
def made_forward(
    eps, context, first, between, biases, last, last_bias, starts, kind, settings
):  # pragma: no cover
    """z (n, H) and log |det dz/deps| (n,) of J layers.

    eps (n, H); context (n, J, units); first (J, units, H), between (J, depth - 1, units, units) and
    last (J, params, H, units) are masked; biases (J, depth, units), last_bias (J, params, H); starts (H + 1,) says
    where the units of each degree begin.
    """
    n = eps.shape[0]
    z, total = eps.copy(), np.zeros(n, eps.dtype)
    if n < 4:
        for row in range(n):
            total[row] = _one_row(
                z[row], context[row], first, between, biases, last, last_bias, starts, kind, settings
            )
        return z, total
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        columns = np.ascontiguousarray(z[begin:end].T)
        given = np.empty((context.shape[1], context.shape[2], end - begin), eps.dtype)
        for b in range(end - begin):
            for layer in range(context.shape[1]):
                for unit in range(context.shape[2]):
                    given[layer, unit, b] = context[begin + b, layer, unit]
        logdet = np.zeros(end - begin, np.float64)
        _block(columns, logdet, given, first, between, biases, last, last_bias, starts, kind, settings)
        z[begin:end] = columns.T
        total[begin:end] = logdet
    return z, total


@_jit(error_model="numpy", fastmath=_REASSOCIATE)
def _tanh(x):  # pragma: no cover (compiled)
    """tanh in float32 to 3e-7 as a quotient of polynomials (Eigen's), which, unlike a call to the C library, becomes
    vector instructions."""
    limit = np.float32(7.90531110763549805)
    x = limit if x > limit else x
    x = -limit if x < -limit else x
    s = x * x
    p = np.float32(-2.76076847742355e-16) * s + np.float32(2.00018790482477e-13)
    p = p * s + np.float32(-8.60467152213735e-11)
    p = p * s + np.float32(5.12229709037114e-08)
    p = p * s + np.float32(1.48572235717979e-05)
    p = p * s + np.float32(6.37261928875436e-04)
    p = p * s + np.float32(4.89352455891786e-03)
    q = np.float32(1.19825839466702e-06) * s + np.float32(1.18534705686654e-04)
    q = q * s + np.float32(2.26843463243900e-03)
    q = q * s + np.float32(4.89352518554385e-03)
    return x * p / q


@_jit(error_model="numpy", fastmath=_REASSOCIATE)
def lstm_cell(gates, c, h, tanh_c):  # pragma: no cover (compiled)
    """The pointwise part of an LSTM step in float32, one pass: σ(x) = ½ + ½ tanh(x/2).

    gates (n, 4 units) in the order i, f, g, o are overwritten with their values; c (n, units) is updated,
    h and `tanh_c` (n, units) are written.
    """
    n, units = c.shape
    half = np.float32(0.5)
    for row in range(n):
        # Short loops over few arrays: the compiler must see that they do not overlap to make them vectors.
        gate, c_row, h_row, tanh_row = gates[row], c[row], h[row], tanh_c[row]
        i, f, g, o = gate[:units], gate[units : 2 * units], gate[2 * units : 3 * units], gate[3 * units :]
        for k in range(2 * units):
            gate[k] = half + half * _tanh(half * gate[k])
        for k in range(units):
            g[k] = _tanh(g[k])
        for k in range(units):
            o[k] = half + half * _tanh(half * o[k])
        for k in range(units):
            c_row[k] = f[k] * c_row[k] + i[k] * g[k]
        for k in range(units):
            tanh_row[k] = _tanh(c_row[k])
        for k in range(units):
            h_row[k] = o[k] * tanh_row[k]


@_jit(error_model="numpy", fastmath=_REASSOCIATE)
def lstm_cell_backward(
    gates, c_before, tanh_c, grad, grad_h, grad_c, grad_gates
):  # pragma: no cover (compiled)
    """From the gradients of h_t, `grad` from outside and `grad_h` through the next step, and of c_t: that of the gates'
    inputs, and of c_{t-1} in the place of that of c_t."""
    n, units = c_before.shape
    one = np.float32(1)
    for row in range(n):
        gate, out = gates[row], grad_gates[row]
        i, f, g, o = gate[:units], gate[units : 2 * units], gate[2 * units : 3 * units], gate[3 * units :]
        grad_i, grad_f = out[:units], out[units : 2 * units]
        grad_g, grad_o = out[2 * units : 3 * units], out[3 * units :]
        before, squashed, dh, dc, outside = c_before[row], tanh_c[row], grad_h[row], grad_c[row], grad[row]
        for k in range(units):
            dh[k] += outside[k]
        for k in range(units):
            grad_o[k] = dh[k] * squashed[k] * (o[k] * (one - o[k]))
        for k in range(units):
            dc[k] += dh[k] * o[k] * (one - squashed[k] * squashed[k])
        for k in range(units):
            grad_i[k] = dc[k] * g[k] * (i[k] * (one - i[k]))
        for k in range(units):
            grad_f[k] = dc[k] * before[k] * (f[k] * (one - f[k]))
        for k in range(units):
            grad_g[k] = dc[k] * i[k] * (one - g[k] * g[k])
        for k in range(units):
            dc[k] *= f[k]
