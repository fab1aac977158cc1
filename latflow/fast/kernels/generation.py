"""Compiled generation, equal to its torch twin to rounding. Imported only where numba is installed.

`made_forward` generates from a stack of masked flows. Dimension after dimension, each hidden unit is computed once,
as soon as the dimensions it sees are known: a unit of degree m waits for the first m dimensions, and degrees are
sorted, so the units that become known together lie side by side. A full pass of the network for every dimension
would cost H times as much.

    one row     products are dot products along the units, which the compiler turns into vector instructions
    many rows   a block of rows is transposed so that rows are innermost: every weight is read once for the block

Scalar maps are solved in float64 whatever the dtype of the tensors, for a block in loops without calls or branches:
exp, tanh and the cube root are therefore written out here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from latflow.fast.kernels.jit import REASSOCIATE, STRAIGHT, jit

BLOCK = 32
"""Rows of a block; the last is filled up."""
AFFINE, NLSQ = 0, 1


def _intrinsic(function: Callable) -> Any:
    """numba's, with a type that lets it be called without its first argument."""
    return intrinsic(inspect.unwrap(function))


@jit(**STRAIGHT)
def _exp_parts(x):  # pragma: no cover (compiled)
    """2^n and e^r - 1 of e^x = 2^n e^r, |r| <= log(2)/2, in float64 to a rounding, for |x| <= 700.

    Adding 1.5 · 2^52 leaves n in the lowest bits, from where a shift takes it to the exponent's.
    """
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    n = shifted - 6755399441055744.0
    power = np.int64((np.float64(shifted).view(np.int64) << 52) + 0x3FF0000000000000).view(np.float64)
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    p = r * (1 / 6227020800) + 1 / 479001600
    p = p * r + 1 / 39916800
    p = p * r + 1 / 3628800
    p = p * r + 1 / 362880
    p = p * r + 1 / 40320
    p = p * r + 1 / 5040
    p = p * r + 1 / 720
    p = p * r + 1 / 120
    p = p * r + 1 / 24
    p = p * r + 1 / 6
    p = p * r + 0.5
    return power, p * (r * r) + r


@jit(**STRAIGHT)
def _exp(x):  # pragma: no cover (compiled)
    """e^x; beyond ±700, where float64 soon ends, that of ±700."""
    x = 700.0 if x > 700.0 else x
    x = -700.0 if x < -700.0 else x
    power, rest = _exp_parts(x)
    return power + power * rest


@jit(**STRAIGHT)
def _tanh64(x):  # pragma: no cover (compiled)
    """-m / (2 + m) for x > 0, m = e^(-2x) - 1: nothing cancels, whatever the size of x."""
    double = -2 * abs(x)
    double = -40.0 if double < -40.0 else double
    power, rest = _exp_parts(double)
    m = power * rest + (power - 1)
    value = m / (2 + m)
    return value if x < 0 else -value


@jit(**STRAIGHT)
def _cbrt(x):  # pragma: no cover (compiled)
    """The cube root of a normal x > 0 to 1e-5: a third of the exponent bits, then a step of Halley's method."""
    third = (np.float64(x).view(np.uint64) >> np.uint64(32)) * np.uint64(0x55555556)
    s = np.uint64(third + np.uint64(0x2A9F789300000000)).view(np.float64)
    cube = s * s * s
    return s * (cube + 2 * x) / (2 * cube + x)


@jit(**STRAIGHT)
def _cubic_root(w, kappa):  # pragma: no cover (compiled)
    """Cardano's start, as in `scalar._cubic_root`; beyond |w| = 20, w itself is close enough."""
    p = 1 - w * w * (1 / 3)
    q = kappa - w * (2 / 3 + w * w * (2 / 27))
    discriminant = q * q * (1 / 4) + p * p * p * (1 / 27)
    radical = math.sqrt(discriminant if discriminant > 0 else 0.0)
    cube = abs(q) * 0.5 + radical
    s = _cbrt(cube if cube > 1e-18 else 1e-18)
    t = s - p / (3 * s)
    near = w * (1 / 3) + (t if q < 0 else -t)
    return near if abs(w) <= 20 else w


@jit(**STRAIGHT)
def _newton(delta, w, kappa, g):  # pragma: no cover (compiled)
    """h(δ) = δ + κ / (1 + (g + δ)²) - w of `NLSq.forward`, and its slope."""
    u = g + delta
    r = 1 / (1 + u * u)
    return delta + kappa * r - w, 1 - 2 * kappa * (u * r) * r


