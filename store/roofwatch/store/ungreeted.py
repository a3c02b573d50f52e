"""Boots of agents that never said hello: killed before they could, and the next boot sends what they sealed."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from roofwatch.store import bulk, schema
from roofwatch.store.identity import agent_id
from roofwatch.store.unpack import Unpacked

KNOWN_MOST = 100_000
_NAMES = ("id", "name", "boot", "version", "node_id", "seen_unix_ns")


def write(connection: Connection, segments: Iterable[Unpacked], known: set[int]) -> None:
    """Write those of segments as the boot of the same agent that was seen last; else their drops would be of no node.

    ``known`` are boots that are there.
    """
    new = {agent_id(work.agent, work.boot): work for work in segments}
    for number in known.intersection(new):
        del new[number]
    if not new:
        return
    a = schema.agents.c
    there = set(connection.execute(select(a.id).where(a.id.in_(new))).scalars())
    for number, work in new.items():
        if number in there:
            continue
        seen = select(a.version, a.node_id, a.seen_unix_ns).where(a.name == work.agent)
        same = connection.execute(seen.order_by(a.seen_unix_ns.desc()).limit(1)).first()
        if same is not None:
            row = (number, work.agent, work.boot, *same)
            bulk.insert(connection, schema.agents, _NAMES, row, "ON CONFLICT DO NOTHING")
    if len(known) > KNOWN_MOST:
        known.clear()
    known.update(new)
