"""Log-ratios over windows: by hand, under changes that must not matter, and in small simulations."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from roofwatch.store.queries.regression_counts import compare_counts
from roofwatch.store.queries.regression_numbers import Prior, compare, priors_of

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))  # the simulation, of which a small part is run here

from regressions_power import Noise, finding_nothing, found_one, power

SIDES = np.array([False, False, False, True, True, True])
ONE = np.zeros(6, dtype=np.int64)


def test_a_log_ratio_by_hand() -> None:
    """Means 0.01 and 0.11, both variances 1e-4, so an error of √(2e-4/3) on 4 degrees of freedom: t(2.5 %) = 2.776."""
    found = compare(np.array([[0.0, 0.01, 0.02, 0.10, 0.11, 0.12]]), SIDES, ONE)
    assert (found.effect[0], found.before[0]) == (pytest.approx(0.1), pytest.approx(0.01))
    assert found.error[0] == pytest.approx(math.sqrt(2e-4 / 3))
    assert (found.df[0], found.half_width(0.025)[0]) == (pytest.approx(4.0), pytest.approx(0.02267, rel=1e-3))
    assert (found.n_before[0], found.n_after[0], found.spread[0]) == (3, 3, pytest.approx(2 / 3))


def test_unequal_noise_is_each_sides_own() -> None:
    """Welch: variances 1e-4 and 9e-4 of 3 windows each, error² 10e-4/3, df = 10² / (1²/2 + 9²/2) = 2.439."""
    found = compare(np.array([[0.0, 0.01, 0.02, 0.08, 0.11, 0.14]]), SIDES, ONE)
    assert found.error[0] ** 2 == pytest.approx(1e-3 / 3)
    assert found.df[0] == pytest.approx(100 / 41)


def test_blocks_are_compared_with_themselves() -> None:
    """Two devices that differ by 1.0, after both 0.1 more; weights 2·2/4 and 1·3/4: the device is no difference.

    Without blocks it would be one, as after has more windows of the slower device.
    """
    values = np.array([[0.00, 0.02, 1.0, 0.10, 0.12, 1.09, 1.1, 1.11]])
    after = np.array([False, False, False, True, True, True, True, True])
    block = np.array([0, 0, 1, 0, 0, 1, 1, 1])
    assert compare(values, after, block).effect[0] == pytest.approx(0.1)
    assert compare(values, after, block).spread[0] == pytest.approx(1 / (1 + 0.75))  # as least squares has it
    assert compare(values, after, np.zeros(8, dtype=np.int64)).effect[0] > 0.3


def test_what_is_borrowed_by_hand() -> None:
    """Own variance 1e-4 on 2 degrees of freedom, lent 4e-4 on 4: (4·4e-4 + 2·1e-4) ÷ 6 = 3e-4 on 6 of them."""
    row = [0.0, 0.01, 0.02, 0.10, 0.11, 0.12]
    lent = Prior(4.0, 4e-4)
    found = compare(np.array([row] * 4), SIDES, ONE, priors=(lent, lent))
    assert found.noise_before == pytest.approx([math.sqrt(3e-4)] * 4)
    assert found.df == pytest.approx([12.0] * 4)
    assert compare(np.array([row] * 4), SIDES, ONE, priors=(lent, lent), borrow=False).noise_before[0] == pytest.approx(
        0.01
    )


def test_a_stranger_borrows_nothing() -> None:
    """Own variance 0.01, lent 1e-4 on 50: F = 100 on (2, 50) has a probability of 1e-18, so it keeps its own."""
    row = [0.0, 0.1, 0.2, 0.0, 0.1, 0.2]
    lent = Prior(50.0, 1e-4)
    assert compare(np.array([row] * 60), SIDES, ONE, priors=(lent, lent)).noise_before[0] == pytest.approx(0.1)


def test_the_prior_is_found_again() -> None:
    """Variances drawn as 10 · 1e-4 ÷ χ²(10), windows of these: 10 degrees of freedom and 1e-4 come back."""
    draw = np.random.default_rng(5)
    true = 10 * 1e-4 / draw.chisquare(10, 4000)
    values = draw.normal(0.0, 1.0, (4000, 12)) * np.sqrt(true)[:, None]
    for prior in priors_of(values, np.repeat([False, True], 6), np.zeros(12, dtype=np.int64)):
        assert prior.df == pytest.approx(10, rel=0.2)
        assert prior.variance == pytest.approx(1e-4, rel=0.05)


def test_a_shift_of_one_side_shifts_the_effect_and_nothing_else() -> None:
    """What the simulation's search rests on: limits move with the values, outliers and borrowing included."""
    values = next(Noise(0.01, 3, outliers=0.1).draws(15, 1))
    after, block = np.repeat([False, True], 15), np.zeros(30, dtype=np.int64)
    still, moved = compare(values, after, block), compare(values + 0.3 * after, after, block)
    assert moved.effect == pytest.approx(still.effect + 0.3)
    assert moved.error == pytest.approx(still.error)
    assert moved.df == pytest.approx(still.df)
    assert (moved.outliers_after == still.outliers_after).all()


