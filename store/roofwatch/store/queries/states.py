"""The pieces that an answer means one by one, on the engine that reads them faster than it counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection

from roofwatch.store.filter import Filter
from roofwatch.store.gather import ROWS
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.scope import owners
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, bucket_of

if TYPE_CHECKING:
    from roofwatch.store.clickhouse.states import States
    from roofwatch.store.queries.spans import Plan

_END_NS = 1 << 62  # after every window


def days_of(f: Filter) -> dict[str, int]:
    """From the first day of the filter's time until its end; no window is older than 0."""
    since, until = max(0, f.since_unix_ns or 0), f.until_unix_ns
    return {"since": bucket_of(since, DAY_S), "until": _END_NS if until is None else min(until, _END_NS)}


def states_of(connection: Connection, f: Filter) -> States | None:
    """The pieces of the filter's owners; None where there are many, and on the other engines."""
    if connection.dialect.name != ROWS:
        return None
    from roofwatch.store.clickhouse.states import states  # noqa: PLC0415  # an extra

    since, until = days_of(f).values()
    return once(
        connection, f, "states",
        lambda: states(connection, owners(f), since or None, None if until == _END_NS else until),
    )  # fmt: skip


def chosen_states(connection: Connection, found: Plan, f: Filter) -> States | None:
    """The pieces of a plan, where it means nothing but pieces, all that its owners have of a bucket."""
    if found.stale or found.has_windows or not found.has_pieces:
        return None
    known = states_of(connection, f)
    if known is None:
        return None
    grain, bucket = known.columns["grain"], known.columns["bucket_unix_ns"]
    meant = np.zeros(len(known), np.bool_)
    for one in (HOUR_S, DAY_S):
        for since, until, _ in found.spans.get(one, ()):
            meant |= (grain == one) & (bucket >= (since or 0)) & (bucket < (_END_NS if until is None else until))
    return known.where(meant)
