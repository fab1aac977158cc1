"""Generation from masked flows of mixtures, equal to torch's to rounding. Imported only where numba is installed.

As `generation.made_forward`, unit by unit, with the scalar maps of `Mixture` and `TiedScalar` and with a skip from the
context. Two components that are given for a dimension, as of notes, are solved for a block of rows in loops that
become vector instructions; all else number by number.
"""

from __future__ import annotations

import math

import numpy as np

from latflow.fast.kernels.generation import BLOCK, _add_product, _dot, _relu
from latflow.fast.kernels.jit import REASSOCIATE, STRAIGHT, jit
from latflow.fast.kernels.mixture import WORK, mixture_forward
from latflow.fast.kernels.normal import exp, log, probit, scaled_tail
from latflow.fast.kernels.quantile import FAR, improved, quantile, tail_terms

LEAST = 1e-250
"""Densities below this, and what is none, are left to the careful solver."""
FAR_TAIL = 6.3e-16
"""Φ(-FAR), a little more."""
SOLVER = 3
"""Rows, beside those of `mixture_forward`, of the array that a scalar map works in."""


@jit(error_model="numpy", fastmath=REASSOCIATE)
def _one_number(eps, logits, means, log_scales, tolerance, work):  # pragma: no cover (compiled)
    """z and log dz/deps of a mixture (K,); `work` (WORK + SOLVER, K) is overwritten."""
    K = means.shape[0]
    if abs(eps) <= FAR:
        side = 1.0 if eps <= 0 else -1.0
        weights, placed, inverse = work[WORK], work[WORK + 1], work[WORK + 2]
        largest = -np.inf
        for k in range(K):
            largest = max(largest, logits[k])
        total = 0.0
        for k in range(K):
            weights[k] = exp(logits[k] - largest)
            total += weights[k]
        total = 1 / total
        for k in range(K):
            weights[k] *= total
            placed[k], inverse[k] = side * means[k], exp(-log_scales[k])
        z = quantile(-abs(eps), weights, placed, inverse, K, tolerance)
        density = 0.0
        for k in range(K):
            x = (z - placed[k]) * inverse[k]
            density += weights[k] * inverse[k] * exp(-0.5 * x * x)
        if density > LEAST:
            return side * z, -0.5 * eps * eps - math.log(density)
    return mixture_forward(eps, logits, means, log_scales, work[:WORK])


# Two components, which may be given for a dimension. Of their weights the smaller is carried, with a sign: positive
# where the second component is the larger one. So neither loses its digits beside the other.


@jit(**STRAIGHT)
def _smaller(logit):  # pragma: no cover (compiled)
    e = exp(-abs(logit))
    small = e / (1 + e)
    return small if logit > 0 else -small


@jit(**STRAIGHT)
def _left_tail(eps):  # pragma: no cover (compiled)
    """Φ(-|eps|), with a sign for the side: positive for eps <= 0."""
    t = abs(eps)
    p = exp(-0.5 * t * t) * scaled_tail(t)
    return p if eps <= 0 else -p


@jit(**STRAIGHT)
def _pair(tail, means, inverse, small):  # pragma: no cover (compiled)
    """Weight, mean and 1 / s of two components, the left first, seen from the side of `tail`."""
    side = 1.0 if tail > 0 else -1.0
    first = small if small > 0 else 1 + small
    second = 1 - small if small > 0 else -small
    swapped = (means[0] > means[1]) == (tail > 0)
    m0, m1 = side * means[0], side * means[1]
    return (
        second if swapped else first,
        m1 if swapped else m0,
        inverse[1] if swapped else inverse[0],
        first if swapped else second,
        m0 if swapped else m1,
        inverse[0] if swapped else inverse[1],
    )


@jit(**STRAIGHT)
def _pair_start(tail, means, inverse, small):  # pragma: no cover (compiled)
    """The quantile if the two did not overlap."""
    left, m0, i0, right, m1, i1 = _pair(tail, means, inverse, small)
    p = abs(tail)
    y = probit(p / left if p < left else (p - left) / right)
    return m0 + y / i0 if p < left else m1 + y / i1


@jit(**STRAIGHT)
def _pair_step(z, tail, means, inverse, small, tolerance):  # pragma: no cover (compiled)
    """A step of `quantile`, and √(2π) times the density behind it, by the same series; -1 where this was not the last
    step, or eps is far out."""
    left, m0, i0, right, m1, i1 = _pair(tail, means, inverse, small)
    a0, b0, c0, d0 = tail_terms((z - m0) * i0, i0)
    a1, b1, c1, d1 = tail_terms((z - m1) * i1, i1)
    first, second, third = left * b0 + right * b1, left * c0 + right * c1, left * d0 + right * d1
    step, delta = improved(abs(tail), left * a0 + right * a1, first, second, third)
    density = first + step * (second + 0.5 * step * third)
    last = abs(delta) * max(i0, i1) <= tolerance and abs(tail) >= FAR_TAIL and density > LEAST
    return z + step, (density if last else -1.0)


