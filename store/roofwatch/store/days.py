"""How a window's number tells its day, so that Postgres keeps each day's windows, and what they are made of, together.

On Postgres a number is the day of the window's start (UTC, since 1970) above a serial number of 40 bits, and tables are
partitioned by it: what is asked of a time looks into the days of that time, and a day is dropped as a whole. Day 0 is
of windows that have no day's partition: those imported from files, which stay, and those of odd dates. On other
engines numbers are serial numbers alone, all of day 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, Boolean, ColumnElement, and_, or_, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import AsBoolean, BooleanClauseList, Grouping
from sqlalchemy.sql.expression import FunctionElement

from roofwatch.store.rollup_schema import DAY_S, SECOND_NS

DAY_NS = DAY_S * SECOND_NS
SERIAL_BITS = 40  # enough for 100,000 windows a minute for 20 years
SHARED = 1 << SERIAL_BITS  # numbers below are of no day
MOST = 1 << 62  # above every number


def day_of(unix_ns: int) -> int:
    """Days since 1970 (UTC)."""
    return unix_ns // DAY_NS


def first_number(day: int) -> int:
    """The first number of a day; its last is below the first of the next."""
    return day << SERIAL_BITS


def serial(number: int) -> int:
    """What tells which of two windows came later."""
    return number & (SHARED - 1)


class _Came(FunctionElement[int]):
    """What tells which of two windows came later, of a column of numbers."""

    type = BigInteger()
    inherit_cache = True
    name = "came"


@compiles(_Came)
def _itself(element: _Came, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(_Came, "postgresql")
def _serial(element: _Came, compiler: Any, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)} & {SHARED - 1})"


def came(number: ColumnElement[int]) -> ColumnElement[int]:
    """By which windows are in the order in which they came."""
    return _Came(number)


class _InDays(FunctionElement[bool]):
    """A number is of no day, or from ≤ number < until."""

    type = Boolean()
    inherit_cache = True
    name = "in_days"


@compiles(_InDays)
def _always(_element: _InDays, _compiler: Any, **_: Any) -> str:
    return "1 = 1"  # numbers tell no day


@compiles(_InDays, "postgresql")
def _pruning(element: _InDays, compiler: Any, **options: Any) -> str:
    number, since, until = element.clauses
    return str(compiler.process(or_(number < SHARED, and_(number >= since, number < until)).self_group(), **options))


def in_days(number: ColumnElement[Any], since_ns: int | None, until_ns: int | None) -> ColumnElement[bool]:
    """That a window's number may be that of one that begins in since ≤ t < until: which partitions to look into.

    True of every window in that time, and of some others: it saves looking, and excludes nothing.
    """
    since = 0 if since_ns is None else min(max(day_of(since_ns), 0) << SERIAL_BITS, MOST)
    until = MOST if until_ns is None else min(max(day_of(until_ns - 1) + 1, 0) << SERIAL_BITS, MOST)
    return _InDays(number, since, until)


def same_days(where: Iterable[ColumnElement[bool]], *numbers: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    """Of conditions of windows what ``in_days`` says, for columns that hold the numbers of the same windows.

    Postgres concludes it from a join only when it runs, after it has planned for every partition there is.
    """
    spans = _spans(and_(true(), *where)) or []
    return [or_(*(_InDays(number, *span) for span in spans)) for number in numbers if spans]


def _spans(condition: Any) -> list[tuple[Any, Any]] | None:
    """Numbers that fulfil a condition lie in one of these; None where it does not say."""
    if isinstance(condition, _InDays):
        _, since, until = condition.clauses
        return [(since, until)]
    whole = isinstance(condition, AsBoolean) and condition.operator is operators.is_true
    if isinstance(condition, Grouping) or whole:
        return _spans(condition.element)
    if not isinstance(condition, BooleanClauseList):
        return None
    parts = [_spans(part) for part in condition.clauses]
    if condition.operator is operators.and_:
        return next((part for part in parts if part is not None), None)
    told = [part for part in parts if part is not None]
    return [span for part in told for span in part] if told and len(told) == len(parts) else None
