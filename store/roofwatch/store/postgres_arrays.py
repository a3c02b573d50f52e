"""Rows for Postgres as an array a column: one short statement for any number of rows.

With a mark for each value psycopg would look for the marks in the statement, anew each time it is that long: ten times
what the insert itself costs. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Boolean, Double, Integer, LargeBinary, SmallInteger, String, Table

_TYPES = (
    (BigInteger, "int8"),
    (SmallInteger, "int2"),
    (Integer, "int4"),  # after those that are kinds of it
    (Boolean, "bool"),
    (Double, "float8"),
    (LargeBinary, "bytea"),
    (String, "varchar"),
)
_QUOTED = str.maketrans({"\\": "\\\\", '"': '\\"'})


@lru_cache(maxsize=256)
def types(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    """What Postgres calls the types of columns."""
    return tuple(next(name for kind, name in _TYPES if isinstance(table.c[column].type, kind)) for column in names)


def rows_of(types: Sequence[str], marks: str = "%s") -> str:
    """What gives the rows of arrays, where a statement reads from a table."""
    return f"unnest({', '.join(f'{marks}::{kind}[]' for kind in types)})"


def columns(types: Sequence[str], flat: Sequence[Any]) -> tuple[str, ...]:
    """Rows whose values lie one after the other, as the text of an array a column."""
    width = len(types)
    return tuple(_array(kind, flat[at::width]) for at, kind in enumerate(types))


def _array(kind: str, values: Sequence[Any]) -> str:
    """The text of an array (postgresql.org/docs/current/arrays.html#ARRAYS-IO)."""
    if kind == "varchar":
        texts = ("NULL" if value is None else f'"{value.translate(_QUOTED)}"' for value in values)
    elif kind == "bytea":
        texts = ("NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values)
    elif kind == "bool":
        texts = ("NULL" if value is None else "t" if value else "f" for value in values)
    else:
        texts = ("NULL" if value is None else str(value) for value in values)
    return f"{{{','.join(texts)}}}"
