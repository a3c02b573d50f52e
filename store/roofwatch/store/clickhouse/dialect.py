"""SQLAlchemy's dialect of clickhouse-connect, told what this project's statements mean. Imported only where used."""

from __future__ import annotations

from typing import Any

from clickhouse_connect import dbapi
from clickhouse_connect.cc_sqlalchemy.dialect import ClickHouseDialect
from clickhouse_connect.cc_sqlalchemy.sql.compiler import ChStatementCompiler
from sqlalchemy import ColumnClause, Double, FromClause, Label
from sqlalchemy.ext.compiler import compiles

from roofwatch.store.days import SHARED, _Came, _InDays, _pruning
from roofwatch.store.rollup_sources import WholeNs

NAME = "clickhousedb"


class Compiler(ChStatementCompiler):
    """Division and LIKE as on the other engines: there it is whole among whole numbers, and floats stay floats."""

    def visit_floordiv_binary(self, binary: Any, operator: Any, **options: Any) -> str:  # noqa: ARG002 - its name
        """Whole numbers, rounded down; nothing here divides what is negative."""
        left, right = (self.process(side, **options) for side in (binary.left, binary.right))
        return f"intDiv({left}, {right})"

    def visit_truediv_binary(self, binary: Any, operator: Any, **options: Any) -> str:  # noqa: ARG002 - its name
        """Floats: casting to NUMERIC, as SQLAlchemy would, cuts the fraction off."""
        left, right = (self.process(side, **options) for side in (binary.left, binary.right))
        return f"toFloat64({left}) / toFloat64({right})"

    def visit_cast(self, cast: Any, **options: Any) -> str:
        """To floats by a function that leaves NULL as it is; a cast would refuse it."""
        if isinstance(cast.type, Double):
            return f"toFloat64({self.process(cast.clause, **options)})"
        return str(super().visit_cast(cast, **options))  # type: ignore[no-untyped-call]

    def group_by_clause(self, select: Any, **options: Any) -> str:
        """With the plain columns that are selected: those that follow from a key need not be named elsewhere."""
        text = super().group_by_clause(select, **options)  # type: ignore[no-untyped-call]
        if not text:
            return str(text)
        named = set(text[len(" GROUP BY ") :].split(", "))
        columns = (one.element if isinstance(one, Label) else one for one in select._raw_columns)  # noqa: SLF001
        flat = [column for one in columns for column in (one.c if isinstance(one, FromClause) else (one,))]
        more = [self.process(one, **options) for one in flat if isinstance(one, ColumnClause) and one.table is not None]
        return ", ".join([text, *(dict.fromkeys(one for one in more if one not in named))])

    def visit_like_op_binary(self, binary: Any, operator: Any, **options: Any) -> str:  # noqa: ARG002 - its name
        """With an escape, which this engine knows since it has correlated subqueries."""
        left, right = (self.process(side, **options) for side in (binary.left, binary.right))
        escape = binary.modifiers.get("escape")
        return f"{left} LIKE {right}" + (f" ESCAPE '{escape}'" if escape else "")


class Dialect(ClickHouseDialect):
    """The same with statements compiled once."""

    supports_statement_cache = True
    statement_compiler = Compiler

    @classmethod
    def import_dbapi(cls) -> Any:
        """The driver; SQLAlchemy warns of a class that only inherits this beside its older name."""
        return dbapi

    def do_ping(self, dbapi_connection: Any) -> bool:
        """Whether the server answers."""
        return bool(dbapi_connection.client.ping())


@compiles(WholeNs, NAME)
def _whole_ns(element: Any, compiler: Any, **options: Any) -> str:
    return f"toInt64(floor(least({compiler.process(element.clauses, **options)}, 9e18) + 0.5))"


compiles(_InDays, NAME)(_pruning)


@compiles(_Came, NAME)
def _serial(element: Any, compiler: Any, **options: Any) -> str:
    return f"bitAnd({compiler.process(element.clauses, **options)}, {SHARED - 1})"
