"""``report``: the sums that every section of a page is drawn from, in one answer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, case, func, select

from roofwatch.model import report
from roofwatch.model.record import Cause
from roofwatch.model.timeline import TimelineSum
from roofwatch.store.filter import Filter
from roofwatch.store.queries import kernels
from roofwatch.store.queries.coverage import cost, figures
from roofwatch.store.queries.plan import plan
from roofwatch.store.queries.plan_rows import rows_of
from roofwatch.store.queries.scope import owners, times, windows_of
from roofwatch.store.queries.spans import Plan
from roofwatch.store.queries.timeline import by_device, sums
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS, TIMES
from roofwatch.store.rollup_sources import total
from roofwatch.store.schema import cause_sums, device_sums, nodes, processes, rollups, window_sums, windows

NAMES_MOST = 100  # of nodes, models, jobs and versions: a title names a few


def page(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """The body of a report; ``limit`` is of its table of kernels."""
    parts = kernels.parts_of(connection, f)
    ranked = sorted(parts, key=lambda key: (-sum(p.est_ns for p in parts[key]), key))
    shown = ranked[: report.table_rows(limit)]
    described = kernels.sums_of(connection, f, parts, ranked, histograms=False)
    spread = kernels.sums_of(connection, f, parts, shown)
    measured = report.Measured(
        time=sums(connection, f, ()).get((), TimelineSum()),
        sums=[s for key in ranked for s in described[key]],
        spread=[s for key in shown for s in spread[key]],
        devices=kernels.devices_with_peaks(connection, f),
        by_device=by_device(connection, f, report.DEVICES_MOST)["rows"],
        moments=moments(connection, f),
    )
    known = figures(connection, f)
    return {
        **report.body(measured, limit),
        "cost": cost(connection, f),
        "ledger": {"events_read": known["events_read"] or 0, "padding_batches": known["padding_batches"] or 0},
        "subject": _subject(connection, f),
    }


def moments(connection: Connection, f: Filter) -> report.Moments:
    """Where the devices' time went, by when the windows began; from sums where the stretches are long enough."""
    first, last = _began(connection, f)
    kept = _finest_kept(connection, f)
    size = max(report.bucket_ns(0 if first is None or last is None else last - first), kept * SECOND_NS)
    chosen = plan(connection, f, next((grain for grain in (DAY_S, HOUR_S) if size >= grain * SECOND_NS), 0))
    found: dict[int, report.Moment] = defaultdict(report.Moment)
    timeless = 0
    for number, count in connection.execute(_counted(chosen, f, size)):
        if number is None:
            timeless = int(count)
        else:
            found[int(number) * size].windows = int(count)
    for number, *busy in connection.execute(_busy(chosen, f, size)):
        found[int(number) * size].time.estimated.add(*map(float, busy))
    for number, cause, est in connection.execute(_causes(chosen, f, size)):
        found[int(number) * size].time.cause(Cause(cause)).est_ns += float(est)
    return report.Moments(size, found, timeless)


def _finest_kept(connection: Connection, f: Filter) -> int:
    """How fine the time is told everywhere: 0 where all windows are kept, else the longest hour or day without."""
    r = rollups.c
    query = (
        select(func.max(r.grain))
        .join(processes, processes.c.id == r.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .where(~r.finer, *times(r.bucket_unix_ns, f.since_unix_ns, f.until_unix_ns), *owners(f))
    )
    return int(connection.execute(query).scalar_one() or 0)


def _counted(chosen: Plan, f: Filter, size: int) -> Any:
    """Windows by stretch, null for those whose time is unknown."""
    rows = rows_of(chosen, f, window_sums, timed=True).c
    number = case((rows.at_unix_ns > 0, rows.at_unix_ns // size)).label("number")
    return select(number, func.sum(rows.windows)).group_by(number)


def _busy(chosen: Plan, f: Filter, size: int) -> Any:
    rows = rows_of(chosen, f, device_sums, timed=True).c
    number = (rows.at_unix_ns // size).label("number")
    sums_of = (total(rows[f"est_{name}"]) for name in TIMES)
    return select(number, *sums_of).where(rows.at_unix_ns > 0).group_by(number)


def _causes(chosen: Plan, f: Filter, size: int) -> Any:
    rows = rows_of(chosen, f, cause_sums, timed=True).c
    number = (rows.at_unix_ns // size).label("number")
    return select(number, rows.cause, total(rows.est_ns)).where(rows.at_unix_ns > 0).group_by(number, rows.cause)


def _began(connection: Connection, f: Filter) -> tuple[int | None, int | None]:
    """When the first and the last window began; of windows that are no longer kept the hour or day."""
    start, bucket = windows.c.start_unix_ns, rollups.c.bucket_unix_ns
    gone = (
        select(func.min(bucket), func.max(bucket))
        .join(processes, processes.c.id == rollups.c.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .where(~rollups.c.finer, bucket > 0, *times(bucket, f.since_unix_ns, f.until_unix_ns), *owners(f))
    )
    queries = (windows_of(f, func.min(start), func.max(start)).where(start > 0), gone)
    both = [connection.execute(query).one() for query in queries]
    first, last = ([int(pair[i]) for pair in both if pair[i] is not None] for i in range(2))
    return min(first, default=None), max(last, default=None)


def _subject(connection: Connection, f: Filter) -> dict[str, Any]:
    """Whose windows they are, and of when."""
    owner = rows_of(plan(connection, f), f, window_sums)
    p = processes.c
    known = select(p.id, owner.c.host, p.model, p.job, p.versions).join(owner, owner.c.process_id == p.id).distinct()
    found = connection.execute(known).all()
    first, _ = _began(connection, f)
    last = figures(connection, f)["last_unix_ns"]
    return {
        "nodes": _names(row.host for row in found),
        "processes": len({row.id for row in found}),
        "models": _names(row.model for row in found),
        "jobs": _names(row.job for row in found),
        "versions": _versions({row.versions for row in found}),
        "first_unix_ns": first,
        "last_unix_ns": None if first is None else last,
    }


def _names(found: Iterable[str | None]) -> list[str]:
    return sorted({name for name in found if name})[:NAMES_MOST]


def _versions(texts: Iterable[str]) -> dict[str, list[str]]:
    """Every version of every component that the processes ran with."""
    found: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        for component, version in json.loads(text).items():
            found[component].add(version)
    return {component: sorted(versions)[:NAMES_MOST] for component, versions in sorted(found.items())}