def test_outliers_are_left_out_and_counted() -> None:
    """One window of ten is 10 times slower; with four of ten that is how the kernel is: none is left out."""
    draw = np.random.default_rng(1)
    quiet = draw.normal(0.0, 0.01, (50, 20))
    after, block = np.repeat([False, True], 10), np.zeros(20, dtype=np.int64)
    few, many = quiet.copy(), quiet.copy()
    few[:, 3] += math.log(10)
    many[:, :4] += math.log(10)
    found = compare(few, after, block)
    assert (found.outliers_before == 1).all()
    assert (found.n_before == 9).all()
    assert np.abs(found.effect).max() < 0.02
    assert not found.missed.any()
    crowd = compare(many, after, block)
    assert crowd.missed.all()
    assert (crowd.outliers_before == 0).all()
    assert crowd.noise_before.min() > 0.5


def test_windows_that_resemble_their_neighbours_are_worth_less() -> None:
    """AR(1) with r = 0.5: the variance of a mean is (1 + r) / (1 - r) = 3 times as large."""
    draw = np.random.default_rng(2)
    noise = draw.normal(0.0, 0.01, (300, 80))
    values = noise.copy()
    for i in range(1, 80):
        if i != 40:
            values[:, i] = 0.5 * values[:, i - 1] + math.sqrt(0.75) * noise[:, i]
    after, block = np.repeat([False, True], 40), np.zeros(80, dtype=np.int64)
    grown = compare(values, after, block).error / compare(noise, after, block).error
    assert np.median(grown) == pytest.approx(math.sqrt(3), rel=0.1)


def test_nothing_can_be_said_of_one_window_a_side() -> None:
    """There is no noise known, so no interval."""
    found = compare(np.array([[0.0, 0.5]]), np.array([False, True]), np.zeros(2, dtype=np.int64))
    assert found.effect[0] == 0.5
    assert math.isnan(found.half_width(0.01)[0])


def test_windows_without_the_kernel_are_left_out() -> None:
    """NaN is no value: means and counts are of the others."""
    nan = math.nan
    found = compare(np.array([[0.0, nan, 0.02, 0.10, 0.12, nan], [nan] * 6]), SIDES, ONE)
    assert (found.effect[0], found.n_before[0], found.n_after[0]) == (pytest.approx(0.1), 2, 2)
    assert math.isnan(found.effect[1])


def test_constant_times_have_the_least_noise() -> None:
    """Times that never vary do not make a nanosecond significant: the noise is at least 0.05 %."""
    found = compare(np.array([[1.0] * 3 + [1.0001] * 3] * 5), SIDES, ONE)
    assert (found.noise_before >= 5e-4).all()
    assert (found.noise_before < 1e-3).all()


def test_calls_a_step_by_hand() -> None:
    """Means 2 and 3, variances 1 and 1 of 3 windows: log 1.5, error² = 1/3/4 + 1/3/9 on 4 degrees of freedom.

    A kernel without calls before has no finite ratio.
    """
    found = compare_counts(np.array([[1.0, 2, 3, 2, 3, 4], [0.0, 0, 0, 1, 1, 1]]), SIDES, ONE, 0.025)
    assert (found.before[0], found.after[0]) == (2.0, 3.0)
    assert found.effect[0] == pytest.approx(math.log(1.5))
    assert found.half[0] == pytest.approx(2.776 * math.sqrt(1 / 12 + 1 / 27), rel=1e-3)
    assert found.effect[1] == math.inf


def test_few_runs_of_the_simulation() -> None:
    """The windows of the table find the slow kernel, half as many do not; nothing is found in nothing.

    1 % noise and 20 windows: 300 × 30 kernels for the power, 100 runs each for what runs find (bench has 1,000).
    """
    assert power(Noise(0.01, 1), 20, 30, borrow=True) >= 0.95
    assert power(Noise(0.01, 1), 10, 30, borrow=True) < 0.7
    assert power(Noise(0.01, 1), 20, 30, borrow=False) < 0.93
    assert found_one(Noise(0.01, 2), 22, 100, borrow=True) >= 0.93
    assert finding_nothing(Noise(0.02, 3), 10, 100) == 0.0
    assert finding_nothing(Noise(0.02, 3), 10, 100, ratio=1.03) <= 0.03


def test_outliers_make_no_finding_and_hide_none() -> None:
    """5 % of windows 10 times slower, at 1 % noise and 24 windows a side."""
    assert finding_nothing(Noise(0.01, 4, outliers=0.05), 24, 150) == 0.0
    assert found_one(Noise(0.01, 5, outliers=0.05), 24, 150, borrow=True) >= 0.95