@jit(**STRAIGHT)
def _root(w, kappa, g):  # pragma: no cover (compiled)
    """The root of h after two steps of Newton's method, and by how much the last was too long to be the last.

    The start is so close that two steps do for every w, κ and g, unless alpha is very near 1. A step of 1e-9 leaves
    less than a rounding; with δ or g large, steps cannot be shorter than roundings of these.
    """
    delta = _cubic_root(g + w, kappa) - g
    low, high = w - max(kappa, 0.0), w - min(kappa, 0.0)
    delta = low if delta < low else delta
    delta = high if delta > high else delta
    value, slope = _newton(delta, w, kappa, g)
    delta -= value / slope
    value, slope = _newton(delta, w, kappa, g)
    step = value / slope
    delta -= step
    return delta, abs(step) - (1e-9 + 1e-14 * (abs(delta) + abs(g)))


@jit(**STRAIGHT)
def _bracketed_root(w, kappa, g):  # pragma: no cover (compiled)
    """The root of h by Newton's method, by bisection wherever a step would leave the bracket: always converges."""
    low, high = w - max(kappa, 0.0), w - min(kappa, 0.0)
    delta = 0.5 * (low + high)
    for _ in range(100):
        value, slope = _newton(delta, w, kappa, g)
        if value < 0:
            low = delta
        else:
            high = delta
        new = delta - value / slope
        if not (low <= new <= high):
            new = 0.5 * (low + high)
        if abs(new - delta) <= 1e-15 * (1 + abs(new)):
            return new
        delta = new
    return delta


@jit(**STRAIGHT)
def nlsq_forward(eps, a, log_b, kappa, log_d, g):  # pragma: no cover (compiled)
    """z and log dz/deps of `NLSq.forward`, for one number."""
    d = _exp(log_d)
    w = (eps - a) * d * _exp(-log_b)
    delta, excess = _root(w, kappa, g)
    if excess > 0:
        delta = _bracketed_root(w, kappa, g)
    return delta / d, -(log_b + math.log(_newton(delta, w, kappa, g)[1]))


@jit(**STRAIGHT)
def _scalar_forward(kind, settings, eps, raw):  # pragma: no cover (compiled)
    if kind == AFFINE:
        log_b = settings[1] * raw[1]
        return raw[0] + _exp(log_b) * eps, log_b
    kappa = settings[0] * _tanh64(settings[2] * raw[2])
    return nlsq_forward(eps, raw[0], settings[1] * raw[1], kappa, settings[3] * raw[3], raw[4])


@jit()
def scalar_forward(eps, raw, begin, kind, settings, z, logdet):  # pragma: no cover (compiled)
    """The scalar maps of one layer for the dimensions of eps (n, H) from `begin` on, as many as raw (n, params, k) has.

    They are written to z (n, H), and the logarithms of the slopes are added to logdet (n,).
    """
    own = np.empty(raw.shape[1], np.float64)
    for row in range(eps.shape[0]):
        for k in range(raw.shape[2]):
            for p in range(raw.shape[1]):
                own[p] = raw[row, p, k]
            value, slope = _scalar_forward(kind, settings, np.float64(eps[row, begin + k]), own)
            z[row, begin + k] = value
            logdet[row] += slope


@jit(**STRAIGHT)
def _affine_block(z, raw, settings, logdet):  # pragma: no cover (compiled)
    """z (B,) holds eps and becomes z for raw (2, B); log dz/deps is added to `logdet`."""
    a, b = raw[0], raw[1]
    for i in range(z.shape[0]):
        log_b = settings[1] * b[i]
        z[i] = a[i] + _exp(log_b) * z[i]
        logdet[i] += log_b


@jit(**STRAIGHT)
def _nlsq_block(z, raw, settings, logdet, slopes, work):  # pragma: no cover (compiled)
    """z (B,) holds eps and becomes z for raw (5, B); -log b is added to `logdet`, and `slopes` are multiplied by
    what else there is of deps/dz. `work` (5, B) is overwritten."""
    a, log_b, c, log_d, g = raw[0], raw[1], raw[2], raw[3], raw[4]
    d, w, kappa, delta, excess = work[0], work[1], work[2], work[3], work[4]
    for i in range(z.shape[0]):
        d[i] = _exp(settings[3] * log_d[i])
        w[i] = (np.float64(z[i]) - np.float64(a[i])) * d[i] * _exp(-settings[1] * log_b[i])
    for i in range(z.shape[0]):
        kappa[i] = settings[0] * _tanh64(settings[2] * c[i])
    for i in range(z.shape[0]):
        delta[i], excess[i] = _root(w[i], kappa[i], np.float64(g[i]))
    for i in range(z.shape[0]):
        if excess[i] > 0:
            delta[i] = _bracketed_root(w[i], kappa[i], np.float64(g[i]))
    for i in range(z.shape[0]):
        slopes[i] *= _newton(delta[i], w[i], kappa[i], np.float64(g[i]))[1]
        z[i] = delta[i] / d[i]
        logdet[i] -= settings[1] * log_b[i]


@jit(fastmath=REASSOCIATE)
def _dot(a, b, start, stop):  # pragma: no cover (compiled)
    total = a[0] * 0
    for k in range(start, stop):
        total += a[k] * b[k]
    return total


