"""Sums over tables of sums that are all fresh, for questions that do not tell whose the rows are.

What a store is asked most often rests on sums alone. To make such a statement anew, with a mark for each hour, takes
longer than the database needs to answer it: so each shape is made once, and hours and processes are given as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, or_

from roofwatch.store.filter import Filter
from roofwatch.store.gather import ROWS
from roofwatch.store.one_of import one_of
from roofwatch.store.queries.plan import plan
from roofwatch.store.queries.plan_rows import plain_rows
from roofwatch.store.queries.scope import device_matches, device_sets_of, owners
from roofwatch.store.queries.spans import Plan
from roofwatch.store.queries.states import chosen_states
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS
from roofwatch.store.rollup_sources import fresh_rows

Aggregate = Callable[[Any], Select[Any]]  # of rows what is asked; a function that stays, so that it is known again
_GIVEN = {HOUR_S: "hours", DAY_S: "days"}


@dataclass(frozen=True, slots=True)
class _Shape:
    """What makes a statement another one."""

    table: Table
    aggregate: Aggregate
    grains: tuple[int, ...]
    owned: bool
    device: str | None
    vendor: str | None


def summed(connection: Connection, found: Plan, f: Filter, table: Table, aggregate: Aggregate) -> Sequence[Any]:
    """An aggregate over a table of sums and the windows that these do not hold, as ``plain_rows`` has them."""
    if (chosen := chosen_states(connection, found, f)) is not None:
        from roofwatch.store.clickhouse import plain  # noqa: PLC0415  # an extra

        told = plain.summed(connection, table, chosen, plain.Matches(f.device, f.vendor))
        if told is not None:
            return told
    if not _is_fresh(connection, found, f):
        return connection.execute(aggregate(plain_rows(found, f, table))).all()
    buckets = {grain: of for grain in _GIVEN if (of := buckets_of(found, grain))}
    shape = _Shape(table, aggregate, tuple(buckets), found.processes is not None, f.device, f.vendor)
    given: dict[str, Sequence[int]] = {_GIVEN[grain]: of for grain, of in buckets.items()}
    if found.processes is not None:
        given["processes"] = found.processes
    return connection.execute(_statement(shape), given).all()


def ahead(connection: Connection, f: Filter) -> None:
    """Say that an answer will ask for all kernels and sums of a filter: an engine that is far away reads them at once,
    kernels first, which take longest.
    """  # noqa: D205 - one thought
    if connection.dialect.name == ROWS and (chosen := chosen_states(connection, plan(connection, f), f)) is not None:
        from roofwatch.store.clickhouse import named, plain  # noqa: PLC0415  # an extra

        named.ahead(connection, chosen)
        plain.ahead(connection, chosen)


def buckets_of(found: Plan, grain: int) -> list[int]:
    """The hours or days of a plan, one by one."""
    step = grain * SECOND_NS
    return [at for since, until, _ in found.spans.get(grain, ()) for at in range(since or 0, until or 0, step)]


def _is_fresh(connection: Connection, found: Plan, f: Filter) -> bool:
    if connection.dialect.name == ROWS or found.stale or found.has_windows or not found.has_pieces:
        return False
    bounded = all(None not in span for grain in _GIVEN for span in found.spans.get(grain, ()))
    return bounded and (found.processes is not None or not owners(f))


@lru_cache(maxsize=256)
def _statement(shape: _Shape) -> Select[Any]:
    t, of = shape.table.c, Filter(device=shape.device, vendor=shape.vendor)
    where = [or_(*(and_(t.grain == grain, one_of(t.bucket_unix_ns, _GIVEN[grain])) for grain in shape.grains))]
    if shape.owned:
        where.append(one_of(t.process_id, "processes"))
    by_set = "devices_id" in t
    where += device_sets_of(of, t.devices_id) if by_set else device_matches(of)
    of_device = not by_set and (shape.device is not None or shape.vendor is not None)
    return shape.aggregate(fresh_rows(shape.table, where, owned=False, of_device=of_device).subquery())
