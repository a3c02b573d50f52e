"""What the parts of one answer ask for several times is found once: an answer sees one state of the database."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from sqlalchemy import Connection

from roofwatch.store.filter import Filter

Found = TypeVar("Found")
_FOUND: ContextVar[dict[Hashable, tuple[Any, ...]] | None] = ContextVar("found", default=None)


@contextmanager
def one_answer() -> Iterator[None]:
    """Remember what is found until the block ends."""
    token = _FOUND.set({})
    try:
        yield
    finally:
        _FOUND.reset(token)


def once(connection: Connection, f: Filter, what: Hashable, find: Callable[[], Found]) -> Found:
    """What was found before for the same connection, filter and name, else what ``find`` finds."""
    known = _FOUND.get()
    if known is None:
        return find()
    key = (id(connection), id(f), what)
    if key not in known:
        known[key] = (find(), connection, f)  # kept, so that no other takes its place in memory
    found: Found = known[key][0]
    return found
