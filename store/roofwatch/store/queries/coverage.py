"""What an answer rests on: sums of the ledgers, idle causes and costs of the windows a filter means."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Double, Select, case, cast, func, select

from roofwatch.model.answer import CoverageSum, MfuSum, ratio
from roofwatch.model.timeline import TimelineSum
from roofwatch.store.filter import Filter
from roofwatch.store.queries.fresh import summed
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.plan import NAMES, plan
from roofwatch.store.queries.scope import among, windows_of
from roofwatch.store.queries.timeline import sums, whole
from roofwatch.store.rollup_schema import GREATEST
from roofwatch.store.rollup_sources import FIGURES, FLOPS_LOW, aggregates, lost, total
from roofwatch.store.schema import drop_sums, window_sums, windows

__all__ = ["MFU", "cost", "coverage", "dropped", "figures", "lost", "lost_noise", "mfu_by", "mfu_of", "summary"]

NOISE_MOST = 1_000  # windows: of more the loss grows with their number and its deviation with the root of that
MFU = ("mfu_peak_ns", "mfu_span_ns", "mfu_model_ns", "mfu_known_ns", "mfu_left_out_ns")
_PLAIN = (
    "windows", "device_records", "device_time_ns", "host_device_time_ns", "linked_ns", "backlog_ns", "classifiable_ns",
    "classified_ns", "named_ns", "model_known_ns", "compared_ns", "disagreed_ns", "layout_ns", "layout_of_ns",
    "graph_ns", "graph_attributed_ns", "sampled_ns", "represented_ns",
)  # fmt: skip


def figures(connection: Connection, f: Filter) -> dict[str, Any]:
    """Every sum over the filter's windows (``rollup_sources.FIGURES``); null where no window knows it."""
    by_grain = _by_grain(connection, f).values()
    found: dict[str, Any] = {}
    for name in FIGURES:
        known = [of[name] for of in by_grain if of[name] is not None]
        found[name] = (max(known) if name in GREATEST else sum(known)) if known else None
    return found


def _by_grain(connection: Connection, f: Filter) -> dict[int, dict[str, Any]]:
    """The same of each kind of table."""

    def find() -> dict[int, dict[str, Any]]:
        found = {}
        for grain, *values in summed(connection, plan(connection, f), f, window_sums, _figures_of):
            numbers = (None if value is None else int(value) for value in values)
            found[int(grain)] = dict(zip(FIGURES, numbers, strict=True))
        return found

    return once(connection, f, "figures", find)


def _figures_of(rows: Any) -> Select[Any]:
    return select(rows.c.grain, *aggregates(rows, tuple(FIGURES))).group_by(rows.c.grain)


def coverage(connection: Connection, f: Filter, *, by_window: bool = False) -> CoverageSum:
    """Ledger sums. A ledger is a window's, not a device's: with a device filter, of all windows that have such one.

    ``by_window``: the answer's rows are of single windows.
    """
    sources = {NAMES[grain]: of["windows"] for grain, of in _by_grain(connection, f).items()}
    found = {name: value or 0 for name, value in figures(connection, f).items()}
    span, _, busy = next(iter(whole(connection, f)), (0, 0, 0))[:3]
    return CoverageSum(
        **{name: found[name] for name in _PLAIN},
        model_flops=found["model_flops_high"] * FLOPS_LOW + found["model_flops_low"],
        busy_ns=int(busy),
        span_ns=int(span),
        mfu=mfu_of([found[name] for name in MFU]),
        dropped=dropped(connection, f),
        sources={name: sources[name] for name in NAMES.values() if name in sources},
        left_out=plan(connection, f).left_out,
        by_window=by_window,
    )


def dropped(connection: Connection, f: Filter) -> dict[str, int]:
    """What the readers of the windows left out, by reason."""
    found = summed(connection, plan(connection, f), f, drop_sums, _dropped_of)
    return {reason: int(count) for reason, count in found}


def _dropped_of(rows: Any) -> Select[Any]:
    return select(rows.c.reason, total(rows.c["count"])).group_by(rows.c.reason)