@jit()
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


@_intrinsic
def _add_product(_, out, matrix, rows, start, stop):  # pragma: no cover (compiled)
    """out[j, b] += Σ_k matrix[j, k] rows[k, b], k from start to stop: some units for a block of BLOCK rows.

    Written as vector instructions because the compiler, not knowing that `out` is no part of `rows`, would store
    it at every k.
    """

    def generate(context, builder, signature, arguments):
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
        ]
        number, index = context.get_value_type(out.dtype), ir.IntType(32)
        vector, size = ir.VectorType(number, BLOCK), context.get_abi_sizeof(number)
        undefined = ir.Constant(vector, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(index, BLOCK), [0] * BLOCK)
        zero, one = (ir.Constant(arguments[3].type, value) for value in (0, 1))

        def at(position, *indices):
            return cgutils.get_item_pointer(
                context, builder, signature.args[position], arrays[position], indices
            )

        total = cgutils.alloca_once(builder, vector)
        units = builder.extract_value(arrays[0].shape, 0)
        with cgutils.for_range(builder, units) as unit:
            result = builder.bitcast(at(0, unit.index, zero), vector.as_pointer())
            builder.store(builder.load(result, align=size), total)
            with cgutils.for_range_slice(builder, arguments[3], arguments[4], one, inc=True) as (k, _):
                first = builder.insert_element(undefined, builder.load(at(1, unit.index, k)), index(0))
                weight = builder.shuffle_vector(first, undefined, zeros)
                row = builder.load(builder.bitcast(at(2, k, zero), vector.as_pointer()), align=size)
                product = builder.fmul(weight, row, flags=["contract"])
                builder.store(builder.fadd(builder.load(total), product, flags=["contract"]), total)
            builder.store(builder.load(total), result, align=size)
        return context.get_dummy_value()

    return types.void(out, matrix, rows, start, stop), generate


@jit()
def _relu(y):  # pragma: no cover (compiled)
    for unit in range(y.shape[0]):
        for b in range(y.shape[1]):
            y[unit, b] = max(y[unit, b], y[unit, b] * 0)


@jit()
def _block(
    z, rows, logdet, context, first, between, biases, last, last_bias, starts, kind, settings
):  # pragma: no cover
    """The same for z (H, BLOCK) and context (J, units, BLOCK), rows innermost, of which the first `rows` matter."""
    layers, units, size = first.shape
    depth, params, width = biases.shape[1], last.shape[1], z.shape[1]
    hidden = np.empty((depth, units, width), z.dtype)
    raw = np.empty((params, width), z.dtype)
    work = np.empty((5, width), np.float64)
    slopes = np.ones(width, np.float64)
    for layer in range(layers):
        for rank in range(size):
            reverse = layer % 2 == 1
            d = size - 1 - rank if reverse else rank
            low, high = (d + 1, size) if reverse else (0, d)
            begin, known = starts[rank], starts[rank + 1]
            for unit in range(begin, known):
                for b in range(width):
                    hidden[0, unit, b] = biases[layer, 0, unit] + context[layer, unit, b]
            _add_product(hidden[0, begin:known], first[layer, begin:known], z, low, high)
            _relu(hidden[0, begin:known])
            for k in range(1, depth):
                for unit in range(begin, known):
                    for b in range(width):
                        hidden[k, unit, b] = biases[layer, k, unit]
                matrix = between[layer, k - 1, begin:known]
                _add_product(hidden[k, begin:known], matrix, hidden[k - 1], 0, known)
                _relu(hidden[k, begin:known])
            for p in range(params):
                for b in range(width):
                    raw[p, b] = last_bias[layer, p, d]
            _add_product(raw, last[layer, :, d], hidden[depth - 1], 0, known)
            if kind == AFFINE:
                _affine_block(z[d, :rows], raw, settings, logdet)
                continue
            _nlsq_block(z[d, :rows], raw, settings, logdet, slopes, work)
            # 16 slopes, each at least a rounding of 1, multiply to a number within range.
            if rank % 16 == 15 or rank == size - 1:
                for b in range(rows):
                    logdet[b] -= math.log(slopes[b])
                    slopes[b] = 1


@jit()
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
        columns = np.zeros((eps.shape[1], BLOCK), eps.dtype)
        given = np.zeros((*context.shape[1:], BLOCK), eps.dtype)
        columns[:, : end - begin] = z[begin:end].T
        given[:, :, : end - begin] = context[begin:end].transpose(1, 2, 0)
        logdet = np.zeros(BLOCK, np.float64)
        whole = -(-(end - begin) // 8) * 8  # whole vectors
        _block(columns, whole, logdet, given, first, between, biases, last, last_bias, starts, kind, settings)
        z[begin:end] = columns[:, : end - begin].T
        total[begin:end] = logdet[: end - begin]
    return z, total
