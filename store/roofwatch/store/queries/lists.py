"""``nodes`` and ``processes``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, case, func, select

from roofwatch.model.answer import MfuSum, ratio
from roofwatch.store import schema
from roofwatch.store.filter import Filter
from roofwatch.store.queries.coverage import lost, mfu_by
from roofwatch.store.queries.scope import among, devices_of, windows_of

_END = schema.windows.c.start_unix_ns + schema.windows.c.duration_ns


def nodes(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """One row a host, most device time first; over all its boots."""
    w = schema.windows.c
    query = (
        windows_of(
            f,
            schema.nodes.c.host,
            func.max(_END),
            func.count(w.process_id.distinct()),
            func.count(),
            func.sum(w.device_time_ns),
        )
        .group_by(schema.nodes.c.host)
        .order_by(func.sum(w.device_time_ns).desc(), schema.nodes.c.host)
    )
    found = connection.execute(query.limit(limit) if limit else query).all()
    on = _devices_by(connection, f, "host")
    versions = _node_versions(connection, f)
    drops = _agent_drops(connection, f)
    used = mfu_by(connection, f, schema.nodes.c.host)
    return {
        "rows": [
            {
                "node": host,
                "last_seen_unix_ns": last,
                "processes": processes_,
                "devices": on[host].count,
                "device": on[host].model,
                "windows": count,
                "device_time_ns": int(device_time),
                "busy_share": on[host].busy_share,
                **used.get(host, MfuSum()).as_json(),
                "versions": versions[host],
                "agent_drops": drops[host],
            }
            for host, last, processes_, count, device_time in found
        ]
    }


def processes(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """One row a process, the last seen first."""
    w, p = schema.windows.c, schema.processes.c
    known = and_(w.lost_in_ns.is_not(None), w.represents_ns > 0)
    query = (
        windows_of(
            f,
            p.id,
            schema.nodes.c.host,
            p.pid,
            p.model,
            p.owner,
            p.job,
            p.container,
            p.rank,
            p.world_size,
            p.versions,
            func.count().label("windows"),
            func.max(_END).label("last"),
            func.sum(w.steps).label("steps"),
            func.sum(w.device_time_ns).label("device_time_ns"),
            func.sum(case((known, lost()))).label("lost_ns"),
            func.sum(case((known, w.represents_ns))).label("represented_ns"),
        )
        .group_by(p.id, schema.nodes.c.host)
        .order_by(func.max(_END).desc(), p.id)
    )
    found = connection.execute(query.limit(limit) if limit else query).all()
    on = _devices_by(connection, f, "process_id")
    marks = _labels(connection, {row.id for row in found})
    used = mfu_by(connection, f, p.id)
    return {"rows": [_process(row, on[row.id], marks[row.id], used.get(row.id, MfuSum())) for row in found]}


def _process(row: Any, on: _Devices, labels: dict[str, str], used: MfuSum) -> dict[str, Any]:
    return {
        "process": f"{row.id:016x}",
        "node": row.host,
        "pid": row.pid,
        "model": row.model,
        "user": row.owner,
        "job": row.job,
        "container": row.container,
        "rank": row.rank,
        "world_size": row.world_size,
        "device": on.model,
        "devices": on.count,
        "windows": row.windows,
        "last_window_unix_ns": row.last,
        "steps": _int(row.steps),
        "device_time_ns": int(row.device_time_ns),
        "busy_share": on.busy_share,
        **used.as_json(),
        "lost_ns": _int(row.lost_ns),
        "represented_ns": _int(row.represented_ns),
        "lost_share": None if row.lost_ns is None else ratio(int(row.lost_ns), int(row.represented_ns)),
        "versions": json.loads(row.versions),
        "labels": labels,
    }


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


@dataclass(slots=True)
class _Devices:
    """The devices of a node or process."""

    models: set[str] = field(default_factory=set)
    identities: set[Hashable] = field(default_factory=set)
    nameless: set[int] = field(default_factory=set)  # processes whose devices have no uuid
    est_busy_ns: float = 0.0
    est_span_ns: float = 0.0

    @property
    def model(self) -> str | None:
        return ", ".join(sorted(self.models)) or None

    @property
    def count(self) -> int | None:
        """How many; None where several processes have devices without a uuid, which may be the same ones."""
        return len(self.identities) if len(self.nameless) < 2 else None

    @property
    def busy_share(self) -> float | None:
        return ratio(self.est_busy_ns, self.est_span_ns)


def _devices_by(connection: Connection, f: Filter, owner: str) -> dict[Any, _Devices]:
    """Devices by host or process. A device is its uuid; without one, a CPU is its host's, another its process's."""
    c = devices_of(f).c
    by = (c[owner], c.host, c.process_id, c.vendor, c.model, c.uuid, c.ordinal)
    query = select(*by, func.sum(c.busy_ns * c.weight), func.sum(c.span_ns * c.weight)).group_by(*by)
    found: dict[Any, _Devices] = defaultdict(_Devices)
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
    query = windows_of(f, schema.nodes.c.host, schema.processes.c.versions).distinct()
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for host, text in connection.execute(query):
        for component, version in json.loads(text).items():
            found[host][component].add(version)
    return defaultdict(dict, {h: {c: sorted(v) for c, v in sorted(by.items())} for h, by in found.items()})


def _agent_drops(connection: Connection, f: Filter) -> dict[str, dict[str, int]]:
    """Windows that the agents of a host dropped, by reason, as told in the filter's time."""
    d, s, a = schema.agent_drops.c, schema.segments.c, schema.agents.c
    query = (
        select(schema.nodes.c.host, d.reason, func.sum(d.count))
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


def _labels(connection: Connection, owners: set[int]) -> dict[int, dict[str, str]]:
    c = schema.labels.c
    query = select(c.owner_id, c.key, c.value).order_by(c.key)
    found: dict[int, dict[str, str]] = defaultdict(dict)
    for owner, key, value in connection.execute(among(query, c.owner_id, owners)):
        if owner in owners:
            found[owner][key] = value
    return found
