"""Special functions and quantiles against published values and closed forms."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from roofwatch.model.regression_math import (
    DF_MOST,
    beta_share,
    digamma,
    f_tail,
    gap_found,
    t_quantile,
    t_tail,
    trigamma,
    trigamma_inverse,
    windows_needed,
)
from roofwatch.store.queries.regression_numbers import t_quantiles

EULER = 0.5772156649015329


@pytest.mark.parametrize(
    ("x", "value"), [(1.0, -EULER), (0.5, -EULER - 2 * math.log(2)), (4.0, 1 + 1 / 2 + 1 / 3 - EULER)]
)
def test_digamma(x: float, value: float) -> None:
    """At 1, ½ and 4, where sums and logarithms give it."""
    assert digamma(x) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("x", "value"), [(1.0, math.pi**2 / 6), (0.5, math.pi**2 / 2), (3.0, math.pi**2 / 6 - 1.25)])
def test_trigamma(x: float, value: float) -> None:
    """At 1, ½ and 3, where π² gives it; and back."""
    assert trigamma(x) == pytest.approx(value, abs=1e-12)
    assert trigamma_inverse(value) == pytest.approx(x, rel=1e-9)


def test_the_incomplete_beta_function() -> None:
    """I_x(a, 1) = x^a, I_x(1, b) = 1 - (1-x)^b, and the symmetry of a = b."""
    assert beta_share(0.3, 4.5, 1.0) == pytest.approx(0.3**4.5, rel=1e-12)
    assert beta_share(0.9, 1.0, 7.0) == pytest.approx(1 - 0.1**7, rel=1e-12)
    assert beta_share(0.5, 3.3, 3.3) == pytest.approx(0.5, rel=1e-12)
    assert (beta_share(0.0, 2, 3), beta_share(1.0, 2, 3)) == (0.0, 1.0)


# Printed tables of Student's t: upper tail, degrees of freedom, value.
@pytest.mark.parametrize(
    ("tail", "df", "value"),
    [(0.025, 1, 12.706), (0.005, 10, 3.169), (0.0005, 3, 12.924), (0.05, 30, 1.697), (0.0005, 120, 3.373)],
)
def test_students_t(tail: float, df: float, value: float) -> None:
    """As tables print it, and back; infinitely many degrees of freedom are normal."""
    assert t_quantile(tail, df) == pytest.approx(value, abs=6e-4)
    assert t_tail(t_quantile(tail, df), df) == pytest.approx(tail, rel=1e-6)
    assert t_quantile(1e-5, 1e9) == pytest.approx(NormalDist().inv_cdf(1 - 1e-5), rel=1e-3)


@pytest.mark.parametrize(
    ("f", "df1", "df2", "tail"), [(6.388, 4, 4, 0.05), (10.044, 1, 10, 0.01), (2.70, 5, 25, 0.0440)]
)
def test_the_f_distribution(f: float, df1: float, df2: float, tail: float) -> None:
    """As tables print it."""
    assert f_tail(f, df1, df2) == pytest.approx(tail, rel=5e-3)


def test_many_quantiles_at_once_are_the_exact_ones() -> None:
    """The table between whose points lines are drawn is right to 0.1 %, from one degree of freedom on."""
    df = np.array([1.0, 1.3, 2.0, 3.7, 8.0, 21.0, 44.4, 180.0, 3000.0, DF_MOST])
    for tail in (0.005, 1.5e-5, 1e-6):
        exact = [t_quantile(tail, float(d)) for d in df]
        assert t_quantiles(tail, df) == pytest.approx(exact, rel=1e-3)


def test_windows_needed_by_hand() -> None:
    """With known noise n = 2 (z(tail) + z(power))² (noise ÷ gap)²; unknown noise needs more, no gap has no number."""
    gap, tail = math.log(1.05 / 1.03), 0.01 / 300 / 2
    z = NormalDist().inv_cdf(1 - tail) + NormalDist().inv_cdf(0.95)  # 4.149 + 1.645
    assert [windows_needed(s, DF_MOST, gap, tail, 0.95) for s in (0.005, 0.01, 0.02)] == [
        math.ceil(2 * (z * s / gap) ** 2) for s in (0.005, 0.01, 0.02)
    ]  # 5, 19, 73
    assert [windows_needed(s, 0.0, gap, tail, 0.95) for s in (0.005, 0.01, 0.02)] == [9, 22, 77]
    assert windows_needed(0.01, 0.0, 0.0, tail, 0.95) is None
    assert windows_needed(1e4, 0.0, 0.01, tail, 0.95) is None


def test_what_so_many_windows_find() -> None:
    """Of 50 windows at 1 % noise, as of a normal distribution: (1.960 + 1.645) · 0.01 · √(2 ÷ 50) = 0.00721."""
    assert gap_found(0.01, 1e6, 50, 0.025, 0.95) == pytest.approx(0.00721, rel=2e-3)
    assert windows_needed(0.01, 1e6, gap_found(0.01, 1e6, 50, 0.025, 0.95), 0.025, 0.95) == 50
