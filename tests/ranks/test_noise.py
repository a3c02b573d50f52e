"""No false alarms, and what is found how soon: simulated ranks with noise; slow versions of what is computed fast."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.model.peers import Sight
from roofwatch.model.ranks import Run, Series, late_runs, lateness, noise_of, over_others
from roofwatch.model.ranks_laid import PARTS, RankWindow, lay

OWN, REST = 80e6, 20e6  # ns of a step that a rank works, and that bytes move, at least
RANKS, LATE = 8, 3


def windows(
    moments: int, noise: Callable[[random.Random], float], seed: int, late: float, since: int
) -> list[RankWindow]:
    """Eight ranks with noise in their work; one is ``late`` (of its work) from a moment on; all end a step together."""
    draw, made = random.Random(seed), []
    for moment in range(moments):
        own = [OWN * (1 + noise(draw) + late * (rank == LATE and moment >= since)) for rank in range(RANKS)]
        step = max(own) + REST
        for rank in range(RANKS):
            parts = dict.fromkeys(PARTS, 0.0) | {"compute": own[rank], "exposed_communication": step - own[rank]}
            sight = Sight(len(made), "run", rank, rank, 10**18 + moment * 60 * 10**9, int(step), 100 * moment)
            made.append(RankWindow(sight, step, parts, steps=1))
    return made


def runs_of(
    moments: int, noise: Callable[[random.Random], float], seed: int, late: float = 0.0, since: int = 0
) -> list[Run]:
    """What is found in them."""
    return late_runs(lateness(lay(windows(moments, noise, seed, late, since))))


def normal(draw: random.Random) -> float:
    """2 % from window to window."""
    return draw.gauss(0, 0.02)


def heavy(draw: random.Random) -> float:
    """2 %, and in every twentieth window up to some tens of per cent: a checkpoint, a collection of garbage."""
    return draw.gauss(0, 0.02) if draw.random() > 0.05 else abs(draw.gauss(0, 0.2))


@pytest.mark.parametrize(("moments", "tries"), [(1, 300), (3, 300), (10, 200), (40, 100)])
def test_equal_ranks_have_no_straggler(moments: int, tries: int) -> None:
    """Eight ranks of equal speed with 2 % noise: a straggler in at most 1 % of runs, whatever their length.

    Each try has its own seed; of 1,000 with other seeds at most one had one (docs/ranks.md).
    """
    alarms = sum(bool(runs_of(moments, normal, seed)) for seed in range(tries))
    assert alarms <= tries * 0.01


def test_rare_slow_windows_are_no_straggler() -> None:
    """Noise with a long tail, 60 windows: by the normal distribution alone every fourth try would have one."""
    assert sum(bool(runs_of(60, heavy, seed)) for seed in range(80)) <= 2


@pytest.mark.parametrize("noise", [normal, heavy])
def test_a_straggler_is_found_with_its_begin(noise: Callable[[random.Random], float]) -> None:
    """12 % more work, a tenth of the step, in the last 10 of 20 windows: found, alone, in 9 of 10 within a window."""
    off = []
    for seed in range(40):
        (run,) = runs_of(20, noise, seed, late=0.12, since=10)
        assert (run.rank, run.still) == (LATE, True)
        off.append(abs(run.first - 10))
    assert sorted(off)[35] <= 1


@given(st.dictionaries(st.integers(0, 40), st.integers(-(10**12), 10**12), min_size=2, max_size=12))
def test_over_others_is_the_median_without_oneself(values: dict[int, int]) -> None:
    """Against the median of a list without the rank."""
    found = over_others(values)
    for rank, value in values.items():
        assert found[rank] == value - median(v for other, v in values.items() if other != rank)


@given(st.integers(0, 10**6), st.integers(-(10**17), 10**17), st.permutations(range(RANKS)))
def test_what_changes_nothing(seed: int, shift: int, names: list[int]) -> None:
    """Other clocks, and other numbers for the ranks: the same run, of the rank's new number."""
    given_ = windows(12, normal, seed, 0.12, 5)
    (run,) = late_runs(lateness(lay(given_)))
    moved = []
    for w in given_:
        s = w.sight
        renamed = Sight(s.id, s.run, s.process, names[s.rank], s.start_unix_ns + shift, s.duration_ns, s.first_step)
        moved.append(RankWindow(renamed, w.span_ns, w.parts, w.steps))
    (other,) = late_runs(lateness(lay(reversed(moved))))
    assert (other.rank, other.first, other.last, other.share) == (names[LATE], run.first, run.last, run.share)


def test_noise_is_of_neighbours() -> None:
    """Differences 1, 1, 8, 1 and 1, 1, 1, 1: their median is 1, whatever the levels; 1.4826 ÷ √2 of it."""
    series = [Series((0, 1, 2, 3, 4), (0, 1, 2, 10, 11)), Series((0, 1, 2, 3, 4), (5, 6, 5, 6, 5))]
    assert noise_of(series) == pytest.approx(1.4826 / 2**0.5)
    assert noise_of([Series((0,), (1.0,))]) is None


def test_a_run_needs_three_windows_and_three_per_cent() -> None:
    """Late by 50 % in two of eight windows; by 2.9 % in all; by 3.1 % in all, where nothing else differs."""
    eight = tuple(range(8))
    other = Series(eight, (0.0,) * 8)
    for shares, expected in (
        ((0.5, 0.5, *[0.0] * 6), []),
        ((0.029,) * 8, []),
        ((0.031,) * 8, [(0, 0, 7)]),
        ((0.0,) * 4 + (0.031,) * 4, [(0, 4, 7)]),
    ):
        found = late_runs({0: Series(eight, shares), 1: other, 2: other})
        assert [(run.rank, run.first, run.last) for run in found] == expected
