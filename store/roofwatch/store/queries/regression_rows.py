"""One device model of ``regressions``: what is compared of its table, and the rows, steps and figures told of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from roofwatch.model.answer import ratio
from roofwatch.model.record import Signature
from roofwatch.model.regression import (
    ALPHA,
    FINDINGS,
    Interval,
    Limits,
    Seen,
    Tails,
    Verdict,
    judge,
    ratio_of,
    short,
)
from roofwatch.store.queries.regression_counts import Counted, compare_counts
from roofwatch.store.queries.regression_numbers import Compared, Floats, compare
from roofwatch.store.queries.regression_tables import Table


@dataclass(frozen=True)
class Group:
    """The comparison of one device model."""

    table: Table
    known: Mapping[int, Signature]
    empty: tuple[int, int] = (0, 0)  # windows of either side that hold no kernels

    def tested(self, least_share: float) -> Group:
        """The group without pieces that take less of either side's device time, outliers not counted.

        Their windows are in no mean: a kernel that waited for something twice is not one that takes time.
        """
        t = self.table
        calls = np.where(self.call.kept, t.calls, 0.0)
        total = np.where(self.call.kept, t.total, 0.0)
        shares = []
        for own, whole in zip((~t.after, t.after), t.whole, strict=True):
            seen, kept, time = t.calls[:, own].sum(axis=1), calls[:, own].sum(axis=1), t.total[:, own].sum(axis=1)
            usual = np.where(kept > 0, total[:, own].sum(axis=1) / np.maximum(kept, 1.0) * seen, time)
            shares.append(usual / max(float(whole - time.sum() + usual.sum()), 1.0))
        return Group(t.of_share(np.array(shares), least_share), self.known, self.empty)

    @cached_property
    def call(self) -> Compared:
        """Mean times of a call."""
        t = self.table
        with np.errstate(divide="ignore", invalid="ignore"):
            return compare(np.where(t.calls > 0, np.log(t.total / t.calls), np.nan), t.after, t.block)

    @cached_property
    def step(self) -> Compared | None:
        """Times of a step; None where the windows have no steps."""
        t = self.table
        if not t.stepping:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            return compare(np.where(t.step_ns > 0, np.log(t.step_ns / t.steps), np.nan), t.after, t.block)

    @cached_property
    def whole_steps(self) -> dict[str, Compared]:
        """Whole steps: their device time, and their wall time as far as it is known."""
        t = self.table
        if not t.stepping:
            return {}
        found = {"device": t.device_step / t.steps, **_walls(t)}
        with np.errstate(divide="ignore", invalid="ignore"):
            values = {name: np.where(time > 0, np.log(time), np.nan) for name, time in found.items()}
        return {name: compare(v[None, :], t.after, t.block, borrow=False).row(0) for name, v in values.items()}

    @cached_property
    def clock(self) -> Interval | None:
        """The devices' clock; None where it was not read on both sides."""
        t = self.table
        read = np.array([[math.log(hz) if (hz := unit.mean("clock_hz")) else np.nan for unit in t.units]])
        found = compare(read, t.after, t.block, borrow=False)
        clock = Interval(float(found.effect[0]), float(found.half_width(ALPHA / 2)[0]))
        return clock if math.isfinite(clock.effect) and math.isfinite(clock.half) else None

    def counts(self, tails: Tails) -> Counted | None:
        """Calls a step, 0 where a window's steps had none; None without steps."""
        t = self.table
        if not t.stepping:
            return None
        own = ~np.isnan(t.steps)
        return compare_counts(t.step_calls[:, own] / t.steps[own], t.after[own], t.block[own], tails.calls)

    def replaced(self, i: int) -> bool:
        """Whether kernels of other names do the work of a piece after."""
        piece = self.table.pieces[i]
        return piece.changed and len({self.known[s].kernel for s in (*piece.before, *piece.after)}) > 1

    def basis(self, i: int) -> str | None:
        """Which time of a piece is tested: a call's; a step's where other kernels do the work; None: it has no other.

        Without steps one kernel for one other is compared by its calls, and several for several not at all.
        """
        piece = self.table.pieces[i]
        if not piece.before or not piece.after:
            return None
        if not self.replaced(i):
            return "call"
        if self.step is not None:
            return "step"
        return "call" if len(piece.before) == len(piece.after) == 1 else None

    @property
    def times(self) -> int:
        """How many times are tested."""
        pieces = range(len(self.table.pieces))
        return sum(self.basis(i) is not None for i in pieces) + len(self.whole_steps)


