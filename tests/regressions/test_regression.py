"""Verdicts, the clock, how many windows are enough."""

from __future__ import annotations

import math

import pytest

from roofwatch.cli.render.regression_changes import between
from roofwatch.model.errors import UsageError
from roofwatch.model.record import Bound
from roofwatch.model.regression import (
    Interval,
    Limits,
    Seen,
    Tails,
    Verdict,
    enough,
    judge,
    judge_step,
    one_sided,
    separable,
    short,
    windows_apart,
    with_clock,
)

LIMITS = Limits()
TAILS = Tails.of(300, 300)
STILL = Interval(0.0, 0.0)
LOWER = Interval(math.log(0.94), 0.001)  # the clock fell by 6 %


def seen(effect: float, half: float, bound: Bound = Bound.MEMORY, **more: object) -> Seen:
    """A kernel with this log-ratio, in all of 30 windows a side."""
    told: dict[str, object] = {"calls": STILL, "present": ((30, 30), (30, 30)), **more}
    return Seen(Interval(effect, half), bound=bound, **told)  # type: ignore[arg-type]


# The tolerance is ln 1.03 = 0.0296, what must not be missed ln 1.05 = 0.0488.
@pytest.mark.parametrize(
    ("effect", "half", "verdict"),
    [
        (0.05, 0.02, Verdict.SLOWER),  # from 0.03 on
        (0.05, 0.021, Verdict.UNCLEAR),  # from 0.029 on: the tolerance is inside
        (0.0, 0.04, Verdict.SAME),  # 5 % slower is excluded
        (0.0, 0.05, Verdict.UNCLEAR),
        (-0.05, 0.02, Verdict.FASTER),
        (-0.05, 0.021, Verdict.SAME),
        (math.nan, math.nan, Verdict.UNCLEAR),
    ],
)
def test_a_verdict_needs_the_whole_interval(effect: float, half: float, verdict: Verdict) -> None:
    """Slower and faster only where the interval excludes the tolerance; the same only where it excludes 5 %."""
    assert judge(seen(effect, half), LIMITS, TAILS) is verdict


def test_called_more_often_is_not_slower() -> None:
    """The time of a call is what it was, calls a step are 12 for 10: ln 1.2 = 0.18."""
    more = Interval(math.log(1.2), 0.01)
    assert judge(seen(0.0, 0.01, calls=more), LIMITS, TAILS) is Verdict.CALLED_MORE
    assert judge(seen(0.0, 0.01, calls=Interval(-more.effect, 0.01)), LIMITS, TAILS) is Verdict.CALLED_LESS
    assert judge(seen(0.1, 0.01, calls=more), LIMITS, TAILS) is Verdict.SLOWER
    few = seen(0.0, 0.01, calls=more, present=((5, 5), (5, 5)))  # 252 ways to deal ten windows: no proof among 300
    assert judge(few, LIMITS, TAILS) is Verdict.SAME
    assert short(few, LIMITS, TAILS)
    assert not short(seen(0.0, 0.01, calls=more), LIMITS, TAILS)
    assert not short(seen(0.0, 0.01, present=((5, 5), (5, 5))), LIMITS, TAILS)


def test_a_lower_clock_explains_what_scales_with_it() -> None:
    """6.4 % slower at a clock 6 % lower (ln 1/0.94 = 0.0619): compute does that, memory does not."""
    for bound, verdict in (
        (Bound.COMPUTE, Verdict.CLOCK), (Bound.LATENCY, Verdict.CLOCK), (Bound.UNKNOWN, Verdict.CLOCK),
        (Bound.MEMORY, Verdict.SLOWER), (Bound.COMMUNICATION, Verdict.SLOWER),
    ):  # fmt: skip
        assert judge(seen(0.062, 0.01, bound, clock=LOWER), LIMITS, TAILS) is verdict
    assert judge(seen(0.062, 0.01, Bound.COMPUTE), LIMITS, TAILS) is Verdict.SLOWER  # not read
    assert judge(seen(0.20, 0.01, Bound.COMPUTE, clock=LOWER), LIMITS, TAILS) is Verdict.SLOWER  # 14 % are left
    loose = Interval(math.log(0.94), 0.07)  # may be higher just as well
    assert judge(seen(0.062, 0.01, Bound.COMPUTE, clock=loose), LIMITS, TAILS) is Verdict.SLOWER


