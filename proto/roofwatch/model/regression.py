"""What a comparison of two sides means: verdicts, findings, how many windows would be enough. The numbers come from
the store's ``queries.regression_numbers``; the keys are documented in ``docs/answers.md``.
"""  # noqa: D205 - one thought

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from roofwatch.model.errors import UsageError
from roofwatch.model.record import Bound
from roofwatch.model.regression_math import DF_MOST, gap_found, windows_needed

ALPHA = 0.01  # of runs on sides that do not differ, so many may find something: family-wise, over all tests of a run
TIME_PART = 0.9  # of it for times; the rest for calls a step, which hardly vary
POWER = 0.95  # with as many windows as are needed, so many runs find what is looked for
TOLERANCE = 0.03
FIND_ABOVE = 0.02  # a slowdown that is looked for lies at least so far above the tolerance, if nothing else is said
LEAST_SHARE = 0.001  # of device time on either side: a kernel below it changes no step that anybody could measure

# What slows down with the clock of the compute units. Memory has a clock of its own; what waits has none. Nobody knows
# about an unknown bound: a clock that would explain it is the simpler reason.
_WITH_CLOCK = frozenset({Bound.COMPUTE, Bound.LATENCY, Bound.UNKNOWN})


class Verdict(StrEnum):
    """What became of a piece of work."""

    SLOWER = "slower"
    CALLED_MORE = "called_more"
    NEW = "new"
    CLOCK = "clock"  # slower, and a lower clock of the device explains it
    FASTER = "faster"
    CALLED_LESS = "called_less"
    VANISHED = "vanished"
    REPLACED = "replaced"  # another kernel does it, not slower
    UNCLEAR = "unclear"  # what is looked for could hide in the interval
    SAME = "same"


FINDINGS = frozenset({Verdict.SLOWER, Verdict.CALLED_MORE, Verdict.NEW})
ORDER = {verdict: place for place, verdict in enumerate(Verdict)}

