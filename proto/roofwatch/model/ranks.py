"""Which rank of a job is late, how late, and since when, by windows laid side by side (``ranks_laid``). Pure.

In a synchronous job a step takes every rank as long: who is done early waits in a collective for the last. So ranks
differ in their *own time*, the step without communication (and with the time that moving bytes took them, where it is
known by one clock). A rank's *lateness* in steps that several ranks were profiled in is its own time less the median of
the others', as a share of the step: 0 for ranks that are alike, and not moved by another straggler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from roofwatch.model.ranks_laid import Laid

# Chips of one model, and the hosts beside them, differ by one or two per cent for nothing anybody could change.
LATE_SHARE = 0.03
# A run is believed where its median is this many standard errors from 0. All runs of all ranks are looked at, thousands
# a day: at 5 the chance of one by noise alone stays below 1 in 1,000 (tests/ranks/test_noise.py).
SURE = 5.0
# Noise is not always normal: the other windows tell how often one is that late. A run is believed where as many of its
# windows would be that late less often than this, in as many tries as there are windows.
CHANCE = 0.02
RUN_LEAST = 3  # windows: fewer may be one checkpoint, one collection of garbage
# With fewer windows than that nothing tells noise from lateness but its size: a tenth of a step is more than noise.
FEW_SHARE = 0.10
_NORMAL = 1.4826  # median absolute deviation → standard deviation, and …
_MEDIAN = 1.2533  # … standard error of a mean → of a median, of normal noise


@dataclass(frozen=True, slots=True)
class Series:
    """The lateness of one rank, moment by moment, as shares of the step."""

    moments: tuple[int, ...]  # positions in Laid.moments
    shares: tuple[float, ...]


def lateness(laid: Laid, *, moving: bool = False) -> dict[int, Series]:
    """Each rank's series; with ``moving`` of the moments where that is known on all ranks, and counts as own time."""
    found: dict[int, tuple[list[int], list[float]]] = {}
    for position, moment in enumerate(laid.moments):
        if moving and len(moment.moving) < len(moment.members):
            continue
        own, step = {}, []
        for rank, w in moment.members.items():
            units = w.units(by_step=laid.by_step)
            own[rank] = (w.own_ns + (moment.moving[rank] if moving else 0.0)) / units
            step.append(w.span_ns / units)
        whole = median(step)
        for rank, over in over_others(own).items():
            at, shares = found.setdefault(rank, ([], []))
            at.append(position)
            shares.append(over / whole)
    return {rank: Series(tuple(at), tuple(shares)) for rank, (at, shares) in sorted(found.items())}


def over_others(values: Mapping[int, float]) -> dict[int, float]:
    """Each value less the median of the others. At least two."""
    order = sorted(values, key=lambda rank: values[rank])
    ordered = [values[rank] for rank in order]
    half, odd = divmod(len(ordered) - 1, 2)
    found = {}
    for place, rank in enumerate(order):
        upper = ordered[half + (place <= half)]
        lower = upper if odd else ordered[half - 1 + (place <= half - 1)]
        found[rank] = values[rank] - (upper + lower) / 2
    return found


def noise_of(series: Iterable[Series]) -> float | None:
    """Standard deviation of lateness from one window to the next, pooled over ranks; None where no rank has two.

    By differences of neighbours, so that a rank which is late all the time, or from some time on, does not count.
    """
    steps = [abs(b - a) for s in series for a, b in zip(s.shares, s.shares[1:], strict=False)]
    return _NORMAL * median(steps) / 2**0.5 if steps else None


@dataclass(frozen=True, slots=True)
class Run:
    """Windows of one rank in which it is late: positions ``first`` to ``last`` in its series, all within."""

    rank: int
    first: int
    last: int
    share: float  # median lateness
    still: bool  # it lasts to the end


def late_runs(found: Mapping[int, Series]) -> list[Run]:
    """The longest and latest run of each rank that was late; the rank that lost most comes first."""
    noise = noise_of(found.values())
    runs = []
    for rank, series in found.items():
        few = len(series.shares) < RUN_LEAST
        run = _few(rank, found) if few else _run(rank, found, noise or 0.0)
        if run is not None:
            runs.append(run)
    return sorted(runs, key=lambda run: (-run.share * (run.last - run.first + 1), run.rank))


