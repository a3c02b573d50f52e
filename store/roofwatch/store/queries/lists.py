"""``nodes``, and the devices of nodes and processes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, func, select

from roofwatch.model.answer import ratio
from roofwatch.store import schema
from roofwatch.store.filter import Filter
from roofwatch.store.queries.coverage import MFU, mfu_of
from roofwatch.store.queries.plan import plan
from roofwatch.store.queries.plan_rows import rows_of
from roofwatch.store.rollup_sources import aggregates, total


def nodes(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """One row a host, most device time first; over all its boots."""
    names = ("last_unix_ns", "windows", *MFU)
    rows = rows_of(plan(connection, f), f, schema.window_sums, names=("device_time_ns", *names))
    c = rows.c
    device_time = total(c.device_time_ns).label("device_time_ns")
    query = (
        select(c.host, device_time, func.count(c.process_id.distinct()).label("processes"), *aggregates(rows, names))
        .group_by(c.host)
        .order_by(device_time.desc(), c.host)
    )
    found = connection.execute(query.limit(limit) if limit else query).all()
    on = devices_by(connection, f, "host")
    versions = _node_versions(connection, f)
    drops = _agent_drops(connection, f)
    return {
        "rows": [
            {
                "node": row.host,
                "last_seen_unix_ns": int(row.last_unix_ns),
                "processes": row.processes,
                "devices": on[row.host].count,
                "device": on[row.host].model,
                "windows": int(row.windows),
                "device_time_ns": int(row.device_time_ns),
                "busy_share": on[row.host].busy_share,
                **mfu_of([getattr(row, name) for name in MFU]).as_json(),
                "versions": versions[row.host],
                "agent_drops": drops[row.host],
            }
            for row in found
        ]
    }


@dataclass(slots=True)
class Devices:
    """The devices of a node or process."""

    models: set[str] = field(default_factory=set)
    identities: set[Hashable] = field(default_factory=set)
    nameless: set[int] = field(default_factory=set)  # processes whose devices have no uuid
    est_busy_ns: float = 0.0
    est_span_ns: float = 0.0

    @property
    def model(self) -> str | None:
        """Their models, comma between."""
        return ", ".join(sorted(self.models)) or None

    @property
    def count(self) -> int | None:
        """How many; None where several processes have devices without a uuid, which may be the same ones."""
        return len(self.identities) if len(self.nameless) < 2 else None

    @property
    def busy_share(self) -> float | None:
        """The share of their time with work on them."""
        return ratio(self.est_busy_ns, self.est_span_ns)


def devices_by(connection: Connection, f: Filter, owner: str) -> dict[Any, Devices]:
    """Devices by host or process. A device is its uuid; without one, a CPU is its host's, another its process's."""
    c = rows_of(plan(connection, f), f, schema.device_sums).c
    by = (c[owner], c.host, c.process_id, c.vendor, c.model, c.uuid, c.ordinal)
    query = select(*by, total(c.est_busy_ns), total(c.est_span_ns)).group_by(*by)
    found: dict[Any, Devices] = defaultdict(Devices)
    for key, host, process, vendor, model, uuid, ordinal, busy, span in connection.execute(query):
        on = found[key]
        on.models.add(model)
        on.identities.add(uuid or ((host, model) if vendor == "cpu" else (process, model, ordinal)))
        if not uuid and vendor != "cpu":
            on.nameless.add(process)
        on.est_busy_ns += busy
        on.est_span_ns += span
    return found


def _node_versions(connection: Connection, f: Filter) -> dict[str, dict[str, list[str]]]:
    """Every version of every component that the processes of a host ran with."""
    rows, p = rows_of(plan(connection, f), f, schema.window_sums, names=()), schema.processes.c
    query = select(rows.c.host, p.versions).join(rows, rows.c.process_id == p.id).distinct()
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for host, text in connection.execute(query):
        for component, version in json.loads(text).items():
            found[host][component].add(version)
    return defaultdict(dict, {h: {c: sorted(v) for c, v in sorted(by.items())} for h, by in found.items()})


def _agent_drops(connection: Connection, f: Filter) -> dict[str, dict[str, int]]:
    """Windows that the agents of a host dropped, by reason, as told in the filter's time."""
    d, s, a = schema.agent_drops.c, schema.segments.c, schema.agents.c
    query = (
        select(schema.nodes.c.host, d.reason, total(d.count))
        .join(schema.segments, and_(s.agent_id == d.agent_id, s.sequence == d.sequence))
        .join(schema.agents, a.id == d.agent_id)
        .join(schema.nodes, schema.nodes.c.id == a.node_id)
        .group_by(schema.nodes.c.host, d.reason)
        .order_by(d.reason)
    )
    if f.since_unix_ns is not None:
        query = query.where(s.received_unix_ns >= f.since_unix_ns)
    if f.until_unix_ns is not None:
        query = query.where(s.received_unix_ns < f.until_unix_ns)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for host, reason, count in connection.execute(query):
        found[host][reason] = int(count)
    return found
