"""The windows of both sides of a comparison that are still kept: how many, with steps or without, and whose they are.

Of two device models they are read once: what differs is only which sets of devices are meant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Any

from sqlalchemy import Connection, Select, case, func, or_, select

from roofwatch.store.filter import Filter
from roofwatch.store.gather import ROWS
from roofwatch.store.one_of import rows_of as rows_of_some
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.regression_windows import shared
from roofwatch.store.queries.scope import began, device_matches, owners, windows_of
from roofwatch.store.queries.states import states_of
from roofwatch.store.schema import device_sets, devices, processes, windows

NAMED_MOST = 1000  # processes in a statement that is not waited for
STEPLESS = or_(windows.c.steps.is_(None), windows.c.steps <= 0)
_SILENT = or_(windows.c.padding_batches.is_(None), windows.c.padding_batches <= 0)


_COUNTED = ("process_id", "devices_id", "count", "stepless", "silent")
_OF_PROCESS = ("id", "model", "world_size")


@dataclass(frozen=True, slots=True)
class Scope:
    """What a side means; ``bare``: the same of any device, one object where both sides have the same."""

    asked: Filter
    bare: Filter


def scopes(left: Filter, right: Filter) -> tuple[Scope, Scope]:
    """Of both sides."""
    ours, theirs = (replace(f, device=None, vendor=None) for f in (left, right))
    return Scope(left, ours), Scope(right, ours if ours == theirs else theirs)


def kept(connection: Connection, side: Scope) -> dict[int, tuple[int, ...]]:
    """Of each process the windows that are still kept: all, those without steps, those that tell no padding."""

    def find() -> dict[int, tuple[int, ...]]:
        sets = sets_of(connection, side)
        found: dict[int, tuple[int, ...]] = {}
        for (process, devices_id), counts in _by_set(connection, side.bare).items():
            if sets is None or devices_id in sets:
                before = found.get(process)
                found[process] = counts if before is None else tuple(map(add, before, counts))
        return found

    return once(connection, side.asked, "kept of a side", find)


def _by_set(connection: Connection, bare: Filter) -> dict[tuple[int, int], tuple[int, ...]]:
    """The same by process and set of devices, without regard to what devices: of two device models, one reading."""

    def find() -> dict[tuple[int, int], tuple[int, ...]]:
        if connection.dialect.name == ROWS:
            from roofwatch.store.clickhouse import reading  # noqa: PLC0415  # an extra

            columns = reading.kept(connection, _counting_text(connection, bare), _COUNTED)
            rows: Iterable[Any] = zip(*(columns[name].tolist() for name in _COUNTED), strict=True)
        else:
            rows = connection.execute(_counting(bare))
        return {(process, of): (count, int(stepless), int(silent)) for process, of, count, stepless, silent in rows}

    return once(connection, bare, "kept", find)


def _counting(bare: Filter) -> Select[Any]:
    keys = windows.c.process_id, windows.c.devices_id
    sums = [func.sum(case((one, 1), else_=0)) for one in (STEPLESS, _SILENT)]
    columns = (*keys, func.count(), *sums)
    query: Select[Any] = select(*columns).where(*began(bare.since_unix_ns, bare.until_unix_ns))
    if owners(bare):
        query = windows_of(bare, *columns)
    return query.group_by(*keys)


def _counting_text(connection: Connection, bare: Filter) -> str:
    """The same as it travels to ClickHouse."""
    from roofwatch.store.clickhouse import reading  # noqa: PLC0415  # an extra

    return once(connection, bare, "counting", lambda: reading.text_of(connection, _counting(bare)))


def ahead(connection: Connection, side: Scope) -> None:
    """Say that these windows will be counted, where another engine reads them meanwhile."""
    if connection.dialect.name == ROWS:
        from roofwatch.store.clickhouse import reading  # noqa: PLC0415  # an extra

        reading.ahead(connection, _counting_text(connection, side.bare), _COUNTED)


def owners_ahead(connection: Connection, side: Scope) -> None:
    """Say that it will be asked whose they are."""
    if connection.dialect.name != ROWS:
        return
    from roofwatch.store.clickhouse import reading  # noqa: PLC0415  # an extra

    if (states := states_of(connection, side.bare)) is not None and len(owned := states.processes()) <= NAMED_MOST:
        reading.ahead(connection, _of_processes(owned), _OF_PROCESS)


def sets_of(connection: Connection, side: Scope) -> Collection[int] | None:
    """The sets of devices that hold one that matches; None: any does."""
    f = side.asked
    wanted = device_matches(f)
    if not wanted:
        return None
    if connection.dialect.name == ROWS:
        from roofwatch.store.clickhouse.devices import sets_meant  # noqa: PLC0415  # an extra

        told = {of for _, of in _by_set(connection, side.bare)}
        return once(connection, f, "sets", lambda: sets_meant(connection, told, f.device, f.vendor))
    query = select(device_sets.c.id).join(devices, devices.c.id == device_sets.c.device_id).where(*wanted)
    return once(connection, f, "sets", lambda: frozenset(connection.scalars(query)))


def common(connection: Connection, left: Scope, right: Scope) -> int:
    """How many windows are on both sides."""
    if left.bare is not right.bare:
        return shared(connection, left.asked, right.asked)
    sets = [of for side in (left, right) if (of := sets_of(connection, side)) is not None]
    return sum(
        count for (_, devices_id), (count, *_) in _by_set(connection, left.bare).items()
        if all(devices_id in of for of in sets)
    )  # fmt: skip


def models_and_worlds(connection: Connection, side: Scope) -> tuple[frozenset[str], frozenset[int]]:
    """Models and world sizes of the processes that have windows."""
    of = _processes(connection, side.bare)
    found = [of[process] for process in kept(connection, side) if process in of]
    return frozenset(m for m, _ in found if m is not None), frozenset(w for _, w in found if w is not None)


def _processes(connection: Connection, bare: Filter) -> dict[int, tuple[str | None, int | None]]:
    """Model and world size of every process of a filter; of two device models, one reading."""

    def find() -> dict[int, tuple[str | None, int | None]]:
        of = sorted({process for process, _ in _by_set(connection, bare)})
        rows = _rows(connection, bare, of) if connection.dialect.name == ROWS else None
        if rows is None:
            p = processes.c
            rows = rows_of_some(connection, select(p.id, p.model, p.world_size), p.id, of)
        return {process: (model, world) for process, model, world in rows}

    return once(connection, bare, "processes", find)


def _rows(connection: Connection, bare: Filter, wanted: Sequence[int]) -> Iterable[Any] | None:
    """What ``ahead`` asked for; None where it did not, or that is not all that is wanted."""
    from roofwatch.store.clickhouse import reading  # noqa: PLC0415  # an extra

    states = states_of(connection, bare)
    owned = [] if states is None else states.processes()
    if len(owned) > NAMED_MOST or not set(wanted) <= set(owned):
        return None
    columns = reading.kept(connection, _of_processes(owned), _OF_PROCESS)
    return zip(*(columns[name].tolist() for name in _OF_PROCESS), strict=True)


def _of_processes(some: Sequence[int]) -> str:
    from roofwatch.store.clickhouse.reading import ALONE  # noqa: PLC0415  # an extra

    read = f"SELECT {', '.join(_OF_PROCESS)} FROM processes"  # noqa: S608 - our own words
    return f"{read} WHERE id IN ({','.join(map(str, some))}) {ALONE}"
