"""The mixture map for one number, compiled, in float64, equal to `mixture.mixture_forward` to rounding. Imported only
where numba is installed.

The equation is solved as log P(z) = log Φ(eps) on the side of eps, where both are small, so that no step needs Φ⁻¹
to more digits than a step is worth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from latflow.fast.kernels.jit import jit

_PLAIN: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_EPS = float(np.finfo(np.float64).eps)
WORK = 5
"""Rows of the array that a call works in."""


@jit(**_PLAIN)
def _log_half_erfcx(t):  # pragma: no cover (compiled)
    """log(e^(t²) erfc(t) / 2) for t >= 0 (Cody, Rational Chebyshev approximations for the error function, 1969)."""
    if t <= 0.46875:
        y = t * t
        top = (
            ((1.85777706184603153e-1 * y + 3.16112374387056560e00) * y + 1.13864154151050156e02) * y
        ) + 3.77485237685302021e02
        top = top * y + 3.20937758913846947e03
        low = (((y + 2.36012909523441209e01) * y + 2.44024637934444173e02) * y) + 1.28261652607737228e03
        low = low * y + 2.84423683343917062e03
        return y + math.log(0.5 - 0.5 * t * top / low)
    if t <= 4:
        top = 2.15311535474403846e-8 * t + 5.64188496988670089e-1
        top = top * t + 8.88314979438837594e00
        top = top * t + 6.61191906371416295e01
        top = top * t + 2.98635138197400131e02
        top = top * t + 8.81952221241769090e02
        top = top * t + 1.71204761263407058e03
        top = top * t + 2.05107837782607147e03
        top = top * t + 1.23033935479799725e03
        low = t + 1.57449261107098347e01
        low = low * t + 1.17693950891312499e02
        low = low * t + 5.37181101862009858e02
        low = low * t + 1.62138957456669019e03
        low = low * t + 3.29079923573345963e03
        low = low * t + 4.36261909014324716e03
        low = low * t + 3.43936767414372164e03
        low = low * t + 1.23033935480374942e03
        return math.log(0.5 * top / low)
    y = 1 / (t * t)
    top = 1.63153871373020978e-2 * y + 3.05326634961232344e-1
    top = top * y + 3.60344899949804439e-1
    top = top * y + 1.25781726111229246e-1
    top = top * y + 1.60837851487422766e-2
    top = top * y + 6.58749161529837803e-4
    low = y + 2.56852019228982242e00
    low = low * y + 1.87295284992346725e00
    low = low * y + 5.27905102951428412e-1
    low = low * y + 6.05183413124413191e-2
    low = low * y + 2.33520497626869185e-3
    return math.log(0.5 * (0.56418958354775628695 - y * top / low) / t)


@jit(**_PLAIN)
def _probit(log_p):  # pragma: no cover (compiled)
    """The y with log Φ(y) = log_p < 0, to 4.5e-4 (Abramowitz and Stegun 26.2.23)."""
    right = log_p > -0.6931471805599453
    if right:
        log_p = math.log(-math.expm1(log_p))
    t = math.sqrt(-2 * log_p)
    y = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t
    return -y if right else y


@jit(**_PLAIN)
def _log_tail(z, side, means, log_scales, work):  # pragma: no cover (compiled)
    """log P(z) of the tail to the left (side 1) or to the right (-1), and log of |d log P/dz|.

    `work` holds log π and 1 / s, and takes the logarithms of the terms of both.
    """
    log_weights, inverse, terms, slopes = work[0], work[1], work[2], work[3]
    K = means.shape[0]
    largest = -np.inf
    for k in range(K):
        x = side * (z - means[k]) * inverse[k]
        log_mills = _log_half_erfcx(abs(x) * 0.7071067811865476)
        half_square = 0.5 * x * x
        if x < 0:
            log_tail, log_hazard = log_mills - half_square, -log_mills
        else:
            log_tail = math.log1p(-math.exp(log_mills - half_square))
            log_hazard = -half_square - log_tail
        terms[k] = log_weights[k] + log_tail
        slopes[k] = log_hazard - log_scales[k]
        largest = max(largest, terms[k])
    total = 0.0
    for k in range(K):
        total += math.exp(terms[k] - largest)
    log_p = largest + math.log(total)
    steepest = -np.inf
    for k in range(K):
        slopes[k] += terms[k] - log_p
        steepest = max(steepest, slopes[k])
    total = 0.0
    for k in range(K):
        total += math.exp(slopes[k] - steepest)
    return log_p, steepest + math.log(total) - _LOG_ROOT_2PI


@jit(**_PLAIN)
def _start(p, eps, means, log_scales, work):  # pragma: no cover (compiled)
    """As `mixture._separated`: the quantile p of the mixture if its components did not overlap."""
    weights = work[4]
    for k in range(means.shape[0]):
        weights[k] = math.exp(work[0, k])
    for k in range(means.shape[0]):
        below = 0.0
        for j in range(means.shape[0]):
            if means[j] < means[k] or (means[j] == means[k] and j < k):
                below += weights[j]
        own = (p - below) / weights[k]
        if 0 <= own <= 1:
            own = min(max(own, 1e-4), 1 - 1e-4)
            return means[k] + math.exp(log_scales[k]) * _probit(math.log(own))
    return np.inf if eps > 0 else -np.inf


@jit(**_PLAIN)
def mixture_forward(eps, logits, means, log_scales, work):  # pragma: no cover (compiled)
    """z and log dz/deps of `mixture_forward` for one number; parameters (K,), `work` (WORK, K) is overwritten.

    Not a number, where steps of Newton's method and bisection do not come to an end; they always should.
    """
    K = means.shape[0]
    if not math.isfinite(eps):
        return np.nan, np.nan
    largest = -np.inf
    for k in range(K):
        largest = max(largest, logits[k])
    total = 0.0
    for k in range(K):
        total += math.exp(logits[k] - largest)
    log_total = math.log(total)
    low, high, size = np.inf, -np.inf, 0.0
    for k in range(K):
        work[0, k] = (logits[k] - largest) - log_total
        work[1, k] = math.exp(-log_scales[k])
        end = means[k] + math.exp(log_scales[k]) * eps
        low, high, size = min(low, end), max(high, end), max(size, abs(end))
    low, high = low - 8 * _EPS * size, high + 8 * _EPS * size

    side = 1.0 if eps <= 0 else -1.0
    y = -abs(eps)
    log_mills = _log_half_erfcx(abs(eps) * 0.7071067811865476)
    target, mills = log_mills - 0.5 * eps * eps, math.exp(log_mills + _LOG_ROOT_2PI)
    t = abs(eps)
    curvature = 1 / (t + 2 / (t + 1.596))  # of Φ⁻¹ at eps, h - |eps|
    noise = 6 * _EPS * max(1.0, t)

    p = math.exp(target)
    z = _start(p if side > 0 else 1 - p, eps, means, log_scales, work)
    z = min(max(z, low), high)
    last = high - low
    for _ in range(300):
        log_p, log_slope = _log_tail(z, side, means, log_scales, work)
        # How far eps of this z is from eps, and the slope of eps.
        value = (log_p - target) * mills
        log_eps_slope = log_slope + log_mills + _LOG_ROOT_2PI
        if abs(value) < 0.05:
            log_eps_slope += math.log1p(curvature * value)
            value += 0.5 * curvature * value * value
        else:
            found = _probit(min(log_p, -1e-300))
            value = found - y
            log_eps_slope = log_slope + log_p + 0.5 * found * found + _LOG_ROOT_2PI
        value *= side
        slope = math.exp(min(log_eps_slope, 700.0))
        step = value / slope if slope > 0 else np.inf
        if value < 0:
            low = z
        if value > 0:
            high = z
        rounding = _EPS * abs(z)
        if not (abs(value) > noise and high - low > rounding):
            return z, -log_eps_slope
        new = z - math.copysign(max(abs(step), rounding), value)
        if not (low < new < high and 2 * abs(new - z) <= last):
            new = low + 0.5 * (high - low)
        last = abs(new - z)
        z = new
    return np.nan, np.nan
