"""Many rows in few statements: what one engine does best. SQLite: one INSERT with many VALUES, prepared once a size.

Through the driver, because compiling an insert of dictionaries would cost more than the insert (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import sqlite

MAX_VARIABLES = 32_766  # of one SQLite statement, since 3.32
_quote = sqlite.dialect().identifier_preparer.quote


@lru_cache(maxsize=256)
def _statement(table: str, names: tuple[str, ...], count: int, suffix: str) -> str:
    row = f"({','.join('?' * len(names))})"
    columns = ",".join(_quote(name) for name in names)
    return f"INSERT INTO {_quote(table)} ({columns}) VALUES {','.join([row] * count)} {suffix}"  # noqa: S608 - our names


def insert(connection: Connection, table: Table, names: Sequence[str], flat: Sequence[Any], suffix: str = "") -> None:
    """Insert rows whose values lie one after the other in ``flat``; ``suffix`` says what to do on conflict."""
    for statement, values in _chunks(table, tuple(names), flat, suffix):
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
    for statement, values in _chunks(table, tuple(names), flat, suffix):
        found.extend(connection.exec_driver_sql(statement, values).fetchall())
    return found


def _chunks(
    table: Table, names: tuple[str, ...], flat: Sequence[Any], suffix: str
) -> list[tuple[str, tuple[Any, ...]]]:
    """Statements of a power of two rows each, so that few texts are prepared."""
    width = len(names)
    count = 1 << ((MAX_VARIABLES // width).bit_length() - 1)
    at, chunks = 0, []
    while at < len(flat):
        while count * width > len(flat) - at:
            count >>= 1
        chunks.append((_statement(table.name, names, count, suffix), tuple(flat[at : at + count * width])))
        at += count * width
    return chunks


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