def test_a_step_slows_down_with_the_part_of_it_that_is_compute() -> None:
    """Half of the time compute: a clock 10 % lower explains 5 %, which leaves less than the tolerance of 6 %."""
    half = with_clock([(Bound.COMPUTE, 5.0), (Bound.MEMORY, 4.0), (Bound.UNKNOWN, 1.0)])
    assert half == 0.5
    clock = Interval(-0.105, 0.001)
    assert judge_step(Interval(0.06, 0.01), clock, half, LIMITS) is Verdict.CLOCK
    assert judge_step(Interval(0.06, 0.01), clock, 0.0, LIMITS) is Verdict.SLOWER
    assert judge_step(Interval(0.0, 0.01), None, half, LIMITS) is Verdict.SAME
    assert with_clock([]) == 0.0


def test_new_and_vanished_by_hand() -> None:
    """In all of n windows after and none of n before: one way of C(2n, n): 1/70 for 4, 1/705432 for 11."""
    assert one_sided(4, 4, 4, new=True) == pytest.approx(1 / 70)
    assert one_sided(2, 3, 4, new=True) == pytest.approx(math.comb(4, 2) / math.comb(7, 2))
    assert one_sided(2, 3, 4, new=False) == pytest.approx(math.comb(3, 2) / math.comb(7, 2))
    tail = TAILS.calls  # 0.001 / 2 / 300 = 1.7e-6
    assert tail == pytest.approx(0.001 / 600)
    assert separable(11, 11, tail)
    assert not separable(10, 10, tail)
    new = Seen(None, None, ((0, 11), (11, 11)), Bound.MEMORY)
    assert judge(new, LIMITS, TAILS) is Verdict.NEW
    assert judge(Seen(None, None, ((11, 11), (0, 11)), Bound.MEMORY), LIMITS, TAILS) is Verdict.VANISHED
    assert windows_apart(tail) == 11
    assert short(Seen(None, None, ((0, 4), (4, 4)), Bound.MEMORY), LIMITS, TAILS)
    assert not short(Seen(None, None, ((0, 4), (3, 4)), Bound.MEMORY), LIMITS, TAILS)  # comes and goes
    rare = Seen(None, None, ((0, 400), (9, 400)), Bound.MEMORY)  # 1/2⁹: some kernel of 300 does that
    assert judge(rare, LIMITS, TAILS) is Verdict.UNCLEAR


def test_another_kernel_for_the_same_work() -> None:
    """Not slower: replaced, which is no finding; slower: slower."""
    assert judge(seen(0.0, 0.01, changed=True), LIMITS, TAILS) is Verdict.REPLACED
    assert judge(seen(0.1, 0.01, changed=True), LIMITS, TAILS) is Verdict.SLOWER


def test_the_error_of_a_run_is_shared_by_its_tests() -> None:
    """1 % over both ends of all intervals: nine tenths to times, one to calls."""
    tails = Tails.of(302, 300)
    assert 2 * (302 * tails.time + 300 * tails.calls) == pytest.approx(0.01)


def test_enough_windows_for_the_kernel_in_the_middle_of_the_time() -> None:
    """Kernels of 60 % of the time at 1 % noise, of 40 % at 20 %: the first tell, and 22 windows are about enough."""
    kernels = [(0.3, 0.01, 40.0), (0.3, 0.01, 40.0), (0.4, 0.2, 40.0)]
    tails = Tails.of(300, 300)
    told = enough(kernels, 21.0, LIMITS, tails)
    assert told.noise == 0.01
    assert told.needed == pytest.approx(22, abs=1)
    assert not enough(kernels, 15.0, LIMITS, tails).complete
    assert enough(kernels, 30.0, LIMITS, tails).complete
    assert enough([(1.0, math.nan, math.nan)], 1.0, LIMITS, tails).needed is None


@pytest.mark.parametrize(
    "options",
    [{"tolerance": -1}, {"tolerance": "x"}, {"tolerance": True}, {"tolerance": 0.05, "find": 0.05}, {"least_share": 2}],
)
def test_options_that_mean_nothing(options: dict[str, object]) -> None:
    """One sentence each."""
    with pytest.raises(UsageError):
        Limits.of(options)


def test_limits_from_options() -> None:
    """What is looked for lies 2 % above the tolerance where nothing else is said."""
    assert Limits.of({}) == Limits(0.03, 0.05, 0.001)
    assert Limits.of({"tolerance": 0.1, "least_share": 0}).find == pytest.approx(0.12)


def test_an_interval_of_noise_stays_short() -> None:
    """Digits of what no window could tell say nothing."""
    assert between(0.0, 1.234e15) == "-100 % to ×1e+15"
    assert between(1.034, 1.068) == "+3.4 to +6.8 %"
    assert between(0.5, 12_345.6) == "-50 % to ×12,346"
