"""How processes stand with their agents: what of it goes once it is old."""

from __future__ import annotations

from sqlalchemy import Connection, delete

from roofwatch.store.schema import process_states


def forget(connection: Connection, before_ns: int) -> None:
    """Of processes whose days are gone: else they would be said to have taken no windows, because these are gone."""
    connection.execute(delete(process_states).where(process_states.c.seen_unix_ns < before_ns))
