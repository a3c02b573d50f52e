"""How many windows ``roofwatch regressions`` needs, and how seldom it finds something in nothing: a simulation.

The noise model: 300 kernels; the mean time of a call of kernel i in window j is its true mean × exp(noise · N(0, 1)),
independent over kernels and windows; both sides have as many windows; two times of whole steps are tested along. What
decides is the command's own code: a finding is a lower limit, corrected for all tests, above the tolerance of 3 %.

Of the tables: the least number of windows a side at which a slowdown of 5 % in one kernel is found in 95 % of runs,
with each kernel's own variance only and with what it borrows. As ``compare`` moves with its values (a test holds that),
one run tells for each of its 300 kernels whether it would have been found, had it been the slow one; the figure for the
chosen number is then taken again from runs in which one kernel is slow indeed.

    python bench/regressions_power.py [--runs N]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from _rows import row, say

from roofwatch.model.regression import POWER, TOLERANCE, Tails
from roofwatch.model.regression_math import windows_needed
from roofwatch.store.queries.regression_numbers import compare

KERNELS, STEP_TIMES = 300, 2
SLOWDOWN = 0.05
NOISES = (0.005, 0.01, 0.02)
EXPECTED = {0.005: 9, 0.01: 22, 0.02: 73}  # about, with each kernel's own variance
RUNS = 1000
NOTHING_MOST = 0.01  # of runs
SEARCH_RUNS = 100  # × 300 kernels
BAR, SLOW = math.log1p(TOLERANCE), math.log1p(SLOWDOWN)

Floats = npt.NDArray[np.float64]
Draw = Callable[[int], Floats]  # windows a side → logarithms, shape (kernels, 2 × windows)


@dataclass(frozen=True, slots=True)
class Noise:
    """Times without any difference: the stated noise, and so many windows that are ten times slower."""

    sigma: float
    seed: int
    outliers: float = 0.0
    factor: float = 10.0

    def draws(self, windows: int, runs: int) -> Iterator[Floats]:
        """One array of logarithms a run."""
        draw = np.random.default_rng(self.seed)
        for _ in range(runs):
            values = draw.normal(0.0, self.sigma, (KERNELS, 2 * windows))
            if self.outliers:
                values += math.log(self.factor) * (draw.random(2 * windows) < self.outliers)
            yield values


def lower_limits(values: Floats, *, borrow: bool) -> Floats:
    """The corrected lower limit of each kernel's log-ratio."""
    windows = values.shape[1] // 2
    after = np.repeat([False, True], windows)
    found = compare(values, after, np.zeros(2 * windows, dtype=np.int64), borrow=borrow)
    return found.effect - found.half_width(Tails.of(KERNELS + STEP_TIMES, KERNELS).time)


def power(noise: Noise, windows: int, runs: int, *, borrow: bool) -> float:
    """The share of kernels that would have been found, had they been slow."""
    return float(np.mean([lower_limits(v, borrow=borrow) + SLOW > BAR for v in noise.draws(windows, runs)]))


def found_one(noise: Noise, windows: int, runs: int, *, borrow: bool) -> float:
    """The share of runs that find the one kernel that is slow indeed."""
    hits = 0
    for run, values in enumerate(noise.draws(windows, runs)):
        slow = run % KERNELS
        values[slow, windows:] += SLOW
        hits += bool(lower_limits(values, borrow=borrow)[slow] > BAR)
    return hits / runs


def finding_nothing(noise: Noise, windows: int, runs: int, *, ratio: float = 1.0, borrow: bool = True) -> float:
    """The share of runs with any finding where every kernel's time is ``ratio`` times what it was: false alarms."""
    shift = math.log(ratio)
    return sum(bool((lower_limits(v, borrow=borrow) + shift > BAR).any()) for v in noise.draws(windows, runs)) / runs


def least_windows(noise: Noise, *, borrow: bool, runs: int = SEARCH_RUNS) -> int:
    """The least number of windows a side with enough power, searched around what the formula says."""
    gap, tail = SLOW - BAR, Tails.of(KERNELS + STEP_TIMES, KERNELS).time
    windows = windows_needed(noise.sigma, 1e4 if borrow else 0.0, gap, tail, POWER) or 2
    while power(noise, windows, runs, borrow=borrow) < POWER:
        windows += 1
    while windows > 2 and power(noise, windows - 1, runs, borrow=borrow) >= POWER:
        windows -= 1
    return windows


def needed_windows(sigma: float, runs: int) -> int:
    """The windows that one noise needs, and whether so many are enough; those with what kernels borrow."""
    needed = {}
    for borrow, words in ((False, "own variance"), (True, "borrowing")):
        say(f"… noise {sigma:.1%}, {words}")
        needed[borrow] = least_windows(Noise(sigma, 1), borrow=borrow)
        label = f"regressions: windows a side to find 5 % at {sigma * 100:g} % noise, {words}"
        if borrow:
            row(label, needed[True], "windows", at_most=needed[False])
        else:
            row(label, needed[False], "windows", within=(EXPECTED[sigma], 0.1 * EXPECTED[sigma] + 1))
        hits = found_one(Noise(sigma, 2), needed[borrow], runs, borrow=borrow)
        chance = 3 * math.sqrt(POWER * (1 - POWER) / runs)
        row(f"{label}: found in, of {runs:,} runs", hits * 100, "%", at_least=(POWER - chance) * 100)
    return needed[True]


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="of each figure that is a share of runs")
    runs = parser.parse_args().runs
    for sigma in NOISES:
        windows = needed_windows(sigma, runs)
        for ratio, words in ((1.0, "nothing differs"), (1.0 + TOLERANCE, "every kernel is 3 % slower, the tolerance")):
            alarms = finding_nothing(Noise(sigma, 3), windows, runs, ratio=ratio)
            label = f"regressions: runs with a finding where {words}, {sigma * 100:g} % noise, {windows} windows"
            row(label, alarms * 100, "%", at_most=NOTHING_MOST * 100)
    outlying = Noise(0.01, 4, outliers=0.05)
    alarms = finding_nothing(outlying, 24, runs)
    label = "regressions: runs with a finding where nothing differs, 5 % of windows 10 × slower"
    row(label, alarms * 100, "%", at_most=NOTHING_MOST * 100)
    hits = found_one(outlying, 24, runs, borrow=True)
    label = "regressions: the slow kernel found, 5 % of windows 10 × slower, 1 % noise, 24 windows"
    row(label, hits * 100, "%", at_least=POWER * 100)


if __name__ == "__main__":
    main()