ROW_KEYS = (
    "verdict", "finding", "kernel", "kernels_before", "kernels_after", "kind", "op", "phase", "module", "shapes",
    "dtypes", "device", "bound", "basis", "before_ns", "after_ns", "ratio", "ratio_low", "ratio_high", "calls_before",
    "calls_after", "calls_ratio", "calls_low", "calls_high", "step_before_ns", "step_after_ns", "step_ratio",
    "step_low", "step_high", "share_before", "share_after", "impact_share", "noise", "unsteady", "outliers_before",
    "outliers_after", "clock_ratio", "windows_before", "windows_after",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts: ratios − 1, and shares of device time."""

    tolerance: float = TOLERANCE
    find: float = TOLERANCE + FIND_ABOVE
    least_share: float = LEAST_SHARE

    @staticmethod
    def of(options: Mapping[str, Any]) -> Limits:
        """From a query's options.

        Raises:
            UsageError: one is no number in its range.
        """
        tolerance = number(options, "tolerance", TOLERANCE, 0.0, 10.0)
        find = number(options, "find", tolerance + FIND_ABOVE, 0.0, 20.0)
        if find <= tolerance:
            raise UsageError(
                f"a slowdown of {find:.1%} cannot be found above a tolerance of {tolerance:.1%}: give a larger --find"
            )
        return Limits(tolerance, find, number(options, "least_share", LEAST_SHARE, 0.0, 1.0))


def number(options: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    """One option's number; raises UsageError where it is none in its range."""
    found = options.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not low <= found <= high:
        raise UsageError(f"the option {name} of regressions is a number from {low:g} to {high:g}, not {found!r}")
    return float(found)


@dataclass(frozen=True, slots=True)
class Interval:
    """The logarithm of a ratio after ÷ before, and half the width of its corrected interval."""

    effect: float
    half: float

    @property
    def low(self) -> float:
        """The lower end, a logarithm."""
        return self.effect - self.half

    @property
    def high(self) -> float:
        """The upper end, a logarithm."""
        return self.effect + self.half

    def as_json(self, *names: str) -> dict[str, float | None]:
        """Ratio, low and high under three names; null where it is no finite number."""
        ends = (self.effect, self.low, self.high)
        return {name: ratio_of(end) for name, end in zip(names, ends, strict=True)}


def ratio_of(logarithm: float) -> float | None:
    """A ratio, None where it is not finite."""
    return math.exp(logarithm) if math.isfinite(logarithm) and abs(logarithm) < 700 else None


@dataclass(frozen=True, slots=True)
class Tails:
    """The error that one end of one interval may have: ALPHA over all tests of a run (Bonferroni), both ends."""

    time: float
    calls: float

    @staticmethod
    def of(times: int, calls: int) -> Tails:
        """For so many tests of times, and of calls a step."""
        return Tails(ALPHA * TIME_PART / 2 / max(times, 1), ALPHA * (1 - TIME_PART) / 2 / max(calls, 1))


@dataclass(frozen=True, slots=True)
class Seen:
    """One piece of work on one device model, as far as a verdict needs it.

    ``time`` is the time that is tested: of a call, or a step's where other kernels do the work; None where it cannot
    be compared. ``calls`` is calls a step, None without steps. ``present``: in how many windows of how many there is
    such a kernel, before and after. ``clock`` is the device's, None where it was not read.
    """

    time: Interval | None
    calls: Interval | None
    present: tuple[tuple[int, int], tuple[int, int]]
    bound: Bound
    changed: bool = False
    clock: Interval | None = None


def judge(seen: Seen, limits: Limits, tails: Tails) -> Verdict:
    """The verdict on one piece of work."""
    (before, of_before), (after, of_after) = seen.present
    if not before or not after:
        certain = one_sided(before or after, of_before, of_after, new=not before) <= tails.calls
        return (Verdict.VANISHED if before else Verdict.NEW) if certain else Verdict.UNCLEAR
    calls = seen.calls if separable(of_before, of_after, tails.calls) else None
    found = _changed(seen, calls, math.log1p(limits.tolerance))
    if found is not None:
        return found
    if seen.time is None or not seen.time.high < math.log1p(limits.find):
        return Verdict.UNCLEAR
    return Verdict.REPLACED if seen.changed else Verdict.SAME


def _changed(seen: Seen, calls: Interval | None, bar: float) -> Verdict | None:
    """Which interval excludes the tolerance; None where none does."""
    time = seen.time
    if time is not None and time.low > bar:
        elastic = 1.0 if seen.bound in _WITH_CLOCK else 0.0
        return Verdict.CLOCK if clock_explains(time, seen.clock, elastic, bar) else Verdict.SLOWER
    if calls is not None and calls.low > bar:
        return Verdict.CALLED_MORE
    if time is not None and time.high < -bar:
        return Verdict.FASTER
    return Verdict.CALLED_LESS if calls is not None and calls.high < -bar else None


def short(seen: Seen, limits: Limits, tails: Tails) -> bool:
    """Whether more windows would make a finding: a kernel in every window after and none before, or more calls a step,
    where so few windows prove nothing of counts.
    """  # noqa: D205 - one thought
    (before, of_before), (after, of_after) = seen.present
    if separable(of_before, of_after, tails.calls):
        return False
    if not before:
        return after == of_after
    return seen.calls is not None and seen.calls.low > math.log1p(limits.tolerance)


def windows_apart(tail: float) -> int:
    """The least windows a side that are ``separable``."""
    return next(n for n in range(1, 10_000) if separable(n, n, tail))


def clock_explains(time: Interval, clock: Interval | None, elasticity: float, bar: float) -> bool:
    """Whether a slowdown is not shown beyond what a lower clock makes of it.

    The time of what is bound by the compute units is inversely proportional to their clock: ``elasticity`` 1. The
    clock must be lower for certain, else it explains nothing; the two intervals' widths add as independent errors.
    """
    if clock is None or elasticity <= 0.0 or not clock.high < 0.0:
        return False
    left = time.effect + elasticity * clock.effect
    return left - math.hypot(time.half, elasticity * clock.half) <= bar


def with_clock(time_by_bound: Iterable[tuple[Bound, float]]) -> float:
    """The share of device time that slows down with the clock; of an unknown bound nothing is claimed for a sum."""
    times = list(time_by_bound)
    whole = sum(time for _, time in times)
    scaled = sum(time for bound, time in times if bound in {Bound.COMPUTE, Bound.LATENCY})
    return scaled / whole if whole else 0.0


def separable(before: int, after: int, tail: float) -> bool:
    """Whether so many windows could tell two sides apart whatever the distribution: 1 ÷ C(n, before) ≤ tail.

    Of all ways to deal the windows to two sides one separates them best; no test without a distribution does better.
    """
    return _log_choose(before + after, before) >= -math.log(tail)


def one_sided(windows: int, before: int, after: int, *, new: bool) -> float:
    """The probability that all ``windows`` with a kernel are on one side by chance (hypergeometric)."""
    side = after if new else before
    return math.exp(_log_choose(side, windows) - _log_choose(before + after, windows))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


@dataclass(frozen=True, slots=True)
class Enough:
    """How many windows a side there are and would be needed, for what is looked for in the typical kernel.

    ``noise`` is that of the kernel in the middle of device time, ``have`` what both sides are worth together as two
    equal ones; ``needed`` is None where nothing tells the noise, or no number would do. ``findable`` is the slowdown
    that they do find, as a fraction.
    """

    noise: float | None
    have: float
    needed: int | None
    findable: float | None = None

    @property
    def complete(self) -> bool:
        """Whether there are enough."""
        return self.needed is not None and self.have >= self.needed - 0.5


def enough(kernels: Sequence[tuple[float, float, float]], have: float, limits: Limits, tails: Tails) -> Enough:
    """From each tested kernel's (device time, noise, degrees of freedom); ``have`` windows a side."""
    usable = sorted(
        (noise, df, time) for time, noise, df in kernels if math.isfinite(noise) and math.isfinite(df) and time > 0
    )
    half, seen = sum(time for *_, time in usable) / 2, 0.0
    for noise, df, time in usable:
        seen += time
        if seen >= half:
            borrowed = min(max(0.0, (df - 2.0 * (have - 1.0)) / 2.0), DF_MOST)
            gap = math.log1p(limits.find) - math.log1p(limits.tolerance)
            needed = windows_needed(noise, borrowed, gap, tails.time, POWER)
            least = gap_found(noise, borrowed, max(have, 2.0), tails.time, POWER) + math.log1p(limits.tolerance)
            found = ratio_of(least)
            return Enough(noise, have, needed, None if found is None or have < 2.0 else found - 1.0)
    return Enough(None, have, None)


def ranked(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings first, then the other verdicts in their order; each by what it adds to device time, what is the same by
    its share; of what is unclear first what seems to have become slower.
    """  # noqa: D205 - one thought

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        impact = row["impact_share"]
        if row["verdict"] == Verdict.UNCLEAR:
            weight = impact or 0.0
        elif row["verdict"] == Verdict.SAME or impact is None:
            weight = max(row["share_before"], row["share_after"])
        else:
            weight = abs(impact)
        return not row["finding"], 0 if row["finding"] else ORDER[row["verdict"]], -weight, row["kernel"]

    return sorted(rows, key=place)


def judge_step(time: Interval, clock: Interval | None, elasticity: float, limits: Limits) -> Verdict:
    """The verdict on a whole step, of whose time the part ``elasticity`` slows down with the clock."""
    bar = math.log1p(limits.tolerance)
    if time.low > bar:
        return Verdict.CLOCK if clock_explains(time, clock, elasticity, bar) else Verdict.SLOWER
    if time.high < -bar:
        return Verdict.FASTER
    return Verdict.SAME if time.high < math.log1p(limits.find) else Verdict.UNCLEAR