@jit(error_model="numpy", fastmath={"contract"})
def _one_pair(eps, logit, means, log_scales, tolerance, work, parameters):  # pragma: no cover (compiled)
    """As `_one_number`, for two components of which the first has the logit 0."""
    inverse, both = (exp(-log_scales[0]), exp(-log_scales[1])), (means[0], means[1])
    tail, small = _left_tail(eps), _smaller(logit)
    z = _pair_start(tail, both, inverse, small)
    for _ in range(3):
        z, density = _pair_step(z, tail, both, inverse, small, tolerance)
        if density > 0:
            return (z if tail > 0 else -z), -0.5 * eps * eps - log(density)
    parameters[0], parameters[1] = 0, logit
    return _one_number(eps, parameters, means, log_scales, tolerance, work)


@jit(error_model="numpy", fastmath=REASSOCIATE)
def _pair_block(
    z, raw, means, log_scales, tolerance, logdet, work, spare, parameters
):  # pragma: no cover (compiled)
    """z (B,) holds eps and becomes z for raw (B,); log dz/deps is added to `logdet`. `work` (4, B) is overwritten.

    Loops of few arrays each: the compiler checks pairs of them for overlap, and gives up where there are many.
    """
    small, tail, root, density = work[0], work[1], work[2], work[3]
    inverse, both = (exp(-log_scales[0]), exp(-log_scales[1])), (means[0], means[1])
    for i in range(z.shape[0]):
        small[i] = _smaller(np.float64(raw[i]))
    for i in range(z.shape[0]):
        tail[i] = _left_tail(np.float64(z[i]))
    for i in range(z.shape[0]):
        root[i] = _pair_start(tail[i], both, inverse, small[i])
    left = 0.0
    for _ in range(3):
        for i in range(z.shape[0]):
            root[i], density[i] = _pair_step(root[i], tail[i], both, inverse, small[i], tolerance)
        left = 0.0
        for i in range(z.shape[0]):
            left += 0.0 if density[i] > 0 else 1.0
        if left <= 1:
            break
    if left > 0:
        for i in range(z.shape[0]):
            if not density[i] > 0:
                eps = np.float64(z[i])
                value, slope = _one_pair(
                    eps, np.float64(raw[i]), means, log_scales, tolerance, spare, parameters
                )
                root[i], density[i] = (value if tail[i] > 0 else -value), 1.0
                logdet[i] += slope + 0.5 * eps * eps
    for i in range(z.shape[0]):
        logdet[i] -= log(density[i]) + 0.5 * np.float64(z[i]) * np.float64(z[i])
        z[i] = root[i] if tail[i] > 0 else -root[i]


@jit(error_model="numpy")
def _scalar_map(eps, raw, components, d, tolerance, work, parameters):  # pragma: no cover (compiled)
    """z and log dz/deps for raw (params,): of `TiedScalar` with components (2, H, K), of `Mixture` where H is 0."""
    if components.shape[1] == 0:
        K = raw.shape[0] // 3
        return _one_number(eps, raw[:K], raw[K : 2 * K], raw[2 * K :], tolerance, work)
    means, log_scales = components[0, d], components[1, d]
    if components.shape[2] == 2:
        return _one_pair(eps, raw[0], means, log_scales, tolerance, work, parameters)
    parameters[0] = 0
    parameters[1:] = raw
    return _one_number(eps, parameters, means, log_scales, tolerance, work)


@jit(fastmath=REASSOCIATE)
def _add_column(units, column, value, start):  # pragma: no cover (compiled)
    for unit in range(start, units.shape[0]):
        units[unit] += column[unit] * value


