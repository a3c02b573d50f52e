"""Views for who asks in SQL: names instead of ids, texts instead of codes, and hours that are not over from windows.

They hold nothing, so every upgrade drops them and makes them anew: Postgres refuses to change a column that a view
shows. What one of them tells changes with a new revision only, as a column does. Times are Unix nanoseconds, ``est_``
is what sampled time stands for; sums over any rows are right, as rows never overlap.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, and_, literal, select, true, union_all

from roofwatch.store.rollup_schema import HOUR_S, SECOND_NS, TIMES
from roofwatch.store.rollup_sources import cause_rows, device_rows, lost, piece_rows, weight
from roofwatch.store.schema import (
    BOUNDS,
    cause_sums,
    device_sums,
    devices,
    kernel_hours,
    nodes,
    processes,
    rollups,
    roofs,
    signatures,
    texts,
    window_devices,
    windows,
)

_OF_PROCESS = (processes.c.job, processes.c.model, processes.c.rank, processes.c.pid)
_TOLD = (
    "id", "process_id", "start_unix_ns", "duration_ns", "steps", "represents_ns", "trigger", "collector",
    "events_read", "device_time_ns", "linked_ns", "backlog_ns", "classifiable_ns", "classified_ns", "named_ns",
    "close_path", "open_ns", "quiesce_ns", "close_ns", "save_ns", "free_ns", "parse_cpu_ns", "base_step_ns",
    "longest_step_ns", "span_ns", "est_span_ns", "padding_real_tokens", "padding_padded_tokens",
    "charged_ns", "spent_share", "budget_share", "interval_ns", "interval_reason",
)  # fmt: skip
_CAUSES = (
    "total_ns", "est_ns", "count", "longest_ns", "startup_ns", "startup_est_ns", "startup_count",
)  # fmt: skip


def _windows() -> Select[Any]:
    """A row a window."""
    query = select(nodes.c.host, *_OF_PROCESS, *(windows.c[name] for name in _TOLD), lost().label("lost_ns"))
    return query.join(processes, processes.c.id == windows.c.process_id).join(nodes, nodes.c.id == processes.c.node_id)


def _devices() -> Select[Any]:
    """A row a window and device."""
    d = window_devices.c
    state = ("memory_used_bytes", "memory_peak_bytes", "clock_hz", "clock_max_hz", "power_w", "power_limit_w",
             "temperature_c", "throttle", "ecc_corrected", "ecc_uncorrected")  # fmt: skip
    query = select(
        nodes.c.host, *_OF_PROCESS, windows.c.process_id, windows.c.start_unix_ns, devices.c.vendor,
        devices.c.model.label("device_model"), devices.c.uuid, devices.c.ordinal, devices.c.memory_bytes,
        weight().label("weight"), *(d[name] for name in TIMES), *(d[name] for name in state),
    ).select_from(windows)  # fmt: skip
    return (
        query.join(window_devices, d.window_id == windows.c.id)
        .join(devices, devices.c.id == d.device_id)
        .join(processes, processes.c.id == windows.c.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
    )


def _hours(table: Any, rows: Any, names: tuple[str, ...]) -> Any:
    """Rows of a table of sums for hours that are summed up, and of windows for the others."""
    r, w = rollups.c, windows.c
    summed = piece_rows(table, [r.grain == HOUR_S, ~r.stale]).add_columns(table.c.bucket_unix_ns)  # which partitions
    end = r.bucket_unix_ns + HOUR_S * SECOND_NS
    within = and_(r.process_id == w.process_id, w.start_unix_ns >= r.bucket_unix_ns, w.start_unix_ns < end)
    others = rows([]).join(rollups, within).where(r.grain == HOUR_S, r.stale).add_columns(r.bucket_unix_ns)
    parts = []
    for part in (summed, others):
        s = part.subquery()
        of = select(processes.c.id, *_OF_PROCESS).subquery()
        told = (of.c[column.name] for column in _OF_PROCESS)
        parts.append(
            select(
                s.c.bucket_unix_ns.label("hour_unix_ns"), s.c.host, *told, s.c.process_id, s.c.vendor,
                s.c.model.label("device_model"), s.c.uuid, s.c.ordinal, *(s.c[name] for name in names),
            ).join(of, of.c.id == s.c.process_id)
        )  # fmt: skip
    return union_all(*parts)


def _kernels() -> Select[Any]:
    """What a signature is, and its roof on chips with one set of peaks: the attainable time of a call."""
    s = signatures.c
    chips = select(devices.c.peaks_id, devices.c.vendor, devices.c.model).distinct().subquery()
    kernel, op, module = (texts.alias(name) for name in ("kernel", "op", "module"))
    query = select(
        s.id.label("signature_id"), chips.c.peaks_id, chips.c.vendor, chips.c.model.label("device_model"),
        kernel.c.value.label("kernel"), op.c.value.label("op"), module.c.value.label("module"), s.kind, s.phase,
        s.shapes, s.dtypes, s.flops, s.bytes, roofs.c.roof_ns,
    )  # fmt: skip
    return (
        query.select_from(signatures.join(chips, true()))
        .join(kernel, kernel.c.id == s.kernel_id)
        .outerjoin(op, op.c.id == s.op_id)
        .outerjoin(module, module.c.id == s.module_id)
        .outerjoin(roofs, and_(roofs.c.signature_id == s.id, roofs.c.peaks_id == chips.c.peaks_id))
    )


def _bounds() -> Any:
    """The codes of bounds."""
    return union_all(
        *(select(literal(code).label("code"), literal(b.value).label("bound")) for code, b in BOUNDS.items())
    )


def _kernel_hours() -> Select[Any]:
    """A row of ``kernel_hours`` with what the kernel is; ``roof_ns`` is the roof time of all calls."""
    k, known, bounds = kernel_hours.c, _kernels().subquery(), _bounds().subquery()
    told = [column for column in known.c if column.name not in {"signature_id", "peaks_id", "roof_ns"}]
    query = select(
        k.bucket_unix_ns.label("hour_unix_ns"), nodes.c.host, *told, bounds.c.bound, k.signature_id, k.calls,
        k.total_ns, k.est_ns, k.min_ns, k.max_ns, (known.c.roof_ns * k.calls).label("roof_ns"),
    ).select_from(kernel_hours)  # fmt: skip
    return (
        query.join(nodes, nodes.c.id == k.node_id)
        .join(known, and_(known.c.signature_id == k.signature_id, known.c.peaks_id == k.peaks_id))
        .join(bounds, bounds.c.code == k.bound)
    )


def _statements() -> dict[str, Any]:
    times = tuple(f"{prefix}{name}" for name in TIMES for prefix in ("", "est_"))
    return {
        "dashboard_windows": _windows(),
        "dashboard_devices": _devices(),
        "dashboard_device_hours": _hours(device_sums, device_rows, ("windows", *times)),
        "dashboard_idle_hours": _hours(cause_sums, cause_rows, ("cause", *_CAUSES)),
        "dashboard_kernel_hours": _kernel_hours(),
        "dashboard_kernels": _kernels(),
        "dashboard_bounds": _bounds(),
    }


def drop(connection: Connection) -> None:
    """Before the tables change."""
    for name in _statements():
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def create(connection: Connection) -> None:
    """Once the tables are this version's."""
    for name, query in _statements().items():
        text = query.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {str(text).replace('%%', '%')}")
