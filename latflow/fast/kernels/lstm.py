"""The pointwise part of an LSTM step, compiled, in float32. Imported only where numba is installed."""

from __future__ import annotations

import numpy as np

from latflow.fast.kernels.jit import REASSOCIATE, jit


@jit(error_model="numpy", fastmath=REASSOCIATE)
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


@jit(error_model="numpy", fastmath=REASSOCIATE)
def lstm_cell(gates, c, h, tanh_c):  # pragma: no cover (compiled)
    """The pointwise part of an LSTM step in float32, one pass: σ(x) = ½ + ½ tanh(x/2).

    gates (n, 4 units) in the order i, f, g, o are overwritten with their values; c (n, units) is updated,
    h and `tanh_c` (n, units) are written.
    """
    units = c.shape[1]
    half = np.float32(0.5)
    for row in range(gates.shape[0]):
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


@jit()
def lstm_rows(gates, begin, end, c, h, output, h_before, c_before, tanh_c):  # pragma: no cover (compiled)
    """`lstm_cell` for the packed rows `begin` to `end` of a layer, whose states are the first of c and h.

    `output` and, if they have rows at all, what the backward pass needs are written beside it.
    """
    n, keep = end - begin, h_before.shape[0] > 0
    if keep:
        h_before[begin:end] = h[:n]
        c_before[begin:end] = c[:n]
    lstm_cell(gates[begin:end], c, h, tanh_c[begin:end] if keep else tanh_c[:n])
    output[begin:end] = h[:n]


@jit(error_model="numpy", fastmath=REASSOCIATE)
def lstm_rows_backward(
    gates, begin, end, c_before, tanh_c, grad, grad_h, grad_c, grad_gates
):  # pragma: no cover (compiled)
    """From the gradients of h_t, `grad` from outside and `grad_h` through the next step, and of c_t: that of the gates'
    inputs, and of c_{t-1} in the place of that of c_t."""
    units = c_before.shape[1]
    one = np.float32(1)
    for row in range(begin, end):
        gate, out = gates[row], grad_gates[row]
        i, f, g, o = gate[:units], gate[units : 2 * units], gate[2 * units : 3 * units], gate[3 * units :]
        grad_i, grad_f = out[:units], out[units : 2 * units]
        grad_g, grad_o = out[2 * units : 3 * units], out[3 * units :]
        before, squashed, outside = c_before[row], tanh_c[row], grad[row]
        dh, dc = grad_h[row - begin], grad_c[row - begin]
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
