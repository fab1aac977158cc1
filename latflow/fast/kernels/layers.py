"""The scalar maps of one layer at one step of a serial pass, compiled. Imported only where numba is installed."""

from __future__ import annotations

import math

import numpy as np

from latflow.fast.kernels.jit import jit
from latflow.fast.kernels.mixture import _log_half_erfcx

ROOT_HALF = math.sqrt(0.5)
ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
WORK = 6
"""Rows of the array that a mixture's map works in."""


@jit(error_model="numpy")
def nlsq_density(z, raw, begin, bound, scale_b, scale_c, scale_d, eps, logdet):  # pragma: no cover (compiled)
    """`NLSq.inverse` of the dimensions of z (n, h) from `begin` on, as many as raw (n, 5, k) has.

    It is written to eps (n, h), and the logarithms of the slopes are added to logdet (n,).
    """
    for row in range(z.shape[0]):
        for k in range(raw.shape[2]):
            y = z[row, begin + k]
            log_b = scale_b * raw[row, 1, k]
            kappa = bound * math.tanh(scale_c * raw[row, 2, k])
            b, d = math.exp(log_b), math.exp(scale_d * raw[row, 3, k])
            u = d * y + raw[row, 4, k]
            r = 1 / (1 + u * u)
            eps[row, begin + k] = raw[row, 0, k] + b * y + (b / d) * (kappa * r)
            logdet[row] += log_b + math.log1p(-2 * kappa * (u * r) * r)


@jit(error_model="numpy")
def nlsq_density_gradient(
    z, raw, begin, bound, scale_b, scale_c, scale_d, grad, grad_logdet
):  # pragma: no cover (compiled)
    """The gradients of both results, (n, h) and (n,): that of z takes the place of that of eps, that of raw its own.

    With s = 1 - 2κ u r² the slope over b, ds/du = -2κ r² (4r - 3).
    """
    for row in range(z.shape[0]):
        for k in range(raw.shape[2]):
            y, g_eps = z[row, begin + k], grad[row, begin + k]
            tanh_c = math.tanh(scale_c * raw[row, 2, k])
            kappa = bound * tanh_c
            b, d = math.exp(scale_b * raw[row, 1, k]), math.exp(scale_d * raw[row, 3, k])
            u = d * y + raw[row, 4, k]
            r = 1 / (1 + u * u)
            bump, bend = (b / d) * r, (u * r) * r
            g_slope = grad_logdet[row] / (1 - 2 * kappa * bend)
            g_u = -2 * kappa * (g_slope * r * r * (4 * r - 3) + g_eps * (b / d) * bend)
            raw[row, 0, k] = g_eps
            raw[row, 1, k] = scale_b * (g_eps * (b * y + kappa * bump) + grad_logdet[row])
            raw[row, 2, k] = bound * scale_c * (1 - tanh_c * tanh_c) * (g_eps * bump - 2 * g_slope * bend)
            raw[row, 3, k] = scale_d * (g_u * d * y - g_eps * kappa * bump)
            raw[row, 4, k] = g_u
            grad[row, begin + k] = g_eps * b + g_u * d


