"""``whatif``: the roofline of a filter's kernels once more, with fewer bytes or other ceilings."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, case, func, select

from roofwatch.model.whatif import replay
from roofwatch.model.whatif_change import change_of
from roofwatch.model.whatif_report import Time, report
from roofwatch.store.filter import Asked, Filter
from roofwatch.store.queries import all_kernels, kernels
from roofwatch.store.queries.scope import devices_of
from roofwatch.store.schema import windows


def whatif(connection: Connection, asked: Asked) -> dict[str, Any]:
    """The step as foretold, and the rows that change most; ``options`` say what is to be different.

    Raises:
        UsageError: they say nothing that could be meant.
    """
    change = change_of(asked.options)
    found = replay(all_kernels.all_sums(connection, asked.scope), change)
    told = report(found, _time(connection, asked.scope), asked.limit)
    return {**told, "unmeasured": kernels.unmeasured_of(connection, asked.scope)}


def _time(connection: Connection, f: Filter) -> Time:
    """Busy time and span of the devices, and of a step, estimated over the time that the windows stand for."""
    pairs, w = devices_of(f), windows.c
    stepping = and_(w.steps.is_not(None), w.steps > 0)
    busy, span, stepped, steps = connection.execute(
        select(
            func.sum(pairs.c.busy_ns * pairs.c.weight),
            func.sum(pairs.c.span_ns * pairs.c.weight),
            func.sum(case((stepping, pairs.c.span_ns * pairs.c.weight), else_=0.0)),
            func.sum(case((stepping, w.steps * pairs.c.weight), else_=0.0)),
        ).join(windows, w.id == pairs.c.window_id)
    ).one()
    return Time(float(busy or 0.0), float(span or 0.0), float(stepped) / float(steps) if steps else None)
