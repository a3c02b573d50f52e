"""``processes``: what their windows tell, how they stand with their agents, and where they run."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from roofwatch.model import resource
from roofwatch.model.answer import COST_STEPS_LEAST, ratio
from roofwatch.store import schema
from roofwatch.store.filter import Filter
from roofwatch.store.queries.coverage import MFU, lost_noise, mfu_of
from roofwatch.store.queries.lists import Devices, devices_by
from roofwatch.store.queries.plan import plan
from roofwatch.store.queries.plan_rows import rows_of
from roofwatch.store.queries.scope import among, device_matches, owners, times
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, bucket_of
from roofwatch.store.rollup_sources import aggregates

SUMS = ("windows", "steps", "device_time_ns", "lost_ns", "cost_represented_ns", "cost_windows", *MFU)
# Of a window and of a process alike: ``BudgetState``. Null where the agent did not tell, as earlier ones do not.
BUDGET = (
    "interval_reason", "budget_share", "hard_stop_share", "spent_share", "balance_ns", "charged_ns", "charge_measured",
    "interval_ns", "event_cap",
)  # fmt: skip
_P = schema.processes.c
_OWN = (
    _P.id, _P.pid, _P.start_unix_ns, _P.model, _P.owner, _P.job, _P.container, _P.rank, _P.local_rank, _P.world_size,
    _P.versions,
)  # fmt: skip


def processes(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """One row a process, the last seen first; those that took no window in the filter's time too, where told of."""
    found = [*_with_windows(connection, f, limit), *_without(connection, f, limit)]
    found.sort(key=lambda row: (-row.last, row.id))
    found = found[:limit] if limit else found
    ids = {row.id for row in found}
    on = devices_by(connection, f, "process_id")
    marks, states = _labels(connection, ids), _states(connection, ids)
    noise = lost_noise(connection, f, ids)
    return {
        "rows": [
            {
                **_described(row, marks[row.id]),
                **_figures(row, on.get(row.id), noise.get(row.id)),
                **_standing(states.get(row.id)),
            }
            for row in found
        ]
    }


def _with_windows(connection: Connection, f: Filter, limit: int) -> list[Any]:
    rows = rows_of(plan(connection, f), f, schema.window_sums, names=("last_unix_ns", *SUMS))
    last = func.max(rows.c.last_unix_ns).label("last")
    query = (
        select(*_OWN, rows.c.host, last, *aggregates(rows, SUMS))
        .join(rows, rows.c.process_id == _P.id)
        .group_by(_P.id, rows.c.host)
        .order_by(last.desc(), _P.id)
    )
    return list(connection.execute(query.limit(limit) if limit else query))


def _without(connection: Connection, f: Filter, limit: int) -> list[Any]:
    """Processes of which agents told in the filter's time, and that took no window in it; none where devices matter."""
    if device_matches(f):
        return []
    s, r, chosen = schema.process_states.c, schema.rollups.c, plan(connection, f)
    last = s.seen_unix_ns.label("last")
    # The very rows that the others are of: of what is old only a day's sums are there, of a cut hour its windows.
    took = select(rows_of(chosen, f, schema.window_sums, names=()).c.process_id)
    # What is left out because the filter cuts it may hold windows of a process: then nobody knows.
    cut = {bucket_of(since, grain) for since, _ in chosen.left_out for grain in (HOUR_S, DAY_S)}
    unknown = select(r.process_id).where(~r.finer, r.bucket_unix_ns.in_(cut))
    query = (
        select(*_OWN, schema.nodes.c.host, last)
        .select_from(schema.process_states)
        .join(schema.processes, _P.id == s.process_id)
        .join(schema.nodes, schema.nodes.c.id == _P.node_id)
        .where(*owners(f), *times(s.seen_unix_ns, f.since_unix_ns, f.until_unix_ns))
        .where(_P.id.not_in(took), *([_P.id.not_in(unknown)] if cut else []))
        .order_by(last.desc(), _P.id)
    )
    return list(connection.execute(query.limit(limit) if limit else query))


def _described(row: Any, labels: dict[str, str]) -> dict[str, Any]:
    """Who it is and where it runs."""
    versions = json.loads(row.versions)
    return {
        "process": f"{row.id:016x}",
        "node": row.host,
        "pid": row.pid,
        "start_unix_ns": row.start_unix_ns,
        "model": row.model,
        "user": row.owner,
        "job": row.job,
        "rank": row.rank,
        "local_rank": row.local_rank,
        "world_size": row.world_size,
        "container": row.container,
        "pod": labels.get(resource.POD_NAME),
        "namespace": labels.get(resource.NAMESPACE),
        "pod_uid": labels.get(resource.POD_UID),
        "versions": versions,
        "labels": labels,
        "resource": resource.resource(
            host=row.host, pid=row.pid, start_unix_ns=row.start_unix_ns, user=row.owner, container=row.container,
            model=row.model, versions=versions, labels=labels,
        ),
    }  # fmt: skip


def _figures(row: Any, on: Devices | None, noise: float | None) -> dict[str, Any]:
    """What its windows tell."""
    took = hasattr(row, "windows")
    lost_ns, represented_ns = (row.lost_ns, row.cost_represented_ns) if took else (None, None)
    enough = took and (row.steps or 0) >= COST_STEPS_LEAST
    return {
        "device": None if on is None else on.model,
        "devices": None if on is None else on.count,
        "windows": int(row.windows) if took else 0,
        "last_window_unix_ns": int(row.last) if took else None,
        "steps": _int(row.steps) if took else None,
        "device_time_ns": int(row.device_time_ns) if took else 0,
        "busy_share": None if on is None else on.busy_share,
        **mfu_of([getattr(row, name) if took else None for name in MFU]).as_json(),
        "lost_ns": _int(lost_ns),
        "represented_ns": _int(represented_ns),
        "lost_noise_ns": None if noise is None or not took else round(noise * math.sqrt(row.cost_windows or 0)),
        "lost_share": ratio(int(lost_ns), int(represented_ns or 0)) if lost_ns is not None and enough else None,
    }


def _standing(row: Any) -> dict[str, Any]:
    """How it stands with its agent: what windows may cost and did, the interval and why, what was not taken."""
    return {
        **{name: None if row is None else getattr(row, name) for name in BUDGET},
        "skipped": None if row is None else json.loads(row.skipped),
        "registered_unix_ns": None if row is None else row.since_unix_ns,
        "told_unix_ns": None if row is None else row.seen_unix_ns,
    }


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def _states(connection: Connection, wanted: Collection[int]) -> Mapping[int, Any]:
    t = schema.process_states
    query = among(select(t), t.c.process_id, wanted)
    return {row.process_id: row for row in connection.execute(query) if row.process_id in wanted}


def _labels(connection: Connection, wanted: Collection[int]) -> dict[int, dict[str, str]]:
    c = schema.labels.c
    query = select(c.owner_id, c.key, c.value).order_by(c.key)
    found: dict[int, dict[str, str]] = defaultdict(dict)
    for owner, key, value in connection.execute(among(query, c.owner_id, wanted)):
        if owner in wanted:
            found[owner][key] = value
    return found
