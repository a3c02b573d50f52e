"""The special functions and quantiles that the comparison of two sides needs: standard library only.

Sources: NIST Digital Library of Mathematical Functions 5.5, 5.11, 5.15 (digamma, trigamma), 8.17 (incomplete beta
function: continued fraction 8.17.22, Student's t and F by it).
"""

from __future__ import annotations

import math
from functools import lru_cache

DF_MOST = 10_000.0  # degrees of freedom: more cannot be told from infinitely many
_TINY, _CLOSE = 1e-300, 1e-14
_SHIFT = 8.0  # from here on the asymptotic series gives 1e-12


def digamma(x: float) -> float:
    """ψ(x) of x > 0: recurrence up to _SHIFT, then DLMF 5.11.2."""
    result = 0.0
    while x < _SHIFT:
        result -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * 691 / 32760)))))
    return result + math.log(x) - 0.5 / x - series


def trigamma(x: float) -> float:
    """ψ'(x) of x > 0: recurrence up to _SHIFT, then the derivative of DLMF 5.11.2."""
    result = 0.0
    while x < _SHIFT:
        result += 1.0 / (x * x)
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * (5 / 66 - y * 691 / 2730)))))
    return result + 1.0 / x + 0.5 * y + series / x


def trigamma_inverse(value: float) -> float:
    """The x > 0 with ψ'(x) = value > 0. As ψ' falls from ∞ to 0, halving in log x finds it."""
    low, high = 1e-8, 1e8
    while high / low > 1.0 + 1e-12:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)


def beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for 0 ≤ x ≤ 1."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges fast below this only
        return 1.0 - beta_share(1.0 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction 1 + d₁/(1 + d₂/(1 + …)) of DLMF 8.17.22, by Lentz's method."""
    value, up, down = 1.0, 1.0, 0.0
    for n in range(1, 10_000):
        m = n // 2
        if n % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        down = 1.0 / ((1.0 + term * down) or _TINY)
        up = (1.0 + term / up) or _TINY
        value *= up * down
        if abs(up * down - 1.0) < _CLOSE:
            break
    return value


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t for t ≥ 0."""
    return 0.5 * beta_share(df / (df + t * t), df / 2.0, 0.5)


@lru_cache(maxsize=4096)
def t_quantile(tail: float, df: float) -> float:
    """The t that Student's t exceeds with probability ``tail`` (0 < tail ≤ 0.5)."""
    df = min(df, DF_MOST)
    low, high = 0.0, 1.0
    while t_tail(high, df) > tail:
        low, high = high, high * 2.0
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if t_tail(middle, df) > tail else (low, middle)
    return 0.5 * (low + high)


def f_tail(f: float, df1: float, df2: float) -> float:
    """P(F > f) of the F distribution with df1 and df2 degrees of freedom."""
    return beta_share(df2 / (df2 + df1 * f), df2 / 2.0, df1 / 2.0)


def gap_found(noise: float, prior_df: float, n: float, tail: float, power: float) -> float:
    """The least gap that ``n`` windows a side clear, by the formula of ``windows_needed``; ``n`` is 2 at least."""
    df = min(2.0 * (n - 1) + 2.0 * prior_df, DF_MOST)
    return (t_quantile(tail, df) + t_quantile(1.0 - power, df)) * noise * math.sqrt(2.0 / n)


def windows_needed(noise: float, prior_df: float, gap: float, tail: float, power: float) -> int | None:
    """Windows a side for a lower limit that clears ``gap`` with probability ``power``; None: more than a million.

    ``noise`` is the standard deviation from window to window, ``gap`` the distance between the effect and what its
    lower limit must exceed (both as logarithms), ``tail`` the error that one limit may have, and ``prior_df`` what is
    borrowed on each side. The least n with gap ≥ (t_tail + t_miss) · noise · √(2/n), df = 2 (n - 1) + 2 prior_df.
    """
    if gap <= 0.0:
        return None

    def enough(n: int) -> bool:
        return gap >= gap_found(noise, prior_df, n, tail, power)

    high = 2
    while not enough(high):
        if high > 1_000_000:
            return None
        high *= 2
    low = max(2, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high
