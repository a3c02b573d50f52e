"""Rows into Postgres by binary COPY, over SQLAlchemy's own connection and so in its transaction.

Imported only where Postgres is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import psycopg
from sqlalchemy import BigInteger, Boolean, Connection, Double, Integer, LargeBinary, SmallInteger, String, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

# Binary COPY converts nothing: each value must come as its column's very type.
_TYPES = (
    (BigInteger, "int8"),
    (SmallInteger, "int2"),
    (Integer, "int4"),  # after those that are kinds of it
    (Boolean, "bool"),
    (Double, "float8"),
    (LargeBinary, "bytea"),
    (String, "varchar"),
)
_quote = postgresql.dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]


@lru_cache(maxsize=256)
def _statement(table: Table, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    types = [next(name for kind, name in _TYPES if isinstance(table.c[column].type, kind)) for column in names]
    columns = ",".join(map(_quote, names))
    return f"COPY {_quote(table.name)} ({columns}) FROM STDIN WITH (FORMAT BINARY)", tuple(types)


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