def summary(connection: Connection, f: Filter) -> dict[str, Any]:
    """Busy and idle time with its causes: sampled, and estimated over the time that the windows stand for."""
    time = sums(connection, f, ()).get((), TimelineSum())
    sampled, estimated = time.sampled, time.estimated
    return {
        "busy_ns": int(sampled.busy_ns),
        "idle_ns": int(sampled.span_ns) - int(sampled.busy_ns),
        "est_busy_ns": round(estimated.busy_ns),
        "est_idle_ns": round(estimated.span_ns - estimated.busy_ns),
        "causes": {
            str(cause): {
                "total_ns": c.total_ns,
                "est_ns": round(c.est_ns),
                "count": c.count,
                "longest_ns": c.longest_ns,
                "example": c.example,
            }
            for cause, c in sorted(time.causes.items(), key=lambda item: (-item[1].est_ns, str(item[0])))
        },
    }


def mfu_of(figures: Collection[Any]) -> MfuSum:
    """From sums of the five figures, in the order of ``MFU``."""
    peak, span, model, known, left_out = (value or 0 for value in figures)
    return MfuSum(float(peak), float(span), int(model), int(known), int(left_out))


def mfu_by(
    connection: Connection, f: Filter, owner: ColumnElement[Any], only: Collection[int] | None = None
) -> dict[Any, MfuSum]:
    """Model FLOPs utilisation by a column of windows, processes or nodes; ``only`` of these windows.

    As ``MfuSum.add``. Of whole windows, as is the ledger: a device filter takes the windows that have such a device.
    From the windows themselves: of owners in the sums, ``window_sums`` holds the same.
    """
    query = windows_of(f, owner, *(total(FIGURES[name]) for name in MFU)).group_by(owner)
    if only is not None:
        query = among(query, windows.c.id, only)
    return {name: mfu_of(found) for name, *found in connection.execute(query)}


def lost_noise(connection: Connection, f: Filter, shown: Collection[int]) -> dict[int, float]:
    """By how much the time that a window seems to cost varies for nothing, in ns, by process.

    No window gives time back: what is below zero is the steps' own variation, and as much of it lies above. The root
    of the mean square of those below zero; of processes with fewer than two nothing is known.
    """
    w, lost_ns = windows.c, cast(lost(), Double)
    query = windows_of(f, w.process_id, func.count(), func.sum(lost_ns * lost_ns)).where(lost() < 0)
    found = connection.execute(among(query.group_by(w.process_id), w.process_id, shown))
    return {process: math.sqrt(squares / count) for process, count, squares in found if count > 1}


def _noise(connection: Connection, f: Filter) -> int | None:
    """By how much the loss of all windows varies for nothing, as ``lost_noise`` has it of single ones."""
    w, ns = windows.c, cast(lost(), Double)
    below = case((lost() < 0, 1), else_=0)
    query = windows_of(
        f, w.process_id, func.sum(below), func.sum(below * ns * ns), total(FIGURES["cost_windows"])
    ).where(w.lost_in_ns.is_not(None))
    found = connection.execute(query.group_by(w.process_id).order_by(w.process_id)).all()
    told = [squares / count * number for _, count, squares, number in found if count > 1]
    return round(math.sqrt(math.fsum(map(float, told)))) if told else None


def cost(connection: Connection, f: Filter) -> dict[str, Any]:
    """What profiling cost the jobs, over the windows whose cost and represented time are both known.

    With the steps inside all windows, and what the loss varies by for nothing: without them nobody can tell whether it
    is one (``model.answer.cost_share``).
    """
    found = figures(connection, f)
    count = found["cost_windows"] or 0
    return {
        "windows": count,
        "of_windows": found["windows"] or 0,
        "lost_ns": found["lost_ns"] if count else None,
        "represented_ns": found["cost_represented_ns"] if count else None,
        "steps": found["steps"],
        "noise_ns": _noise(connection, f) if count and found["windows"] <= NOISE_MOST else None,
        "share": ratio(found["lost_ns"] or 0, found["cost_represented_ns"] or 0) if count else None,
    }
