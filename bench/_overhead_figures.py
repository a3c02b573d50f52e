"""What blocks with and without windows say: differences, intervals, slopes, and the table. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import mean, median, stdev

from roofwatch.model.regression_math import t_quantile

LEVEL = 0.95
HALF_WIDTH = 0.0025  # of the job's time, at which a phase has seen enough
LEAST_PAIRS = 5
IDLE_LIMIT, DEFAULT_LIMIT, LONGEST_LIMIT = 0.001, 0.005, 5.0


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and how far its 95 % interval reaches to either side (Student's t)."""

    mean: float
    half: float
    n: int

    def times(self, factor: float) -> Interval:
        """The same in another unit."""
        return Interval(self.mean * factor, self.half * factor, self.n)


def interval(values: Sequence[float]) -> Interval:
    """Of values that are independent; without a second one nothing is known of the width."""
    n = len(values)
    half = t_quantile((1 - LEVEL) / 2, n - 1) * stdev(values) / math.sqrt(n) if n > 1 else math.inf
    return Interval(mean(values), half, n)


@dataclass(frozen=True, slots=True)
class Block:
    """Steps in a row: the first and the last by number, their ends in nanoseconds."""

    ends: Sequence[int]  # the end of the step before, and of each step

    @property
    def steps(self) -> list[int]:
        """How long each took."""
        return [b - a for a, b in pairwise(self.ends)]

    @property
    def total_ns(self) -> int:
        """How long all of them took."""
        return self.ends[-1] - self.ends[0]


@dataclass(frozen=True, slots=True)
class Pair:
    """A block in which windows were taken and the one beside it without."""

    on: Block
    off: Block

    @property
    def lost_ns(self) -> float:
        """What the windows took: the block's time, less as many steps of the block beside it."""
        return self.on.total_ns - len(self.on.steps) * (self.off.total_ns / len(self.off.steps))


@dataclass(slots=True)
class Phase:
    """Blocks at one rate, and the time (on the schedule's clock) for which their windows stand."""

    interval_s: float
    pairs: list[Pair] = field(default_factory=list)
    windows: int = 0
    held: Counter[str] = field(default_factory=Counter)  # why the governor put windows off
    refused: int = 0
    virtual_s: float = 0.0
    events: list[int] = field(default_factory=list)
    believed_ns: list[float] = field(default_factory=list)  # what hook and governor take each window to have cost

    def a_window(self) -> Interval:
        """Nanoseconds that a window (of all ranks at once) took."""
        return interval([pair.lost_ns for pair in self.pairs])

    def share(self) -> Interval:
        """Of the job's time: what a window took × the windows in the time for which they stand."""
        return self.a_window().times(len(self.pairs) / (self.virtual_s * 1e9))

    def enough(self) -> bool:
        """Whether the interval is as narrow as it has to be."""
        return len(self.pairs) >= LEAST_PAIRS and self.share().half <= HALF_WIDTH

    def longest(self) -> tuple[float, float, float]:
        """In usual steps: the longest step of all blocks with windows, of the usual one, of all blocks without."""
        usual = median(step for pair in self.pairs for step in pair.off.steps)
        tops = [max(pair.on.steps) / usual for pair in self.pairs]
        return max(tops), median(tops), max(max(pair.off.steps) for pair in self.pairs) / usual


def figures(phase: Phase) -> dict[str, object]:
    """A phase as plain numbers."""
    longest, usually, without = phase.longest()
    a_window, share = phase.a_window(), phase.share()
    usual = median(step for pair in phase.pairs for step in pair.off.steps)
    return {
        "interval_s": phase.interval_s,
        "pairs": share.n,
        "steps_a_block": round(mean(len(pair.on.steps) for pair in phase.pairs)),
        "step_ms": usual / 1e6,
        "windows_a_minute": 60 * len(phase.pairs) / phase.virtual_s,
        "held": dict(phase.held),
        "refused": phase.refused,
        "events": median(phase.events) if phase.events else None,
        "window_ms": asdict(a_window.times(1e-6)),
        "believed_ms": mean(phase.believed_ns) / 1e6 if phase.believed_ns else None,
        "share": asdict(share),
        "half_width_reached": share.half <= HALF_WIDTH,
        "longest_step": longest,
        "longest_step_usually": usually,
        "longest_step_without": without,
    }


@dataclass(frozen=True, slots=True)
class Slope:
    """By least squares: change of y for one x, the half-width of its 95 % interval."""

    value: float
    half: float
    n: int


def slope(x: Sequence[float], y: Sequence[float], pieces: int = 20) -> Slope:
    """Of a series in time, through the means of equal pieces: neighbours resemble each other, far-away pieces less."""
    size = len(x) // pieces
    xs = [mean(x[at * size : (at + 1) * size]) for at in range(pieces)]
    ys = [mean(y[at * size : (at + 1) * size]) for at in range(pieces)]
    mx, my = mean(xs), mean(ys)
    spread = sum((a - mx) ** 2 for a in xs)
    value = sum((a - mx) * (b - my) for a, b in zip(xs, ys, strict=True)) / spread
    rest = sum((b - my - value * (a - mx)) ** 2 for a, b in zip(xs, ys, strict=True))
    error = math.sqrt(rest / (pieces - 2) / spread)
    return Slope(value, t_quantile((1 - LEVEL) / 2, pieces - 2) * error, pieces)
