"""Which rows of sums count: those of the builds that ``rollups`` names, looked up once an answer.

So the parts of an answer see the same builds. Partitions are told beside them: a subquery would not be looked into
before parts are chosen. Of pieces that have nothing finer any build counts: late windows are added to the one before,
by one insert, and the newest of a key is what the engine reads (``sums.add``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import BigInteger, ColumnElement, Connection, false, literal_column, or_, select, tuple_
from sqlalchemy.sql import Select, visitors
from sqlalchemy.sql.elements import ColumnClause
from sqlalchemy.sql.selectable import SelectBase

from roofwatch.store.clickhouse.reading import once
from roofwatch.store.clickhouse.tables import kernel_sums
from roofwatch.store.rollup_sources import Conditions
from roofwatch.store.schema import nodes, processes, rollups

NAMED_MOST = 3000  # pieces that are named; more are sought by the engine
_PIECE = ("grain", "process_id", "bucket_unix_ns")
_KEY = (*_PIECE, "build", "finer")
_BUILD: ColumnElement[Any] = ColumnClause("build", BigInteger())


def tables_of(condition: ColumnElement[Any]) -> set[str]:
    """Of which tables a condition speaks; "" where it looks something up."""
    found = set()
    for one in visitors.iterate(condition):
        if isinstance(one, SelectBase):
            return {""}
        if isinstance(one, ColumnClause) and one.table is not None:
            found.add(str(one.table.name))  # type: ignore[attr-defined]
    return found


def pieces_of(connection: Connection, where: Conditions) -> tuple[int, list[ColumnElement[bool]]]:
    """How many pieces some conditions of rollups, processes and nodes mean, and that ``kernel_sums`` is of those."""
    s, query = kernel_sums.c, _query(where)
    found = once(connection, query, _KEY)
    grains, buckets = (np.unique(found[name]).tolist() for name in ("grain", "bucket_unix_ns"))
    count = len(found["grain"])
    if not count:
        return 0, [false()]
    parts = [s.grain.in_(grains), s.bucket_unix_ns >= buckets[0], s.bucket_unix_ns <= buckets[-1]]
    if count > NAMED_MOST:
        return count, [*parts, of_builds(query)]
    finer = found["finer"].astype(np.bool_)
    own = [
        tuple_(*(s[name] for name in names)).op("IN")(literal_column(f"({_listed(found, names, rows)})"))
        for names, rows in ((_KEY[:4], finer), (_PIECE, ~finer))
        if rows.any()
    ]
    return count, [*parts, or_(*own)]


def of_builds(query: Select[Any]) -> ColumnElement[bool]:
    """That rows of ``kernel_sums`` are of pieces and builds that a query of ``rollups`` finds, whatever it selects."""
    s, r = kernel_sums.c, rollups.c
    piece, named = [r[name] for name in _PIECE], tuple_(*(s[name] for name in _PIECE))
    exact = tuple_(*named.clauses, s.build).in_(query.with_only_columns(*piece, _BUILD).where(r.finer))
    return or_(exact, named.in_(query.with_only_columns(*piece).where(~r.finer)))


def _listed(found: Mapping[str, Any], names: Sequence[str], rows: Any) -> str:
    return ",".join(map(str, zip(*(found[name][rows].tolist() for name in names), strict=True)))


def _query(where: Conditions) -> Select[Any]:
    r, owner = rollups.c, processes.c.node_id == nodes.c.id
    query = select(*(r[name] for name in _PIECE), _BUILD, r.finer).select_from(rollups)
    of = [(one, tables_of(one)) for one in where]
    own = [one for one, tables in of if tables == {rollups.name}]
    owners = [one for one, tables in of if tables and tables <= {processes.name, nodes.name}]
    if len(own) + len(owners) < len(of):  # speaks of both, or looks something up
        return query.join(processes, processes.c.id == r.process_id).join(nodes, owner).where(*where)
    if owners:
        owners = [r.process_id.in_(select(processes.c.id).join(nodes, owner).where(*owners))]
    return query.where(*own, *owners)
