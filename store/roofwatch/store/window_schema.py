"""The tables of windows and what they are made of: devices, causes, collectives, graphs, kernels.

On Postgres they are partitioned by the day that is in a window's number (``days.py``).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    Sequence,
    SmallInteger,
    Table,
    UniqueConstraint,
)

from roofwatch.store.columns import Int, Text, key, metadata, text, whole

_BY_WINDOW = "RANGE (window_id)"
serials = Sequence("windows_id_seq", metadata=metadata)  # of windows on Postgres; SQLite counts by itself


def budget_columns() -> tuple[Column[Any], ...]:
    """``BudgetState``, in its order: the account of a process's job, and the schedule that follows. Null: not told."""
    return (
        text("interval_reason", null=True),
        Column("budget_share", Double, nullable=True),
        Column("hard_stop_share", Double, nullable=True),
        Column("spent_share", Double, nullable=True),
        whole("balance_ns", null=True),
        whole("charged_ns", null=True),
        Column("charge_measured", Boolean, nullable=True),
        whole("interval_ns", null=True),
        whole("event_cap", null=True),
    )


windows = Table(
    "windows",
    metadata,
    Column("id", Int, primary_key=True, autoincrement=False),
    Column("uid", LargeBinary(16), nullable=False),
    whole("process_id"),
    whole("start_unix_ns"),
    whole("duration_ns"),
    whole("steps", null=True),
    whole("represents_ns", null=True),
    text("trigger"),
    text("collector"),
    Column("shapes_recorded", Boolean, nullable=False),
    whole("events_read"),
    whole("device_records"),
    whole("device_time_ns"),
    Column("has_host_events", Boolean, nullable=False),
    whole("linked_ns"),
    whole("backlog_ns"),
    whole("classifiable_ns"),
    whole("classified_ns"),
    whole("named_ns"),
    text("close_path", null=True),
    whole("open_ns", null=True),
    whole("quiesce_ns", null=True),
    whole("close_ns", null=True),
    whole("save_ns", null=True),
    whole("free_ns", null=True),
    whole("base_step_ns", null=True),
    whole("longest_step_ns", null=True),
    whole("lost_in_ns", null=True),
    whole("lost_after_ns", null=True),
    whole("parse_cpu_ns", null=True),
    whole("padding_batches", null=True),
    whole("padding_real_tokens", null=True),
    whole("padding_padded_tokens", null=True),
    whole("padding_real_squared", null=True),
    whole("padding_padded_squared", null=True),
    whole("first_step", null=True),
    whole("model_ns", default=0),
    whole("model_known_ns", default=0),
    whole("model_flops", default=0),
    whole("model_peak_ns", default=0),
    whole("compared_ns", default=0),
    whole("disagreed_ns", default=0),
    whole("layout_ns", null=True),
    whole("python_events", null=True),
    whole("waits", null=True),
    whole("wait_ns", null=True),
    whole("longest_wait_ns", null=True),
    text("padding_lengths", null=True),  # JSON: [[length, sequences], …], ascending
    text("padding_shapes", null=True),  # JSON: [[sequences, padded length, batches], …], ascending
    whole("padding_coarsened", null=True),
    whole("padding_unread", null=True),
    # Sums over the window's devices and graphs, and which devices these are: else every answer would add them up.
    whole("devices_id", default=0),
    whole("span_ns", default=0),
    whole("est_span_ns", default=0),
    whole("graph_ns", default=0),
    whole("graph_attributed_ns", default=0),
    *budget_columns(),
    Index("windows_process_start", "process_id", "start_unix_ns"),
    Index("windows_start", "start_unix_ns"),
    # Postgres makes a text unique within a partition only: there each has an index of its own (postgres_partitions.py).
    UniqueConstraint("uid").ddl_if(dialect="sqlite"),
    Index(
        "windows_start_brin", "start_unix_ns", postgresql_using="brin", postgresql_with={"pages_per_range": 16}
    ).ddl_if(dialect="postgresql"),
    postgresql_partition_by="RANGE (id)",
)

window_drops = Table(
    "window_drops",
    metadata,
    key("window_id"),
    Column("reason", Text, primary_key=True),
    whole("count"),
    sqlite_with_rowid=False,
    postgresql_partition_by=_BY_WINDOW,
)

window_devices = Table(
    "window_devices",
    metadata,
    key("window_id"),
    Column("position", SmallInteger, primary_key=True, autoincrement=False),
    whole("device_id"),
    whole("span_ns"),
    whole("busy_ns"),
    whole("exposed_copy_ns"),
    whole("exposed_communication_ns"),
    whole("memory_used_bytes", null=True),
    whole("memory_peak_bytes", null=True),
    *(Column(name, Double, nullable=True) for name in ("clock_hz", "clock_max_hz")),
    *(Column(name, Double, nullable=True) for name in ("power_w", "power_limit_w", "temperature_c")),
    text("throttle", null=True),
    whole("ecc_corrected", null=True),  # since the driver was loaded
    whole("ecc_uncorrected", null=True),
    sqlite_with_rowid=False,
    postgresql_partition_by=_BY_WINDOW,
)

idle_causes = Table(
    "idle_causes",
    metadata,
    key("window_id"),
    Column("position", SmallInteger, primary_key=True, autoincrement=False),
    Column("cause", Text, primary_key=True),
    whole("total_ns"),
    whole("count"),
    whole("longest_ns"),
    text("example", null=True),
    whole("startup_ns", default=0),
    whole("startup_count", default=0),
    whole("steady_longest_ns", null=True),
    text("steady_example", null=True),
    sqlite_with_rowid=False,
    postgresql_partition_by=_BY_WINDOW,
)

collectives = Table(
    "collectives",
    metadata,
    key("window_id"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("device", SmallInteger, nullable=False),  # the position in window_devices
    text("name"),
    text("group_name"),
    whole("group_size", null=True),
    whole("sequence", null=True),
    whole("start_unix_ns"),
    whole("duration_ns"),
    whole("bytes", null=True),
    sqlite_with_rowid=False,
    postgresql_partition_by=_BY_WINDOW,
)

graphs = Table(
    "graphs",
    metadata,
    key("window_id"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("device", SmallInteger, nullable=False),  # the position in window_devices
    text("name"),
    whole("launches"),
    whole("records"),
    whole("total_ns"),
    whole("attributed_ns"),
    text("source", null=True),
    Column("confidence", Double, nullable=True),
    sqlite_with_rowid=False,
    postgresql_partition_by=_BY_WINDOW,
)

# The fact: all kernels of a window as one block (blocks.FACT), and their histograms as another.
kernel_blocks = Table(
    "kernel_blocks",
    metadata,
    key("window_id"),
    whole("rows"),
    Column("facts", LargeBinary, nullable=False),
    Column("histograms", LargeBinary, nullable=False),
    postgresql_partition_by=_BY_WINDOW,
)

# What a window is made of beside itself: what goes first when it is old, and what goes with it.
OF_KERNELS = (kernel_blocks, collectives, graphs)
OF_WINDOWS = (window_devices, window_drops, idle_causes)
