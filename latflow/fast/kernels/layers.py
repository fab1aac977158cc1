"""The scalar maps of one layer at one step of a serial pass, compiled. Imported only where numba is installed."""

from __future__ import annotations

import math

from latflow.fast.kernels.jit import jit


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
