"""The answer about the ranks of a job, from their windows laid side by side. Pure; the keys are in docs/answers.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from statistics import median
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.peers import Communication
from roofwatch.model.ranks import (
    LATE_SHARE,
    RUN_LEAST,
    Run,
    Series,
    late_by_means,
    late_runs,
    lateness,
    means,
    noise_of,
    over_others,
)
from roofwatch.model.ranks_laid import Laid, Moment, RankWindow
from roofwatch.model.ranks_why import COMPUTE, NETWORK, KernelTime, by_class, chip_or_kernels, excess, leading, state_of
from roofwatch.model.record import Cause

STEPS, TIME, MEANS = "steps", "time", "means"  # what was compared
MATCHED_LEAST = 0.5  # of the time in collectives: of less the split into moving and waiting is not that of the rest
FIGURES = 240  # moments whose figures are shown, of a run or of all: a mean of more says nothing else
MISSING_MOST = 1024  # ranks named
CAUSES = tuple(str(cause) for cause in Cause if cause is not Cause.COMMUNICATION)

ROW_KEYS = (
    "rank", "node", "process", "pid", "device", "windows", "step_ns", "compute_ns", "exposed_copy_ns",
    "communication_ns", "moving_ns", "waiting_ns", "caused_ns", "matched_share", "idle_ns", "causes", "clock_hz",
    "throttle", "throttled_share", "late", "late_ns", "late_share", "since_unix_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """Who is late, latest first, and by what it was found out: ``steps``, ``time`` or ``means``.

    ``moments`` are those in which the first is late, else all; by means there are none.
    """

    compared: str | None
    runs: tuple[Run, ...] = ()
    by_means: tuple[tuple[int, float], ...] = ()
    series: Mapping[int, Series] = field(default_factory=dict)
    moments: tuple[Moment, ...] = ()
    by_network: bool = False

    @property
    def late(self) -> list[int]:
        """The ranks."""
        return [run.rank for run in self.runs] or [rank for rank, _ in self.by_means]


def judge(laid: Laid, *, moving: bool = False) -> Found:
    """Who is late: on shared steps where there are any, and by means where some ranks share steps with no others.

    With ``moving`` by own time with what moving bytes took, of the moments in which that is known.
    """
    series = lateness(laid, moving=moving)
    runs = tuple(late_runs(series))
    compared = (STEPS if laid.by_step else TIME) if laid.moments else None
    if runs:
        first = runs[0]
        inside = series[first.rank].moments[first.first : first.last + 1]
        moments = laid.moments[inside[0] : inside[-1] + 1]
        with_it = tuple(moment for moment in moments if first.rank in moment.members)
        return Found(compared, runs, series=series, moments=with_it, by_network=moving)
    if not moving and len(laid.circles()) > 1:
        late = tuple(late_by_means(means(laid)))
        if late or not laid.moments:
            return Found(MEANS if len(laid.by_rank()) > 1 else None, by_means=late)
    return Found(compared, series=series, moments=tuple(laid.moments))


def pooled(windows: Sequence[RankWindow]) -> RankWindow:
    """All windows of a rank as one: sums of spans, parts and steps."""
    given = [w.parts for w in windows]
    parts = {part: sum(map(itemgetter(part), given)) for part in windows[0].parts}
    steps = sum(w.steps or 0 for w in windows) or None
    return replace(windows[0], span_ns=sum(w.span_ns for w in windows), parts=parts, steps=steps)


def figured(found: Found) -> tuple[Moment, ...]:
    """The moments that figures are of: all, or FIGURES of them, spread evenly and with the last."""
    moments, count = found.moments, len(found.moments)
    return moments if count <= FIGURES else tuple(moments[(i + 1) * count // FIGURES - 1] for i in range(FIGURES))


def side_by_side(laid: Laid, found: Found) -> dict[int, list[RankWindow]]:
    """The windows that the figures of each rank are of; by means the latest FIGURES."""
    if found.moments:
        return laid.by_rank(figured(found))
    return {rank: sorted(of, key=_begin)[-FIGURES:] for rank, of in laid.by_rank().items()}


def _begin(w: RankWindow) -> int:
    return w.sight.start_unix_ns


def paired(laid: Laid, found: Found) -> Sequence[Moment]:
    """The moments that a late rank is compared in; by means one, of the windows of each rank as one."""
    if found.moments:
        return figured(found)
    return (Moment({rank: pooled(windows) for rank, windows in side_by_side(laid, found).items()}),)


@dataclass(slots=True)
class Exchange:
    """Sums over the collectives of a rank by the clock, and of how many steps (or seconds) of a device they are."""

    sums: Communication = field(default_factory=Communication)
    units: float = 0.0


def note_moving(moment: Moment, sums: Mapping[int, Communication], clocks: set[Any]) -> None:
    """Note in a moment what moving took each rank, where one clock tells it; only what was in the way counts."""
    if len(clocks) != 1 or any(s.matched_ns < MATCHED_LEAST * s.total_ns or not s.total_ns for s in sums.values()):
        return
    for rank, s in sums.items():
        w = moment.members[rank]
        in_the_way = (w.parts["exposed_communication"] + w.parts["communication"]) * w.devices
        moment.moving[rank] = s.moving_ns / w.devices * min(1.0, in_the_way / s.total_ns)


def rows(
    laid: Laid, found: Found, about: Mapping[int, Mapping[str, Any]], exchanged: Mapping[int, Exchange]
) -> list[dict[str, Any]]:
    """One row a rank: ROW_KEYS. Times are means a step (or second) over ``side_by_side``."""
    late = {run.rank: run for run in found.runs}
    shares = _shares(laid, found)
    made = []
    for rank, windows in side_by_side(laid, found).items():
        whole = pooled(windows)
        units, parts = whole.units(by_step=laid.by_step), whole.parts
        state = state_of(windows)
        causes = {cause: round(parts[cause] / units) for cause in CAUSES if parts[cause]}
        share = shares.get(rank)
        run = late.get(rank)
        made.append(
            {
                "rank": rank,
                **about[rank],
                "device": state.device,
                "windows": len(windows),
                "step_ns": round(whole.span_ns / units),
                "compute_ns": round(parts["compute"] / units),
                "exposed_copy_ns": round(parts["exposed_copy"] / units),
                "communication_ns": round((parts["exposed_communication"] + parts["communication"]) / units),
                **_exchange(exchanged.get(rank)),
                "idle_ns": sum(causes.values()),
                "causes": causes,
                "clock_hz": state.clock_hz,
                "throttle": None if state.throttled_share is None else ",".join(state.throttle),
                "throttled_share": state.throttled_share,
                "late": rank in found.late,
                "late_ns": None if share is None else round(share * whole.span_ns / units),
                "late_share": share,
                "since_unix_ns": None if run is None else _at(laid, found, run, run.first).start_unix_ns or None,
            }
        )
    return made


def _exchange(exchange: Exchange | None) -> dict[str, Any]:
    """Null where no collective was looked at, and moving and waiting where none was found on another rank."""
    if exchange is None or not exchange.units or not exchange.sums.total_ns:
        return dict.fromkeys(("moving_ns", "waiting_ns", "caused_ns", "matched_share"))
    s, units = exchange.sums, exchange.units
    known = s.matched_ns > 0
    return {
        "moving_ns": round(s.moving_ns / units) if known else None,
        "waiting_ns": round(s.waiting_ns / units) if known else None,
        "caused_ns": round(s.caused_ns / units) if known else None,
        "matched_share": ratio(s.matched_ns, s.total_ns),
    }


def _shares(laid: Laid, found: Found) -> dict[int, float]:
    """Each rank's median lateness over what is compared: the moments of the figures."""
    if not found.moments:
        late = means(laid)
        if len(late) < 2:
            return {}
        step = median(mean.step_ns for mean in late.values())
        return {rank: over / step for rank, over in over_others({r: m.own_ns for r, m in late.items()}).items()}
    within = {id(moment) for moment in found.moments}
    shares = {}
    for rank, series in found.series.items():
        inside = [s for at, s in zip(series.moments, series.shares, strict=True) if id(laid.moments[at]) in within]
        if inside:
            shares[rank] = median(inside)
    return shares