@jit()
def _one_row(
    z, given, columns, between, biases, last, last_bias, starts, components, tolerance
):  # pragma: no cover (compiled)
    """z (H,) holds eps and becomes z; the log-det. `given` (J units, or J units + J params H). A dimension, once known,
    goes into all later units: `columns` (J, H, units)."""
    layers, size, units = columns.shape
    depth, params = biases.shape[1], last.shape[1]
    skips = given.shape[0] > layers * units
    hidden = np.empty((depth, units), z.dtype)
    raw = np.empty(params, np.float64)
    K = components.shape[2] if components.shape[1] else params // 3
    work, parameters = np.empty((WORK + SOLVER, K)), np.empty(K)
    total = 0.0
    for layer in range(layers):
        for unit in range(units):
            hidden[0, unit] = biases[layer, 0, unit] + given[layer * units + unit]
        for rank in range(size):
            reverse = layer % 2 == 1
            d = size - 1 - rank if reverse else rank
            known = starts[rank + 1]
            for unit in range(starts[rank], known):
                hidden[0, unit] = max(hidden[0, unit], hidden[0, unit] * 0)
            for k in range(1, depth):
                for unit in range(starts[rank], known):
                    value = _dot(between[layer, k - 1, unit], hidden[k - 1], 0, known)
                    value += biases[layer, k, unit]
                    hidden[k, unit] = max(value, value * 0)
            for p in range(params):
                raw[p] = last_bias[layer, p, d] + _dot(last[layer, p, d], hidden[depth - 1], 0, known)
                if skips:
                    raw[p] += given[layers * units + (layer * params + p) * size + d]
            value, logdet = _scalar_map(np.float64(z[d]), raw, components, d, tolerance, work, parameters)
            z[d] = value
            total += logdet
            _add_column(hidden[0], columns[layer, d], z[d], known)
    return total


@jit()
def _block(
    z, rows, at, logdet, given, first, between, biases, last, last_bias, starts, components, tolerance
):  # pragma: no cover (compiled)
    """The same for z (H, BLOCK), of which `rows` matter: those of `given` (…, n) from `at` on."""
    layers, units, size = first.shape
    depth, params, width = biases.shape[1], last.shape[1], z.shape[1]
    skips = given.shape[0] > layers * units
    hidden = np.zeros((depth, units, width), z.dtype)
    raw, own = np.zeros((params, width), z.dtype), np.empty(params, np.float64)
    K = components.shape[2] if components.shape[1] else params // 3
    work, spare, parameters = np.empty((4, width)), np.empty((WORK + SOLVER, K)), np.empty(K)
    for layer in range(layers):
        for rank in range(size):
            reverse = layer % 2 == 1
            d = size - 1 - rank if reverse else rank
            low, high = (d + 1, size) if reverse else (0, d)
            begin, known = starts[rank], starts[rank + 1]
            for unit in range(begin, known):
                row, bias = given[layer * units + unit, at : at + rows], biases[layer, 0, unit]
                for b in range(rows):
                    hidden[0, unit, b] = bias + row[b]
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
                for b in range(rows):
                    raw[p, b] = last_bias[layer, p, d]
                if skips:
                    row = given[layers * units + (layer * params + p) * size + d, at : at + rows]
                    for b in range(rows):
                        raw[p, b] += row[b]
            _add_product(raw, last[layer, :, d], hidden[depth - 1], 0, known)
            if components.shape[1] and K == 2:
                means, log_scales = components[0, d], components[1, d]
                _pair_block(
                    z[d, :rows], raw[0], means, log_scales, tolerance, logdet, work, spare, parameters
                )
                continue
            for b in range(rows):
                for p in range(params):
                    own[p] = raw[p, b]
                eps = np.float64(z[d, b])
                z[d, b], slope = _scalar_map(eps, own, components, d, tolerance, spare, parameters)
                logdet[b] += slope


@jit()
def mixtures_forward(
    eps, given, columns, first, between, biases, last, last_bias, starts, components, tolerance
):  # pragma: no cover (compiled)
    """z (n, H) and log |det dz/deps| (n,) of J layers: arguments as of `made_forward`, but for `given` (m, n), rows
    innermost: what the context adds to the J first hidden layers and, with a skip, to the raw parameters (J, params,
    H), one below the other. `columns` (J, H, units) is `first` turned round. components (2, H, K) are means and log
    scales, H = 0 where the network gives them."""
    n = eps.shape[0]
    z, total = eps.copy(), np.zeros(n, eps.dtype)
    if n < 4:
        for row in range(n):
            total[row] = _one_row(
                z[row],
                given[:, row],
                columns,
                between,
                biases,
                last,
                last_bias,
                starts,
                components,
                tolerance,
            )
        return z, total
    for begin in range(0, n, BLOCK):
        rows = min(BLOCK, n - begin)
        turned = np.zeros((eps.shape[1], BLOCK), eps.dtype)
        turned[:, :rows] = z[begin : begin + rows].T
        logdet = np.zeros(BLOCK, np.float64)
        _block(
            turned,
            rows,
            begin,
            logdet,
            given,
            first,
            between,
            biases,
            last,
            last_bias,
            starts,
            components,
            tolerance,
        )
        z[begin : begin + rows] = turned[:, :rows].T
        total[begin : begin + rows] = logdet[:rows]
    return z, total
