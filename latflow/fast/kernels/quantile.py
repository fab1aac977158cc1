"""The root of a mixture's Σ_k w_k Φ((z - m_k) / s_k) = Φ(eps), in float64. Imported only where numba is installed.

Everything is seen from the side of eps, where both tails are small: for eps > 0 z and the means change their sign. A
step solves the equation's series to the third power,

    h = δ + a δ² + (2 a² - P''' / 6 P') δ³,   δ = (p - P) / P',   a = -P'' / 2 P',

so that one of δ = τ s, s the least scale, leaves an error of the order of τ⁴ s. Exponential and quotient of a
component serve P and its three derivatives.
"""

from __future__ import annotations

import math

import numpy as np

from latflow.fast.kernels.jit import REASSOCIATE, STRAIGHT, jit
from latflow.fast.kernels.normal import ROOT_2PI, exp, probit, scaled_tail

FAR = 8.0
"""Beyond this |eps| and behind a few steps the careful solver of `mixture` takes over."""
_STEPS = 10


@jit(**STRAIGHT)
def tail_terms(x, inverse):  # pragma: no cover (compiled)
    """Of one component at x standard deviations: Φ(x), and √(2π) times the first three derivatives by z."""
    t = abs(x)
    density = exp(-0.5 * t * t)
    small = density * scaled_tail(t)
    first = density * inverse
    y = x * inverse
    return (small if x < 0 else 1 - small), first, -first * y, first * (y * y - inverse * inverse)


@jit(**STRAIGHT)
def improved(p, tail, first, second, third):  # pragma: no cover (compiled)
    """The step h to take, and δ."""
    delta = (p - tail) * ROOT_2PI / first
    a = -0.5 * second / first
    series = delta * (1 + delta * (a + delta * (2 * a * a - third / (6 * first))))
    # Far off the series means nothing; Halley's step does not overshoot in a tail, however steep.
    halley = delta / max(1 - a * delta, 0.5)
    far = abs(a * delta) > 0.2 or abs(third * delta * delta) > 0.2 * first
    return (halley if far else series), delta


@jit(error_model="numpy", fastmath=REASSOCIATE)
def _sums(z, weights, means, inverse, K):  # pragma: no cover (compiled)
    tail = first = second = third = 0.0
    for k in range(K):
        a, b, c, d = tail_terms((z - means[k]) * inverse[k], inverse[k])
        tail += weights[k] * a
        first += weights[k] * b
        second += weights[k] * c
        third += weights[k] * d
    return tail, first, second, third


@jit(error_model="numpy", fastmath=REASSOCIATE)
def _start(p, eps, weights, means, inverse, K):  # pragma: no cover (compiled)
    """The quantile p, if what lies on either side of the middle of the means were one normal distribution each."""
    least, most = np.inf, -np.inf
    for k in range(K):
        least, most = min(least, means[k]), max(most, means[k])
    middle = 0.5 * (least + most)
    left = left_first = left_second = all_first = all_second = 0.0
    for k in range(K):
        first = weights[k] * means[k]
        second = first * means[k] + weights[k] / (inverse[k] * inverse[k])
        below = 1.0 if means[k] < middle else 0.0
        left += below * weights[k]
        left_first += below * first
        left_second += below * second
        all_first += first
        all_second += second
    if p < left:
        share, first, second, own = left, left_first, left_second, p / left
    else:
        share, first, second = 1 - left, all_first - left_first, all_second - left_second
        own = (p - left) / share
    first, second = first / share, second / share
    quantile = eps if own == p else probit(own)
    return first + math.sqrt(max(second - first * first, 0.0)) * quantile


@jit(error_model="numpy", fastmath=REASSOCIATE)
def quantile(eps, weights, means, inverse, K, tolerance):  # pragma: no cover (compiled)
    """z for -FAR <= eps <= 0 and the first K of weights, whose sum is 1, means and 1 / s; to τ⁴ s for the `tolerance`
    τ, or with a residual of roundings. NaN where a few steps do not lead there."""
    p = exp(-0.5 * eps * eps) * scaled_tail(-eps)
    low, high, steepest = np.inf, -np.inf, 0.0
    for k in range(K):
        end = means[k] + eps / inverse[k]
        low, high, steepest = min(low, end), max(high, end), max(steepest, inverse[k])
    if high - low <= 1e-15 * max(abs(low), abs(high)):
        return 0.5 * (low + high)
    z = min(max(_start(p, eps, weights, means, inverse, K), low), high)
    for _ in range(_STEPS):
        tail, first, second, third = _sums(z, weights, means, inverse, K)
        if abs(tail - p) <= 4e-16 * p:
            return z
        if tail < p:
            low = z
        else:
            high = z
        step, delta = improved(p, tail, first, second, third)
        new = z + step
        if not low <= new <= high:
            z = 0.5 * (low + high)
            continue
        if abs(delta) * steepest <= tolerance:
            return new
        z = new
    return np.nan
