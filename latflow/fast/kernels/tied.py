"""Generation from a mixture over a codebook, and what a context reads of it. Imported only where numba is installed.

`tied_forward` is `TiedMixture.forward`. Of V components few have a weight that counts: those whose weight is less than
ε Φ(-|eps|) / V together change the smaller tail of the mixture, which is Φ(-|eps|) at the root, by a part ε of itself
at most, that is to say eps by less than 1.26 ε (Φ / φ <= 1.26 on that side); ε is half a rounding of float64, or 2^-30
for float32. They are left out of the equation of that dimension and not of the weights that are carried on, which are
those of all V.
"""

from __future__ import annotations

import math

import numpy as np

from latflow.fast.kernels.jit import REASSOCIATE, jit
from latflow.fast.kernels.mixture import WORK, mixture_forward
from latflow.fast.kernels.normal import exp, scaled_tail, tanh
from latflow.fast.kernels.quantile import FAR, quantile


@jit(error_model="numpy", fastmath=REASSOCIATE)
def _log_sum(logs):  # pragma: no cover (compiled)
    largest = -np.inf
    for v in range(logs.shape[0]):
        largest = max(largest, logs[v])
    total = 0.0
    for v in range(logs.shape[0]):
        total += exp(logs[v] - largest)
    return largest + math.log(total)


@jit(error_model="numpy", fastmath=REASSOCIATE)
def _gather(logs, cut, side, means, inverse, kept):  # pragma: no cover (compiled)
    """Weights, means on this side and 1 / s of the components above the cut, and how many."""
    K = 0
    for v in range(logs.shape[0]):
        kept[0, K], kept[1, K], kept[2, K] = logs[v] - cut, side * means[v], inverse[v]
        K += logs[v] > cut
    total = 0.0
    for k in range(K):
        kept[0, k] = exp(kept[0, k])
        total += kept[0, k]
    total = 1 / total
    for k in range(K):
        kept[0, k] *= total
    return K


@jit(error_model="numpy", fastmath=REASSOCIATE)
def tied_forward(
    eps, logits, means, inverse, log_scales, log_epsilon, tolerance
):  # pragma: no cover (compiled)
    """z (n, H) and log |det dz/deps| (n,) for eps (n, H), logits (n, V) and a codebook in float64, (H, V) each.

    log |det dz/deps| = log N(eps; 0, I) - log Σ_v π_v N(z; μ_v, σ_v).
    """
    (n, size), symbols = eps.shape, logits.shape[1]
    z, logdet = np.empty_like(eps), np.empty(n, eps.dtype)
    logs, kept, work = np.empty(symbols), np.empty((3, symbols + 1)), np.empty((WORK, symbols))
    least = log_epsilon - math.log(symbols)
    for row in range(n):
        for v in range(symbols):
            logs[v] = logits[row, v]
        total = _log_sum(logs)
        for d in range(size):
            e = np.float64(eps[row, d])
            value = np.nan
            if abs(e) <= FAR:
                largest = -np.inf
                for v in range(symbols):
                    largest = max(largest, logs[v])
                t = abs(e)
                cut = largest + least - 0.5 * t * t + math.log(scaled_tail(t))
                side = 1.0 if e <= 0 else -1.0
                K = _gather(logs, cut, side, means[d], inverse[d], kept)
                value = side * quantile(-t, kept[0], kept[1], kept[2], K, tolerance)
            if math.isnan(value):
                value, _ = mixture_forward(e, logs, means[d], log_scales[d], work)
            z[row, d] = value
            value = np.float64(z[row, d])
            for v in range(symbols):
                x = (value - means[d, v]) * inverse[d, v]
                logs[v] -= 0.5 * x * x + log_scales[d, v]
            total -= 0.5 * e * e
        logdet[row] = total - _log_sum(logs)
    return z, logdet


@jit(error_model="numpy", fastmath=REASSOCIATE)
def expected_symbols(z, means, inverse, constants, table, least):  # pragma: no cover (compiled)
    """Σ_v p_v table[v] of every row of z (n, H), p_v ∝ exp(constants[v] - ½ Σ_d ((z_d - μ_vd) / σ_vd)²), a codebook in
    float64 (H, V) each; shares below `least` of the largest are left out."""
    (n, size), symbols = z.shape, table.shape[0]
    result, logs = np.zeros((n, table.shape[1]), table.dtype), np.empty(symbols)
    for row in range(n):
        for v in range(symbols):
            logs[v] = constants[v]
        for d in range(size):
            value = np.float64(z[row, d])
            for v in range(symbols):
                x = (value - means[d, v]) * inverse[d, v]
                logs[v] -= 0.5 * x * x
        largest = -np.inf
        for v in range(symbols):
            largest = max(largest, logs[v])
        total = 0.0
        for v in range(symbols):
            logs[v] = exp(logs[v] - largest)
            total += logs[v]
        for v in range(symbols):
            # A row that is not a number has no largest share, and takes all.
            if not logs[v] < least:
                share = table.dtype.type(logs[v] / total)
                for k in range(table.shape[1]):
                    result[row, k] += share * table[v, k]
    return result


@jit(error_model="numpy", fastmath={"contract"})
def expected_notes(z, means, inverse, constants):  # pragma: no cover (compiled)
    """tanh(score / 2) of every note of z (n, H): score = constants - ½ x_on² + ½ x_off²; off and on are rows."""
    result = np.empty_like(z)
    for row in range(z.shape[0]):
        for d in range(z.shape[1]):
            value = np.float64(z[row, d])
            off = (value - means[0, d]) * inverse[0, d]
            on = (value - means[1, d]) * inverse[1, d]
            result[row, d] = tanh(0.5 * constants[d] + 0.25 * (off - on) * (off + on))
    return result
