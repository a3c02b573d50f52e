"""``report``: the sums that every section of a page is drawn from, in one answer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, func, select

from roofwatch.model import report
from roofwatch.model.record import Cause
from roofwatch.model.timeline import TimelineSum
from roofwatch.store.filter import Filter
from roofwatch.store.queries import kernels
from roofwatch.store.queries.coverage import cost
from roofwatch.store.queries.scope import devices_of, windows_of
from roofwatch.store.queries.timeline import sums, timeline_by
from roofwatch.store.schema import idle_causes, nodes, processes, window_devices, windows

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
        by_device=timeline_by("device")(connection, f, report.DEVICES_MOST)["rows"],
        moments=moments(connection, f),
    )
    return {
        **report.body(measured, limit),
        "cost": cost(connection, f),
        "ledger": _ledger(connection, f),
        "subject": _subject(connection, f),
    }


def moments(connection: Connection, f: Filter) -> report.Moments:
    """Where the devices' time went, by when the windows began."""
    start = windows.c.start_unix_ns
    timed = windows_of(f, func.min(start), func.max(start)).where(start > 0)
    first, last = connection.execute(timed).one()
    timeless = connection.execute(windows_of(f, func.count()).where(start <= 0)).scalar_one()
    size = report.bucket_ns((last or 0) - (first or 0))
    found: dict[int, report.Moment] = defaultdict(report.Moment)
    bucket = (start // size).label("bucket")
    for number, count in connection.execute(windows_of(f, bucket, func.count()).where(start > 0).group_by(bucket)):
        found[int(number) * size].windows = count
    for number, span, busy, copy, communication in connection.execute(_busy(f, size)):
        estimated = found[int(number) * size].time.estimated
        estimated.add(float(span), float(busy), float(copy), float(communication))
    for number, cause, total, est, count, longest in connection.execute(_causes(f, size)):
        found[int(number) * size].time.cause(Cause(cause)).add(int(total), float(est), int(count), int(longest), None)
    return report.Moments(size, found, timeless)


def _busy(f: Filter, size: int) -> Any:
    scope, d = devices_of(f), window_devices.c
    bucket = (windows.c.start_unix_ns // size).label("bucket")
    columns = (d.span_ns, d.busy_ns, d.exposed_copy_ns, d.exposed_communication_ns)
    return (
        select(bucket, *(func.sum(column * scope.c.weight) for column in columns))
        .select_from(scope)
        .join(windows, windows.c.id == scope.c.window_id)
        .join(window_devices, and_(d.window_id == scope.c.window_id, d.position == scope.c.position))
        .where(windows.c.start_unix_ns > 0)
        .group_by(bucket)
    )


def _causes(f: Filter, size: int) -> Any:
    scope, c = devices_of(f), idle_causes.c
    bucket = (windows.c.start_unix_ns // size).label("bucket")
    sums_of = (
        func.sum(c.total_ns), func.sum(c.total_ns * scope.c.weight), func.sum(c["count"]), func.max(c.longest_ns)
    )  # fmt: skip
    return (
        select(bucket, c.cause, *sums_of)
        .select_from(scope)
        .join(windows, windows.c.id == scope.c.window_id)
        .join(idle_causes, and_(c.window_id == scope.c.window_id, c.position == scope.c.position))
        .where(windows.c.start_unix_ns > 0)
        .group_by(bucket, c.cause)
    )


def _ledger(connection: Connection, f: Filter) -> dict[str, Any]:
    """What the coverage does not tell of what was read."""
    w = windows.c
    events = connection.execute(windows_of(f, func.sum(w.events_read))).scalar_one()
    triggers = connection.execute(windows_of(f, w.trigger, func.count()).group_by(w.trigger).order_by(w.trigger))
    shapes = connection.execute(windows_of(f, func.count()).where(w.shapes_recorded)).scalar_one()
    return {
        "events_read": int(events or 0),
        "triggers": {str(trigger): int(count) for trigger, count in triggers},
        "shapes_windows": shapes,
    }


def _subject(connection: Connection, f: Filter) -> dict[str, Any]:
    """Whose windows they are, and of when."""
    w, p = windows.c, processes.c
    count, last = connection.execute(
        windows_of(f, func.count(p.id.distinct()), func.max(w.start_unix_ns + w.duration_ns))
    ).one()
    first = connection.execute(windows_of(f, func.min(w.start_unix_ns)).where(w.start_unix_ns > 0)).scalar_one()
    return {
        "nodes": _names(connection, f, nodes.c.host),
        "processes": count,
        "models": _names(connection, f, p.model),
        "jobs": _names(connection, f, p.job),
        "versions": _versions(connection, f),
        "first_unix_ns": None if first is None else int(first),
        "last_unix_ns": None if first is None else int(last),
    }


def _names(connection: Connection, f: Filter, column: Any) -> Sequence[str]:
    query = windows_of(f, column).where(column.is_not(None)).distinct().order_by(column).limit(NAMES_MOST)
    return list(connection.scalars(query))


def _versions(connection: Connection, f: Filter) -> dict[str, list[str]]:
    """Every version of every component that the processes ran with."""
    found: dict[str, set[str]] = defaultdict(set)
    for text in connection.scalars(windows_of(f, processes.c.versions).distinct().limit(NAMES_MOST)):
        for component, version in json.loads(text).items():
            found[component].add(version)
    return {component: sorted(versions) for component, versions in sorted(found.items())}