def _at(laid: Laid, found: Found, run: Run, position: int) -> Moment:
    return laid.moments[found.series[run.rank].moments[position]]


def straggler(laid: Laid, found: Found, row: Mapping[str, Any], kernels: KernelSides | None) -> dict[str, Any]:
    """The latest rank: since when, by how much, and what explains it. ``row`` is its row."""
    rank = found.late[0]
    peers = set(laid.by_rank()) - set(found.late)
    parts = excess(paired(laid, found), rank, peers, by_step=laid.by_step)
    classes = by_class(parts)
    network = 0.0 if found.by_network else classes.get(NETWORK, 0.0)  # counts only where lateness was told by it
    told = {f"{name}_ns": round(ns) for name, ns in classes.items()}
    return {
        **{key: row[key] for key in ("rank", "node", "process", "pid", "device")},
        "late_ns": round(sum(classes.values()) - network),
        "late_share": row["late_share"],
        **_when(laid, found, row),
        "excess": told if NETWORK in classes else told | {"network_ns": None},
        "idle_excess": {cause: round(parts[cause]) for cause in CAUSES if parts[cause]},
        **_why(laid, found, peers, classes, kernels or KernelSides({}, {})),
    }


def _when(laid: Laid, found: Found, row: Mapping[str, Any]) -> dict[str, Any]:
    """Since when the latest rank is late, and until when; by means nothing tells."""
    run = found.runs[0] if found.runs else None
    begun = _at(laid, found, run, run.first) if run else None
    ended = _at(laid, found, run, run.last) if run and not run.still else None
    windows = run.last - run.first + 1 if run else row["windows"]
    return {
        "since_unix_ns": begun.start_unix_ns if begun else None,
        "since_step": begun.first_step if begun else None,
        "until_unix_ns": ended.start_unix_ns if ended else None,
        "from_the_first": run is not None and run.first == 0,
        "windows": windows,
        "few": windows < RUN_LEAST,
    }