@jit(error_model="numpy")
def _log_ndtri(log_p):  # pragma: no cover (compiled)
    """`mixture._log_ndtri`."""
    t = math.sqrt(max(-2 * log_p, 0.0))
    t -= (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    for _ in range(2):
        log_mills = _log_half_erfcx(t * ROOT_HALF)
        newton = 2 * ROOT_HALF_PI * math.exp(log_mills) * (log_mills - 0.5 * t * t - log_p)
        t += newton / (1 + 0.5 * newton / (t + 2 / (t + 1.596)))
    return -t


@jit(error_model="numpy")
def _mixture(z, raw, K, work):  # pragma: no cover (compiled)
    """`mixture._evaluate` for one number: eps, log deps/dz and the side, from raw (3K,), in float64.

    `work` (WORK, K) takes log π, 1 / s, w, r and x.
    """
    log_weights, inverse, tails, slopes, x, log_mills = (
        work[0],
        work[1],
        work[2],
        work[3],
        work[4],
        work[5],
    )
    largest = -np.inf
    for k in range(K):
        largest = max(largest, raw[k])
    total = 0.0
    for k in range(K):
        total += math.exp(raw[k] - largest)
    log_total = math.log(total)
    below = 0.0
    for k in range(K):
        log_weights[k] = (raw[k] - largest) - log_total
        inverse[k] = math.exp(-raw[2 * K + k])
        x[k] = (z - raw[K + k]) * inverse[k]
        log_mills[k] = _log_half_erfcx(abs(x[k]) * ROOT_HALF)
        small = math.exp(log_mills[k] - 0.5 * x[k] * x[k])
        below += math.exp(log_weights[k]) * (small if x[k] < 0 else 1 - small)
    side = -1.0 if below > 0.5 else 1.0
    largest = -np.inf
    for k in range(K):
        half_square = 0.5 * x[k] * x[k]
        if (x[k] < 0) == (side > 0):
            log_tail, log_hazard = log_mills[k] - half_square, -log_mills[k]
        else:
            log_tail = math.log1p(-math.exp(log_mills[k] - half_square))
            log_hazard = -half_square - log_tail
        tails[k] = log_weights[k] + log_tail
        slopes[k] = log_hazard - raw[2 * K + k]
        largest = max(largest, tails[k])
    total = 0.0
    for k in range(K):
        total += math.exp(tails[k] - largest)
    log_p = largest + math.log(total)
    steepest = -np.inf
    for k in range(K):
        tails[k] -= log_p
        slopes[k] += tails[k]
        steepest = max(steepest, slopes[k])
    total = 0.0
    for k in range(K):
        total += math.exp(slopes[k] - steepest)
    log_slope = steepest + math.log(total)
    for k in range(K):
        tails[k], slopes[k] = math.exp(tails[k]), math.exp(slopes[k] - log_slope)
    y = _log_ndtri(log_p)
    return side * y, log_slope + _log_half_erfcx(-y * ROOT_HALF), side


@jit(error_model="numpy")
def mixture_density(z, raw, begin, K, eps, logdet):  # pragma: no cover (compiled)
    """`Mixture.inverse` of the dimensions of z (n, h) from `begin` on, as many as raw (n, 3K, k) has; as
    `nlsq_density`."""
    work, own = np.empty((WORK, K)), np.empty(3 * K)
    for row in range(z.shape[0]):
        for k in range(raw.shape[2]):
            for p in range(3 * K):
                own[p] = raw[row, p, k]
            value, slope, _ = _mixture(z[row, begin + k], own, K, work)
            eps[row, begin + k] = value
            logdet[row] += slope


@jit(error_model="numpy")
def mixture_density_gradient(z, raw, begin, K, grad, grad_logdet):  # pragma: no cover (compiled)
    """As `nlsq_density_gradient`, by the formulas of `mixture._Inverse`."""
    work, own = np.empty((WORK, K)), np.empty(3 * K)
    for row in range(z.shape[0]):
        g = np.float64(grad_logdet[row])
        for k in range(raw.shape[2]):
            for p in range(3 * K):
                own[p] = raw[row, p, k]
            y = np.float64(z[row, begin + k])
            eps, logdet, side = _mixture(y, own, K, work)
            through = grad[row, begin + k] + eps * g
            mills = side * 2 * ROOT_HALF_PI * math.exp(_log_half_erfcx(abs(eps) * ROOT_HALF))
            slope, total = math.exp(logdet) * through, 0.0
            for j in range(K):
                weight, inverse, tail, density, x = (
                    math.exp(work[0, j]),
                    work[1, j],
                    work[2, j],
                    work[3, j],
                    work[4, j],
                )
                c = density * (slope - g * x * inverse)
                total += c
                raw[row, j, k] = through * mills * (tail - weight) + g * (density - weight)
                raw[row, K + j, k] = -c
                raw[row, 2 * K + j, k] = -(y - own[K + j]) * c - g * density
            grad[row, begin + k] = total
