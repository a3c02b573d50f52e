"""The rows that a plan means: of a table of sums, and of the windows that these do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, select, union_all

from roofwatch.store.filter import Filter
from roofwatch.store.queries.scope import device_matches, device_sets_of, owners
from roofwatch.store.queries.spans import Plan
from roofwatch.store.rollup_sources import FIGURES, SOURCES, fresh_rows, piece_rows, plain_columns, window_rows
from roofwatch.store.schema import window_sums, windows


def plain_rows(found: Plan, f: Filter, table: Table) -> Any:
    """As ``rows_of``, without whose the rows are: fewer tables are joined."""
    rows = rows_of(found, f, table) if found.stale or not found.has_pieces else None
    names = [column.name for column in plain_columns(table)]
    if rows is not None:
        return select(*(rows.c[name] for name in names)).subquery()
    t, own = table.c, owners(f)
    if found.processes is not None:
        own = [t.process_id.in_(found.processes)]
    of = device_sets_of(f, t.devices_id) if "devices_id" in t else device_matches(f)
    owned, of_device = bool(own) and found.processes is None, bool(of) and "devices_id" not in t
    fresh = fresh_rows(table, [found.fresh(t), *own, *of], owned=owned, of_device=of_device)
    if not found.has_windows:
        return fresh.subquery()
    alone = Plan({0: found.spans[0]}, processes=found.processes)
    rows = rows_of(alone, f, table)
    return union_all(select(*(rows.c[name] for name in names)), fresh).subquery()


def rows_of(found: Plan, f: Filter, table: Table, *, timed: bool = False, names: Sequence[str] = tuple(FIGURES)) -> Any:
    """The rows of a table of sums and of the windows that these do not hold, with the same columns (rollup_sources).

    ``timed``: and ``at_unix_ns``, when the window or the hour or day began. ``names``: the figures wanted of windows;
    to name few is faster.
    """
    starts = {"windows": windows.c.start_unix_ns, "pieces": table.c.bucket_unix_ns}
    at = {name: [column.label("at_unix_ns")] if timed else [] for name, column in starts.items()}
    by_set = "devices_id" in table.c
    parts = []
    if found.has_windows or not found.has_pieces:
        own = device_sets_of(f, windows.c.devices_id) if by_set else device_matches(f)
        where = [found.windows, *owners(f), *own]
        rows = window_rows(where, names) if table is window_sums else SOURCES[table.name](where)
        parts.append(rows.add_columns(*at["windows"]))
    if found.has_pieces:
        own = device_sets_of(f, table.c.devices_id) if by_set else device_matches(f)
        parts.append(piece_rows(table, [found.pieces, *owners(f), *own], names).add_columns(*at["pieces"]))
    return (parts[0] if len(parts) == 1 else union_all(*parts)).subquery()