def _why(
    laid: Laid, found: Found, peers: set[int], classes: Mapping[str, float], kernels: KernelSides
) -> dict[str, Any]:
    first, share = leading(classes)
    told: dict[str, Any] = {"explanation": first, "explained_share": share, "chip": None, "kernels": []}
    if first == COMPUTE:
        windows = side_by_side(laid, found)
        states = [state_of(windows[peer]) for peer in peers if peer in windows]
        own = state_of(windows[found.late[0]])
        behind = chip_or_kernels(own, states, kernels.ours, kernels.theirs, classes[COMPUTE])
        told["explanation"], told["chip"], told["kernels"] = behind
    return told


@dataclass(frozen=True, slots=True)
class KernelSides:
    """Kernels a step by signature: of the late rank, and of one of its peers on average."""

    ours: Mapping[int, KernelTime]
    theirs: Mapping[int, KernelTime]


def basis(laid: Laid, found: Found, left_out: int) -> dict[str, Any]:
    """What was compared, and what could not be; ``last`` is the rank with most lateness, late or not."""
    moments, shares = found.moments, _shares(laid, found)
    last = max(shares, key=lambda rank: shares[rank], default=None)
    return {
        "compared": found.compared,
        "unit": "step" if laid.by_step else "second",
        "moments": len(moments),
        "of_moments": len(laid.moments),
        "figured": len(figured(found)),
        "windows": sum(map(len, side_by_side(laid, found).values())),
        "circles": [sorted(circle) for circle in laid.circles()],
        "windows_alone": len(laid.alone),
        "windows_without_steps": laid.without_steps,
        "windows_ambiguous": laid.ambiguous,
        "windows_left_out": left_out,
        "noise_share": noise_of(found.series.values()),
        "looked_for_share": LATE_SHARE,
        "last": None if last is None else {"rank": last, "late_share": shares[last]},
        # As late as a straggler would be, and noise or too few windows keep it from being shown.
        "undecided": last is not None and not found.late and shares[last] >= LATE_SHARE,
    }


def job(run: Mapping[str, Any], seen: Sequence[int]) -> dict[str, Any]:
    """The run, and which of its ranks were not seen."""
    size, there = run["world_size"], set(seen)
    missing: list[int] = []
    for rank in range(size):
        if len(missing) == MISSING_MOST:
            break
        if rank not in there:
            missing.append(rank)
    return {**run, "ranks": len(there), "missing_count": max(0, size - len(there)), "missing": missing}
