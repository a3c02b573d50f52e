"""``windows``."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, select

from roofwatch.model.answer import MfuSum, ratio
from roofwatch.store import schema
from roofwatch.store.days import came
from roofwatch.store.filter import Filter
from roofwatch.store.queries.coverage import lost, lost_noise, mfu_by
from roofwatch.store.queries.process_list import BUDGET
from roofwatch.store.queries.scope import among, devices_of, windows_of

COST = (
    "close_path", "open_ns", "quiesce_ns", "close_ns", "save_ns", "free_ns", "base_step_ns", "longest_step_ns",
    "lost_in_ns", "lost_after_ns", "lost_ns", "parse_cpu_ns",
)  # fmt: skip


def windows(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """One row a window, the latest first."""
    w, p = schema.windows.c, schema.processes.c
    query = windows_of(
        f,
        w.id, w.uid, w.start_unix_ns, p.id.label("process"), schema.nodes.c.host, p.pid, p.model, w.duration_ns,
        w.steps, w.represents_ns, w.trigger, w.collector, w.shapes_recorded, w.events_read, w.device_records,
        w.device_time_ns, w.has_host_events, w.linked_ns, w.classifiable_ns, w.classified_ns, w.first_step,
        w.close_path, w.open_ns, w.quiesce_ns, w.close_ns, w.save_ns, w.free_ns, w.base_step_ns, w.longest_step_ns,
        w.lost_in_ns, w.lost_after_ns, w.parse_cpu_ns, lost().label("lost_ns"), *(w[name] for name in BUDGET),
    ).order_by(w.start_unix_ns.desc(), came(w.id).desc())  # fmt: skip
    found = connection.execute(query.limit(limit) if limit else query).all()
    shown = {row.id for row in found}
    on = _devices_of_windows(connection, f, shown)
    drops = _window_drops(connection, f, shown)
    used = mfu_by(connection, f, w.id, shown)
    noise = lost_noise(connection, f, {row.process for row in found})
    return {
        "rows": [
            {
                **_window(r, on.get(r.id, ([], 0, 0)), drops[r.id], used.get(r.id, MfuSum())),
                "lost_noise_ns": round(noise[r.process]) if r.process in noise else None,
            }
            for r in found
        ]
    }


def _window(row: Any, on: tuple[list[str], int, int], dropped: dict[str, int], used: MfuSum) -> dict[str, Any]:
    models, busy, span = on
    linked = ratio(row.linked_ns, row.device_time_ns) if row.has_host_events else None
    return {
        "uid": row.uid.hex(),
        "start_unix_ns": row.start_unix_ns or None,  # 0: an imported trace without a clock base
        "process": f"{row.process:016x}",
        "node": row.host,
        "pid": row.pid,
        "model": row.model,
        "device": ", ".join(models) or None,
        "duration_ns": row.duration_ns,
        "steps": row.steps,
        "represents_ns": row.represents_ns,
        "trigger": row.trigger,
        "collector": row.collector,
        "shapes_recorded": bool(row.shapes_recorded),
        "events_read": row.events_read,
        "device_records": row.device_records,
        "device_time_ns": row.device_time_ns,
        "busy_ns": busy,
        "span_ns": span,
        "linked_share": linked,
        "classified_share": ratio(row.classified_ns, row.classifiable_ns),
        "first_step": row.first_step,
        **used.as_json(),
        **{name: getattr(row, name) for name in (*COST, *BUDGET)},
        "dropped": dropped,
    }


def _devices_of_windows(connection: Connection, f: Filter, shown: set[int]) -> dict[int, tuple[list[str], int, int]]:
    """Device models, busy and span time of each window."""
    c = devices_of(f).c
    query = select(c.window_id, c.model, c.busy_ns, c.span_ns)
    found: dict[int, tuple[list[str], int, int]] = {}
    for number, model, busy, span in connection.execute(among(query, c.window_id, shown)):
        if number in shown:
            models, busy_before, span_before = found.get(number, ([], 0, 0))
            found[number] = (sorted({*models, model}), busy_before + busy, span_before + span)
    return found


def _window_drops(connection: Connection, f: Filter, shown: set[int]) -> dict[int, dict[str, int]]:
    c = schema.window_drops.c
    query = windows_of(f, c.window_id, c.reason, c.count).join(schema.window_drops, c.window_id == schema.windows.c.id)
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for number, reason, count in connection.execute(among(query.order_by(c.reason), c.window_id, shown)):
        if number in shown:
            found[number][reason] = count
    return found
