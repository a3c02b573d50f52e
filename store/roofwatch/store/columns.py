"""What the tables are made of."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, String

metadata = MetaData()
Int = BigInteger().with_variant(Integer, "sqlite")  # on SQLite an INTEGER key is the row's own number: no second index
# Sorted by bytes everywhere: a language's order would differ from engine to engine, and so would answers.
Text = String().with_variant(String(collation="C"), "postgresql")


def key(name: str = "id", **more: Any) -> Column[Any]:
    """A whole number that is, or is part of, the primary key."""
    return Column(name, Int, primary_key=True, autoincrement=False, **more)


def whole(name: str, *, null: bool = False, default: int | None = None) -> Column[Any]:
    """A whole number."""
    return Column(name, BigInteger, nullable=null, server_default=None if default is None else str(default))


def text(name: str, *, null: bool = False) -> Column[Any]:
    """A text."""
    return Column(name, Text, nullable=null)