def _walls(t: Table) -> dict[str, Floats]:
    """Wall time of a step: of steps outside the windows where the hook measured it, else of those inside.

    It is the job's, so of several ranks that took the same steps only one counts.
    """
    lowest: dict[tuple[bool, str | None], int] = {}
    for unit, late in zip(t.units, t.after.tolist(), strict=True):
        if unit.rank is not None:
            lowest[late, unit.job] = min(unit.rank, lowest.get((late, unit.job), unit.rank))
    own = [lowest.get((late, u.job)) in {None, u.rank} for u, late in zip(t.units, t.after.tolist(), strict=True)]
    outside = np.array([float(u.base_step_ns or 0) if mine else 0.0 for u, mine in zip(t.units, own, strict=True)])
    spans = np.array([u.span_ns / len(u.positions) for u in t.units])
    inside = np.where(own, spans, 0.0) / t.steps
    mine = np.array(own)
    if all(2 * (outside[side] > 0).sum() >= mine[side].sum() > 0 for side in (t.after, ~t.after)):
        return {"wall": outside}
    return {"wall_profiled": inside}


@dataclass(frozen=True, slots=True)
class _Work:
    """The intervals of one piece of work; None where there is nothing to compare."""

    call: Interval
    step: Interval | None
    calls: Interval | None
    basis: str | None

    @property
    def time(self) -> Interval | None:
        """The time that is tested."""
        return {"call": self.call, "step": self.step, None: None}[self.basis]

    @property
    def counted(self) -> Interval | None:
        """Calls a step as far as they are tested: what else does the work may do it in more calls."""
        return None if self.basis == "step" else self.calls


def _works(group: Group, counts: Counted | None, tails: Tails) -> Iterator[_Work]:
    call, step = group.call, group.step
    half = call.half_width(tails.time)
    step_half = None if step is None else step.half_width(tails.time)
    for i in range(len(group.table.pieces)):
        yield _Work(
            Interval(float(call.effect[i]), float(half[i])),
            None if step is None or step_half is None else Interval(float(step.effect[i]), float(step_half[i])),
            None if counts is None else Interval(float(counts.effect[i]), float(counts.half[i])),
            group.basis(i),
        )


def rows(group: Group, limits: Limits, tails: Tails, too_few: list[str]) -> Iterator[dict[str, Any]]:
    """A row a piece of work; ``too_few`` gets the kernels of which more windows would make a finding."""
    t, counts = group.table, group.counts(tails)
    whole = [int(side.sum()) for side in (~t.after, t.after)]
    present = [(t.calls[:, side] > 0).sum(axis=1).tolist() for side in (~t.after, t.after)]
    for i, work in enumerate(_works(group, counts, tails)):
        seen = Seen(
            time=work.time,
            calls=work.counted,
            present=((present[0][i], whole[0]), (present[1][i], whole[1])),
            bound=t.bounds[i],
            changed=group.replaced(i),
            clock=group.clock,
        )
        verdict = judge(seen, limits, tails)
        told = _described(group, i)
        if verdict not in FINDINGS and short(seen, limits, tails):
            too_few.append(told["kernel"])
        yield {
            "verdict": str(verdict),
            "finding": verdict in FINDINGS,
            **told,
            "bound": str(t.bounds[i]),
            "basis": work.basis,
            **_figures(group, i, work, counts),
            "clock_ratio": _clock_ratio(group, verdict),
            "windows_before": present[0][i],
            "windows_after": present[1][i],
        }


def _clock_ratio(group: Group, verdict: Verdict) -> float | None:
    return ratio_of(group.clock.effect) if verdict is Verdict.CLOCK and group.clock is not None else None