def _run(rank: int, found: Mapping[int, Series], noise: float) -> Run | None:
    """The rank's stretch with most lateness beyond what is looked for, if it is believed."""
    shares = found[rank].shares
    first, last = _stretch(shares, max(LATE_SHARE, 2 * noise))
    if last - first + 1 < RUN_LEAST:
        return None
    half = median(shares[first : last + 1]) / 2
    while shares[first] < half:  # the edges are decided by what the run has turned out to be
        first += 1
    while shares[last] < half:
        last -= 1
    count, share = last - first + 1, median(shares[first : last + 1])
    sure = share >= max(LATE_SHARE, SURE * _MEDIAN * noise / count**0.5)
    if count < RUN_LEAST or not sure or _chance(found, rank, (first, last), share / 2) > CHANCE:
        return None
    return Run(rank, first, last, share, len(shares) - 1 - last < RUN_LEAST)


def _stretch(shares: Sequence[float], level: float) -> tuple[int, int]:
    """First and last of the stretch with the largest sum of lateness beyond half of ``level`` (Kadane's algorithm).

    Half, as a sum that decides between "not late" and "that late" soonest counts from the middle of the two (CUSUM).
    What one window adds is bounded, so that a single very slow one is no run.
    """
    best, total, begin, found = 0.0, 0.0, 0, (0, -1)
    for i, share in enumerate(shares):
        if total <= 0:
            total, begin = 0.0, i
        total += max(-2 * level, min(2 * level, share)) - level / 2
        if total > best:
            best, found = total, (begin, i)
    return found


def _chance(found: Mapping[int, Series], rank: int, run: tuple[int, int], least: float) -> float:
    """How many such runs are to be expected if windows are late by ``least`` as often as outside of this one.

    Chernoff's bound of the binomial tail, times the windows in which one could begin.
    """
    first, last = run
    inside = found[rank].shares[first : last + 1]
    outside = [s for other, series in found.items() for s in series.shares if other != rank]
    outside += found[rank].shares[:first] + found[rank].shares[last + 1 :]
    often = max(sum(share >= least for share in outside), 0.5) / len(outside)
    here = sum(share >= least for share in inside) / len(inside)
    if here <= often:
        return 1.0
    distance = here * math.log(here / often)
    distance += (1 - here) * math.log((1 - here) / (1 - often)) if here < 1 else 0.0
    return (len(outside) + len(inside)) * math.exp(-len(inside) * distance)


def _few(rank: int, found: Mapping[int, Series]) -> Run | None:
    """One or two windows: late in each by a tenth of the step, and by far more than the other ranks differ."""
    shares = found[rank].shares
    others = [abs(median(s.shares)) for other, s in found.items() if other != rank]
    spread = _NORMAL * median(others) if len(others) >= RUN_LEAST else 0.0
    if min(shares) < max(FEW_SHARE, SURE * spread):
        return None
    return Run(rank, 0, len(shares) - 1, median(shares), still=True)


@dataclass(frozen=True, slots=True)
class Mean:
    """A rank's windows, whatever steps they are of: its median own time and step, and how sure the first is."""

    own_ns: float
    step_ns: float
    error_ns: float | None  # standard error; None with fewer than RUN_LEAST windows


def means(laid: Laid) -> dict[int, Mean]:
    """By rank, over all windows."""
    found = {}
    for rank, windows in laid.by_rank().items():
        own = [w.own_ns / w.units(by_step=laid.by_step) for w in windows]
        centre = median(own)
        spread = _NORMAL * median(abs(value - centre) for value in own)
        error = _MEDIAN * spread / len(own) ** 0.5 if len(own) >= RUN_LEAST else None
        found[rank] = Mean(centre, median(w.span_ns / w.units(by_step=laid.by_step) for w in windows), error)
    return found


def late_by_means(found: Mapping[int, Mean]) -> list[tuple[int, float]]:
    """Ranks whose median own time is longer than the others' beyond doubt, with lateness as a share; latest first."""
    if len(found) < 2:
        return []
    step = median(mean.step_ns for mean in found.values())
    late = []
    for rank, over in over_others({rank: mean.own_ns for rank, mean in found.items()}).items():
        own, others = found[rank].error_ns, [m.error_ns for other, m in found.items() if other != rank]
        known = [error for error in others if error is not None]
        if own is None or len(known) < len(others):
            least = FEW_SHARE
        else:
            least = max(LATE_SHARE, SURE * (own**2 + median(known) ** 2) ** 0.5 / step)
        if over / step >= least:
            late.append((rank, over / step))
    return sorted(late, key=lambda pair: (-pair[1], pair[0]))
