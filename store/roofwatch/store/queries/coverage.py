"""What an answer rests on: sums of the ledgers, idle causes and costs of the windows a filter means."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, and_, case, func, literal, select

from roofwatch.model.answer import CoverageSum, MfuSum, ratio
from roofwatch.store.filter import Filter
from roofwatch.store.queries.scope import among, devices_of, weight, windows_of
from roofwatch.store.schema import graphs, idle_causes, window_devices, window_drops, windows


def coverage(connection: Connection, f: Filter) -> CoverageSum:
    """Ledger sums. A ledger is a window's, not a device's: with a device filter, of all windows that have such one."""
    w = windows.c
    known = func.coalesce(w.represents_ns, 0) > 0
    row = connection.execute(
        windows_of(
            f,
            func.count().label("windows"),
            *(
                func.sum(column).label(column.name)
                for column in (
                    w.device_records,
                    w.device_time_ns,
                    w.backlog_ns,
                    w.classifiable_ns,
                    w.classified_ns,
                    w.named_ns,
                    w.model_known_ns,
                    w.model_flops,
                    w.compared_ns,
                    w.disagreed_ns,
                    w.layout_ns,
                )
            ),
            func.sum(case((w.layout_ns.is_not(None), w.classifiable_ns), else_=0)).label("layout_of_ns"),
            func.sum(case((w.has_host_events, w.device_time_ns), else_=0)).label("host_device_time_ns"),
            func.sum(case((w.has_host_events, w.linked_ns), else_=0)).label("linked_ns"),
            func.sum(case((known, w.duration_ns), else_=0)).label("sampled_ns"),
            func.sum(case((known, w.represents_ns), else_=0)).label("represented_ns"),
        )
    ).one()
    pairs = devices_of(f)
    busy, span = connection.execute(select(func.sum(pairs.c.busy_ns), func.sum(pairs.c.span_ns))).one()
    graph, attributed = connection.execute(
        windows_of(f, func.sum(graphs.c.total_ns), func.sum(graphs.c.attributed_ns)).join(
            graphs, graphs.c.window_id == windows.c.id
        )
    ).one()
    return CoverageSum(
        **{name: int(value or 0) for name, value in row._mapping.items()},  # noqa: SLF001 - SQLAlchemy's public name
        busy_ns=int(busy or 0),
        span_ns=int(span or 0),
        mfu=mfu_by(connection, f, literal(0)).get(0, MfuSum()),
        graph_ns=int(graph or 0),
        graph_attributed_ns=int(attributed or 0),
        dropped=dropped(connection, f),
    )


def dropped(connection: Connection, f: Filter) -> dict[str, int]:
    """What the readers of the windows left out, by reason."""
    query = (
        windows_of(f, window_drops.c.reason, func.sum(window_drops.c.count))
        .join(window_drops, window_drops.c.window_id == windows.c.id)
        .group_by(window_drops.c.reason)
    )
    return {reason: int(count) for reason, count in connection.execute(query)}


def summary(connection: Connection, f: Filter) -> dict[str, Any]:
    """Busy and idle time with its causes: sampled, and estimated over the time that the windows stand for."""
    pairs = devices_of(f)
    busy, span, est_busy, est_span = connection.execute(
        select(
            func.sum(pairs.c.busy_ns),
            func.sum(pairs.c.span_ns),
            func.sum(pairs.c.busy_ns * pairs.c.weight),
            func.sum(pairs.c.span_ns * pairs.c.weight),
        )
    ).one()
    c = idle_causes.c
    causes = connection.execute(
        select(
            c.cause,
            func.sum(c.total_ns),
            func.sum(c.total_ns * pairs.c.weight),
            func.sum(c.count),
            func.max(c.longest_ns),
        )
        .join(pairs, and_(pairs.c.window_id == c.window_id, pairs.c.position == c.position))
        .group_by(c.cause)
    ).all()
    examples = _examples(connection, pairs)
    return {
        "busy_ns": int(busy or 0),
        "idle_ns": int(span or 0) - int(busy or 0),
        "est_busy_ns": round(est_busy or 0),
        "est_idle_ns": round((est_span or 0) - (est_busy or 0)),
        "causes": {
            cause: {
                "total_ns": int(total),
                "est_ns": round(est),
                "count": int(count),
                "longest_ns": int(longest),
                "example": examples.get(cause),
            }
            for cause, total, est, count, longest in sorted(causes, key=lambda row: (-row[2], row[0]))
        },
    }


def _examples(connection: Connection, pairs: CTE) -> dict[str, str | None]:
    """The example of each cause's longest stretch."""
    c = idle_causes.c
    place = func.row_number().over(partition_by=c.cause, order_by=(c.longest_ns.desc(), c.window_id, c.position))
    ranked = (
        select(c.cause, c.example, place.label("place"))
        .join(pairs, and_(pairs.c.window_id == c.window_id, pairs.c.position == c.position))
        .subquery()
    )
    first = connection.execute(select(ranked.c.cause, ranked.c.example).where(ranked.c.place == 1))
    return {row.cause: row.example for row in first}


def mfu_by(
    connection: Connection, f: Filter, owner: ColumnElement[Any], only: Collection[int] | None = None
) -> dict[Any, MfuSum]:
    """Model FLOPs utilisation by a column of windows, processes or nodes; ``only`` of these windows.

    As ``MfuSum.add``. Of whole windows, as is the ledger: a device filter takes the windows that have such a device.
    """
    w, d = windows.c, window_devices.c
    query = windows_of(
        f,
        w.id,
        owner.label("owner"),
        w.model_ns,
        w.model_known_ns,
        w.model_peak_ns,
        func.sum(d.span_ns).label("span_ns"),
        func.sum(d.span_ns * weight()).label("est_ns"),
    ).join(window_devices, d.window_id == w.id)
    if only is not None:
        query = among(query, w.id, only)
    b = query.group_by(w.id, owner).subquery().c
    silent = and_(b.model_ns > 0, b.model_known_ns == 0)
    counts = and_(~silent, b.span_ns > 0)
    found = connection.execute(
        select(
            b.owner,
            func.sum(case((counts, b.model_peak_ns * b.est_ns / b.span_ns), else_=0.0)),
            func.sum(case((counts, b.est_ns), else_=0.0)),
            func.sum(case((counts, b.model_ns), else_=0)),
            func.sum(case((counts, b.model_known_ns), else_=0)),
            func.sum(case((silent, b.model_ns), else_=0)),
        ).group_by(b.owner)
    )
    return {
        name: MfuSum(float(peak), float(span), int(model), int(known), int(left_out))
        for name, peak, span, model, known, left_out in found
    }


def lost() -> Any:
    """Time a job lost to a window: in it and after it; null where it was not measured (model.Cost)."""
    return windows.c.lost_in_ns + func.coalesce(windows.c.lost_after_ns, 0)


def cost(connection: Connection, f: Filter) -> dict[str, Any]:
    """What profiling cost the jobs, over the windows whose cost and represented time are both known."""
    known = and_(windows.c.lost_in_ns.is_not(None), windows.c.represents_ns > 0)
    count, lost_ns, represented = connection.execute(
        windows_of(f, func.count(), func.sum(lost()), func.sum(windows.c.represents_ns)).where(known)
    ).one()
    return {
        "windows": count,
        "of_windows": connection.execute(windows_of(f, func.count())).scalar_one(),
        "lost_ns": int(lost_ns) if count else None,
        "represented_ns": int(represented) if count else None,
        "share": ratio(int(lost_ns), int(represented)) if count else None,
    }