def _figures(group: Group, i: int, work: _Work, counts: Counted | None) -> dict[str, Any]:
    """Times, calls and shares of a piece."""
    t, call, step = group.table, group.call, group.step
    tested = step if work.basis == "step" and step is not None else call
    return {
        **(_time(tested, i, work.time) if work.basis else _alone(t, i)),
        **_calls(counts, work.calls, i),
        **_step(step, work.step, i),
        "share_before": float(t.share[0, i]),
        "share_after": float(t.share[1, i]),
        "impact_share": _impact(t, i, work.time, work.counted),
        "noise": _noise(tested, i),
        "unsteady": bool(tested.missed[i]),
        "outliers_before": int(tested.outliers_before[i]),
        "outliers_after": int(tested.outliers_after[i]),
    }


def _described(group: Group, i: int) -> dict[str, Any]:
    """What the piece is: of several signatures the first of the later side, the earlier where there is none."""
    piece = group.table.pieces[i]
    before, after = ([group.known[s] for s in side] for side in (piece.before, piece.after))
    s = (after or before)[0]
    names = [sorted({one.kernel for one in side}) for side in (before, after)]
    return {
        "kernel": s.kernel,
        "kernels_before": names[0],
        "kernels_after": names[1],
        "kind": str(s.kind),
        "op": s.op,
        "phase": str(s.phase),
        "module": s.module,
        "shapes": None if s.shapes is None else json.loads(s.shapes),
        "dtypes": None if s.dtypes is None else json.loads(s.dtypes),
        "device": group.table.device,
    }


def _time(of: Compared, i: int, time: Interval | None) -> dict[str, float | None]:
    if time is None:
        return dict.fromkeys(("before_ns", "after_ns", "ratio", "ratio_low", "ratio_high"))
    before, after = _ends(of, i)
    return {"before_ns": before, "after_ns": after, **time.as_json("ratio", "ratio_low", "ratio_high")}


def _alone(t: Table, i: int) -> dict[str, float | None]:
    """The mean time of a call of each side, where the two cannot be compared."""
    found: dict[str, float | None] = dict.fromkeys(("before_ns", "after_ns", "ratio", "ratio_low", "ratio_high"))
    for name, own in (("before_ns", ~t.after), ("after_ns", t.after)):
        found[name] = ratio(float(t.total[i, own].sum()), float(t.calls[i, own].sum()))
    return found


def _ends(of: Compared, i: int) -> tuple[float | None, float | None]:
    return ratio_of(float(of.before[i])), ratio_of(float(of.before[i] + of.effect[i]))


def _calls(counts: Counted | None, calls: Interval | None, i: int) -> dict[str, float | None]:
    if counts is None or calls is None:
        return dict.fromkeys(("calls_before", "calls_after", "calls_ratio", "calls_low", "calls_high"))
    before, after = float(counts.before[i]), float(counts.after[i])
    known = {"calls_before": before, "calls_after": after} if math.isfinite(before) else {}
    return {
        "calls_before": None, "calls_after": None, **known, **calls.as_json("calls_ratio", "calls_low", "calls_high")
    }  # fmt: skip


def _step(step: Compared | None, of_step: Interval | None, i: int) -> dict[str, float | None]:
    if step is None or of_step is None:
        return dict.fromkeys(("step_before_ns", "step_after_ns", "step_ratio", "step_low", "step_high"))
    before, after = _ends(step, i)
    told = of_step.as_json("step_ratio", "step_low", "step_high")
    return {"step_before_ns": before, "step_after_ns": after, **told}


def _noise(of: Compared, i: int) -> float | None:
    """From window to window, both sides together."""
    noise = math.sqrt((float(of.noise_before[i]) ** 2 + float(of.noise_after[i]) ** 2) / 2)
    return noise if math.isfinite(noise) else None


def _impact(t: Table, i: int, time: Interval | None, calls: Interval | None) -> float | None:
    """What the piece adds to device time, as a share of it before: by time and calls, or all of it on one side only."""
    piece = t.pieces[i]
    if not piece.before or not piece.after:
        return float(t.share[1, i] if piece.after else -t.share[0, i])
    if time is None or not math.isfinite(time.effect):
        return None
    more = calls.effect if calls is not None and math.isfinite(calls.effect) else 0.0
    grown = ratio_of(time.effect + more)
    return None if grown is None else float(t.share[0, i]) * (grown - 1.0)
