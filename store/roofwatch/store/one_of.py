"""That a number is one of many, given as one value: a statement is the same however many there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import BigInteger, ColumnElement, Connection, Dialect, Integer, Select, Text, bindparam
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine


class _Numbers(TypeDecorator[Sequence[int]]):
    """An array, or as JSON."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """What the database is given."""
        array: TypeEngine[Any] = postgresql.ARRAY(BigInteger)
        return array if dialect.name == "postgresql" else dialect.type_descriptor(Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """The value as that."""
        return list(value) if dialect.name == "postgresql" else json.dumps(list(value))


class _OneOf(FunctionElement[int]):
    """A column, and the numbers."""

    type = Integer()  # not that of a truth: where an engine has none, "= 1" behind it would keep SQLite from its index
    inherit_cache = True
    name = "one_of"


@compiles(_OneOf, "postgresql")
def _any(element: _OneOf, compiler: Any, **options: Any) -> str:
    column, numbers = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY ({numbers})"


@compiles(_OneOf, "sqlite")
def _each(element: _OneOf, compiler: Any, **options: Any) -> str:
    column, numbers = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({numbers}))"  # noqa: S608 - a column and a mark


def rows_of(connection: Connection, query: Select[Any], column: ColumnElement[Any], some: Sequence[int]) -> list[Any]:
    """The rows of a query whose column is one of some numbers; on any engine."""
    if connection.dialect.name in {"postgresql", "sqlite"}:
        return list(connection.execute(query.where(one_of(column, "some")), {"some": some}).all())
    return list(connection.execute(query.where(column.in_(some))).all())


def one_of(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """That a column is one of the numbers that a statement is given by this name; on SQLite and Postgres."""
    return cast("ColumnElement[bool]", _OneOf(column, bindparam(name, type_=_Numbers())))
