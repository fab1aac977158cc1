"""The normal distribution in straight code, which becomes vector instructions in a loop. Imported only where numba is
installed."""

from __future__ import annotations

import math

import numpy as np

from latflow.fast.kernels.generation import _exp, _tanh64
from latflow.fast.kernels.jit import STRAIGHT, jit

ROOT_2PI = math.sqrt(2 * math.pi)
exp, tanh = _exp, _tanh64


@jit(**STRAIGHT)
def scaled_tail(t):  # pragma: no cover (compiled)
    """e^(t²/2) Φ(-t) for t >= 0, to four roundings.

    (1 + t) times it is smooth on [0, ∞] as a function of q = (t - 4) / (t + 4), between 0.40 and 0.67: its Chebyshev
    series of degree 23 is off by 5e-17, here as powers of q, even and odd ones apart.
    """
    q = (t - 4) / (t + 4)
    y = q * q
    even = -1.5463815545201715e-09
    even = even * y + 1.744682183478039e-08
    even = even * y - 1.10233768116029e-07
    even = even * y + 5.507887683089697e-07
    even = even * y - 2.611858307579318e-06
    even = even * y + 1.3626321688909283e-05
    even = even * y - 8.785300671505195e-05
    even = even * y + 0.0006948970697612711
    even = even * y - 0.005002378587116524
    even = even * y - 0.0321978374283102
    even = even * y + 0.013999634724430356
    even = even * y + 0.47205320650984467
    odd = -7.255460695851768e-10
    odd = odd * y + 5.758385702078858e-09
    odd = odd * y - 1.8643150877103823e-08
    odd = odd * y - 2.2103572445430463e-10
    odd = odd * y + 4.0580524875156294e-07
    odd = odd * y - 3.4328382916146516e-06
    odd = odd * y + 2.1250241889757066e-05
    odd = odd * y - 9.443028888601637e-05
    odd = odd * y - 0.0002856230944321861
    odd = odd * y + 0.01793609747950764
    odd = odd * y + 0.02860036405355274
    odd = odd * y - 0.09670347732652579
    return (even + q * odd) / (1 + t)


@jit(**STRAIGHT)
def _rough_log(x):  # pragma: no cover (compiled)
    """log x of a normal x > 0 to 2e-5: the exponent, and a polynomial of the rest."""
    bits = np.float64(x).view(np.int64)
    exponent = np.float64((bits >> 52) - 1023)
    rest = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64) - 1.5
    p = rest * 0.02980877 - 0.05543528
    p = p * rest + 0.0984307
    p = p * rest - 0.22163916
    p = p * rest + 0.66667134
    p = p * rest + 0.40545697
    return exponent * 0.6931471805599453 + p


@jit(**STRAIGHT)
def probit(p):  # pragma: no cover (compiled)
    """Φ⁻¹(p) to 1e-3 (Abramowitz and Stegun 26.2.23), for p from 1e-6 to 1 - 1e-6: beyond that, those."""
    small = min(p, 1 - p)
    small = 1e-6 if small < 1e-6 else small
    t = math.sqrt(-2 * _rough_log(small))
    y = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    return -y if p < 0.5 else y


@jit(**STRAIGHT)
def log(x):  # pragma: no cover (compiled)
    """log x of a normal x > 0, to three roundings of the larger of 1 and itself: x = 2^n m with m within √2 of 1, and
    log m = 2 artanh((m - 1) / (m + 1)) as a series, of which 22 powers are left."""
    bits = np.float64(x).view(np.int64) - 0x3FE6A09E667F3BCD  # of √½
    n = np.float64(bits >> 52)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).view(np.float64)
    s = (m - 1) / (m + 1)
    y = s * s
    p = y * (1 / 21) + 1 / 19
    p = p * y + 1 / 17
    p = p * y + 1 / 15
    p = p * y + 1 / 13
    p = p * y + 1 / 11
    p = p * y + 1 / 9
    p = p * y + 1 / 7
    p = p * y + 1 / 5
    p = p * y + 1 / 3
    p = p * y + 1
    return n * 0.6931471805599453 + 2 * s * p
