"""Many rows in few statements: one INSERT with many VALUES; on Postgres of arrays, or COPY where nothing is in the way.

Through the driver, because compiling an insert of dictionaries would cost more than the insert (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

from roofwatch.store import postgres_arrays

MOST = 32_766  # values of one statement of SQLite, since 3.32
COPY_FROM = 4  # rows; fewer are there sooner by INSERT, which is one message and not three
_SQLITE = sqlite.dialect().identifier_preparer
_POSTGRES = postgresql.dialect().identifier_preparer  # type: ignore[no-untyped-call]


def _quote(name: str) -> str:
    """A name that any of the engines would take for a word of its own is quoted for all."""
    return _POSTGRES.quote(name) if _SQLITE.quote(name) == name else _SQLITE.quote(name)


@lru_cache(maxsize=256)
def _statement(table: Table, names: tuple[str, ...], count: int, suffix: str) -> str:
    """``count`` rows of marks, or 0 for arrays."""
    row = f"({','.join('?' * len(names))})"
    rows = f"VALUES {','.join([row] * count)}"
    if not count:
        rows = f"SELECT * FROM {postgres_arrays.rows_of(postgres_arrays.types(table, names))}"  # noqa: S608 - our names
    columns = ",".join(_quote(name) for name in names)
    return f"INSERT INTO {_quote(table.name)} ({columns}) {rows} {suffix}"


class Collecting(Protocol):
    """What takes the place of a connection where rows are only collected (ClickHouse)."""

    def add(self, table: Table, names: Sequence[str], flat: Sequence[Any]) -> None:
        """Take rows of a table."""


def insert(
    connection: Connection | Collecting, table: Table, names: Sequence[str], flat: Sequence[Any], suffix: str = ""
) -> None:
    """Insert rows whose values lie one after the other in ``flat``; ``suffix`` says what to do on conflict."""
    if not isinstance(connection, Connection):
        connection.add(table, names, flat)
        return
    if not suffix and connection.dialect.name == "postgresql" and len(flat) >= COPY_FROM * len(names):
        from roofwatch.store import postgres_copy  # noqa: PLC0415  # psycopg is an extra

        postgres_copy.copy(connection, table, names, flat)
        return
    for statement, values in _chunks(connection, table, tuple(names), flat, suffix):
        connection.exec_driver_sql(statement, values)


def insert_returning(
    connection: Connection,
    table: Table,
    names: Sequence[str],
    flat: Sequence[Any],
    returning: Sequence[str],
    suffix: str = "ON CONFLICT DO NOTHING",
) -> list[Any]:
    """Insert rows; the given columns of those that were inserted, or changed where ``suffix`` says so."""
    suffix = f"{suffix} RETURNING {','.join(_quote(name) for name in returning)}"
    found: list[Any] = []
    for statement, values in _chunks(connection, table, tuple(names), flat, suffix):
        found.extend(connection.exec_driver_sql(statement, values).fetchall())
    return found


def _chunks(
    connection: Connection, table: Table, names: tuple[str, ...], flat: Sequence[Any], suffix: str
) -> list[tuple[str, tuple[Any, ...]]]:
    """Statements of a power of two rows each, so that few texts are prepared; of Postgres one."""
    if connection.dialect.name == "postgresql":
        arrays = postgres_arrays.columns(postgres_arrays.types(table, names), flat)
        return [(_statement(table, names, 0, suffix), arrays)] if len(flat) else []
    width = len(names)
    parts = _parts(flat, width)
    return [(_statement(table, names, len(values) // width, suffix), values) for values in parts]


def _parts(flat: Sequence[Any], width: int) -> list[tuple[Any, ...]]:
    """A power of two rows each, as large as a statement may be."""
    count = 1 << ((MOST // width).bit_length() - 1)
    at, parts = 0, []
    while at < len(flat):
        while count * width > len(flat) - at:
            count >>= 1
        parts.append(tuple(flat[at : at + count * width]))
        at += count * width
    return parts


def nothing() -> str:
    """On conflict keep the row that is there."""
    return "ON CONFLICT DO NOTHING"


def update(table: Table, names: Sequence[str]) -> str:
    """On conflict take the new values, but never unknown for known."""
    key = ",".join(_quote(column.name) for column in table.primary_key.columns)
    keys = {column.name for column in table.primary_key.columns}
    assignments = ",".join(
        f"{_quote(n)}=coalesce(excluded.{_quote(n)},{_quote(table.name)}.{_quote(n)})" for n in names if n not in keys
    )
    return f"ON CONFLICT ({key}) DO UPDATE SET {assignments}"


def newest(table: Table, names: Sequence[str], by: str, sane: int) -> str:
    """On conflict take the new row as it is, unless the one that is there is newer by a column.

    What is there and above ``sane`` yields to what is not: it is of a clock that was ahead.
    """
    key = ",".join(_quote(column.name) for column in table.primary_key.columns)
    keys = {column.name for column in table.primary_key.columns}
    assignments = ",".join(f"{_quote(n)}=excluded.{_quote(n)}" for n in names if n not in keys)
    own = f"{_quote(table.name)}.{by}"
    ahead = f"({own}>{sane} AND excluded.{by}<={sane})"
    return f"ON CONFLICT ({key}) DO UPDATE SET {assignments} WHERE excluded.{by}>={own} OR {ahead}"


def lacking(
    connection: Connection, table: Table, names: Sequence[str], flat: Sequence[Any], such: str
) -> list[tuple[Any, ...]]:
    """Of keys, whose values lie one after the other in ``flat``, those of which there is no row, or none such."""
    found: list[tuple[Any, ...]] = []
    columns = tuple(map(_quote, names))
    same = " AND ".join(f"t.{column}=own.{column}" for column in columns)
    none = f"NOT EXISTS (SELECT 1 FROM {_quote(table.name)} t WHERE {same} AND {such})"  # noqa: S608 - our names
    of, width = ",".join(columns), len(columns)
    if connection.dialect.name == "postgresql":
        types = postgres_arrays.types(table, tuple(names))
        statement = f"SELECT {of} FROM {postgres_arrays.rows_of(types)} own({of}) WHERE {none}"  # noqa: S608 - our names
        arrays = postgres_arrays.columns(types, flat)
        return [tuple(row) for row in connection.exec_driver_sql(statement, arrays)] if len(flat) else []
    row = f"({','.join('?' * width)})"
    for values in _parts(flat, width):
        rows = ",".join([row] * (len(values) // width))
        statement = f"WITH own({of}) AS (VALUES {rows}) SELECT {of} FROM own WHERE {none}"  # noqa: S608 - our names
        found += [tuple(row) for row in connection.exec_driver_sql(statement, values)]
    return found
