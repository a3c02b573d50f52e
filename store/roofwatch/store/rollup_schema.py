"""The tables of sums over an hour or a day of one process: rollups. ``grain`` is their length in seconds.

Exact: an answer from sums equals the answer from the windows (``rollup.py``). A piece is a (grain, bucket, process);
``rollups`` says of each piece with windows whether its sums hold all of them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Column, Index, LargeBinary, SmallInteger, Table

from roofwatch.store.columns import Text, key, metadata, text, whole

HOUR_S, DAY_S = 3600, 86_400
SECOND_NS = 1_000_000_000


def bucket_of(unix_ns: int, grain: int) -> int:
    """The beginning of the hour or day of a time."""
    return unix_ns - unix_ns % (grain * SECOND_NS)


_BY_GRAIN: dict[str, Any] = {"postgresql_partition_by": "LIST (grain)"}  # and by time: postgres_sums.py


def _piece() -> tuple[Column[int], ...]:
    return key("grain"), key("bucket_unix_ns"), key("process_id")


rollups = Table(
    "rollups",
    metadata,
    *_piece(),
    Column("stale", Boolean, nullable=False),  # the sums lack a window: ask what they are made of
    Column("finer", Boolean, nullable=False),  # what they are made of is still there
    Index("rollups_due", "stale", "grain", "finer", "bucket_unix_ns"),
    sqlite_with_rowid=False,
)

# Rows with a rowid: a block is larger than what a table without one should hold.
kernel_sums = Table(
    "kernel_sums",
    metadata,
    *_piece(),
    key("device_id"),
    whole("rows"),
    Column("sums", LargeBinary, nullable=False),  # blocks.SUM
    Column("histograms", LargeBinary, nullable=False),
    **_BY_GRAIN,
)

# Sums of windows by the set of their devices: what the ledger, MFU, cost and the conditions of a diagnosis need.
ADDED = (
    "windows", "device_records", "device_time_ns", "backlog_ns", "classifiable_ns", "classified_ns", "named_ns",
    "model_known_ns", "model_flops_high", "model_flops_low", "compared_ns", "disagreed_ns", "layout_of_ns",
    "host_device_time_ns", "linked_ns", "sampled_ns", "represented_ns", "graph_ns", "graph_attributed_ns",
    "mfu_peak_ns", "mfu_span_ns", "mfu_model_ns", "mfu_known_ns", "mfu_left_out_ns", "cost_windows", "early_windows",
    "shapeless_windows", "opless_windows", "events_read",
)  # fmt: skip
ADDED_IF_KNOWN = (
    "steps", "layout_ns", "lost_ns", "cost_represented_ns", "python_events", "waits", "wait_ns", "padding_batches",
    "padding_real_tokens", "padding_padded_tokens", "padding_real_squared", "padding_padded_squared",
)  # fmt: skip
GREATEST = ("last_unix_ns", "longest_wait_ns")

window_sums = Table(
    "window_sums",
    metadata,
    *_piece(),
    key("devices_id"),
    *(whole(name) for name in ADDED),
    *(whole(name, null=True) for name in (*ADDED_IF_KNOWN, *GREATEST)),
    sqlite_with_rowid=False,
    **_BY_GRAIN,
)

drop_sums = Table(
    "drop_sums",
    metadata,
    *_piece(),
    key("devices_id"),
    Column("reason", Text, primary_key=True),
    whole("count"),
    sqlite_with_rowid=False,
    **_BY_GRAIN,
)

# Of each time the sampled sum and what it stands for.
TIMES = ("span_ns", "busy_ns", "exposed_copy_ns", "exposed_communication_ns")
device_sums = Table(
    "device_sums",
    metadata,
    *_piece(),
    key("device_id"),
    whole("windows"),
    *(whole(f"{prefix}{name}") for name in TIMES for prefix in ("", "est_")),
    sqlite_with_rowid=False,
    **_BY_GRAIN,
)

cause_sums = Table(
    "cause_sums",
    metadata,
    *_piece(),
    key("device_id"),
    Column("cause", Text, primary_key=True),
    *(whole(name) for name in ("total_ns", "est_ns", "count", "longest_ns")),
    text("example", null=True),
    *(whole(name) for name in ("startup_ns", "startup_est_ns", "startup_count", "steady_longest_ns")),
    text("steady_example", null=True),
    sqlite_with_rowid=False,
    **_BY_GRAIN,
)
ROLLED = (kernel_sums, window_sums, drop_sums, device_sums, cause_sums)

# Sums of hours as plain rows, for dashboards in SQL (``kernel_hours.py``): of a node, what roofs rest on, and a bound.
kernel_hours = Table(
    "kernel_hours",
    metadata,
    key("bucket_unix_ns"),
    key("node_id"),
    key("signature_id"),
    key("peaks_id"),
    *(whole(name) for name in ("calls", "total_ns", "est_ns", "min_ns", "max_ns")),
    Column("bound", SmallInteger, primary_key=True, autoincrement=False),  # last: Postgres would fill up to eight bytes
    # One kernel of all nodes. On SQLite an index of such a table holds its whole key, and would double it.
    Index("kernel_hours_signature", "signature_id", "bucket_unix_ns").ddl_if(dialect="postgresql"),
    sqlite_with_rowid=False,
    postgresql_partition_by="RANGE (bucket_unix_ns)",
)
