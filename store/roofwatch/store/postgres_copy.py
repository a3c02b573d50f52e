"""Rows into Postgres by binary COPY, over SQLAlchemy's own connection and so in its transaction.

Imported only where Postgres is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import psycopg
from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from roofwatch.store import postgres_arrays

_quote = postgresql.dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]


@lru_cache(maxsize=256)
def _statement(table: Table, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    columns = ",".join(map(_quote, names))
    copying = f"COPY {_quote(table.name)} ({columns}) FROM STDIN WITH (FORMAT BINARY)"
    return copying, postgres_arrays.types(table, names)  # it converts nothing: each value must be of its column's type


def copy(connection: Connection, table: Table, names: Sequence[str], flat: Sequence[Any]) -> None:
    """Append rows whose values lie one after the other in ``flat``.

    Raises:
        DBAPIError: as SQLAlchemy raises it for statements of its own; the transaction is to be rolled back.
    """
    statement, types = _statement(table, tuple(names))
    driver: Any = connection.connection.driver_connection
    width = len(names)
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as writing:
            writing.set_types(types)
            for at in range(0, len(flat), width):
                writing.write_row(flat[at : at + width])
    except psycopg.Error as error:
        broken = bool(driver.closed or driver.broken)
        if broken:
            connection.invalidate(error)
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, connection_invalidated=broken, dialect=connection.dialect
        ) from error
