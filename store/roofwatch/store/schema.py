"""The tables. Dimensions under content-hash ids, windows with ledger and kernels; no engine is named here.

Names are plural, so that none is a reserved word of SQLite, Postgres or ClickHouse. There are no foreign keys: what is
pointed at is written before what points, in the same transaction. The schema changes by migration only.

On Postgres windows and what they are made of are partitioned by the day that is in a window's number (``days.py``).
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

from roofwatch.model.record import Bound, Evidence
from roofwatch.store.columns import Int, Text, key, metadata, text, whole
from roofwatch.store.rollup_schema import (
    cause_sums,
    device_sums,
    drop_sums,
    kernel_hours,
    kernel_sums,
    rollups,
    window_sums,
)

__all__ = [
    "BOUNDS", "BOUND_CODES", "EVIDENCES", "EVIDENCE_CODES", "NO_KERNELS", "REVISION", "agent_drops", "agents",
    "cause_sums", "collectives", "device_sets", "device_sums", "devices", "drop_sums", "graphs", "idle_causes",
    "kernel_blocks", "kernel_hours", "kernel_sums", "labels", "metadata", "nodes", "process_states", "processes",
    "rollups", "roofs", "segments", "signatures", "texts", "window_devices", "window_drops", "window_sums", "windows",
]  # fmt: skip

REVISION = "0011"  # the newest migration

# Stored codes: a number is never changed or used again.
BOUND_CODES = {
    Bound.UNKNOWN: 0,
    Bound.COMPUTE: 1,
    Bound.MEMORY: 2,
    Bound.LATENCY: 3,
    Bound.COMMUNICATION: 4,
    Bound.COPY: 5,
    Bound.HOST: 6,
}
EVIDENCE_CODES = {
    Evidence.NONE: 0,
    Evidence.COUNTERS: 1,
    Evidence.SHAPES: 2,
    Evidence.BORROWED: 3,
    Evidence.NAME: 4,
    Evidence.DEFINITION: 5,
}
NO_KERNELS = (BOUND_CODES[Bound.COPY], BOUND_CODES[Bound.COMMUNICATION])  # what no kernel profiler looks into
BOUNDS = {code: bound for bound, code in BOUND_CODES.items()}
EVIDENCES = {code: evidence for evidence, code in EVIDENCE_CODES.items()}

nodes = Table("nodes", metadata, key(), text("host"), text("boot_id"))

devices = Table(
    "devices",
    metadata,
    key(),
    text("vendor"),
    text("model"),
    text("uuid", null=True),
    whole("ordinal", null=True),
    whole("memory_bytes", null=True),
    whole("units", null=True),
    text("driver", null=True),
    Column("inferred", Boolean, nullable=False),
    whole("peaks_id"),
    text("peaks"),  # JSON: the device as in an answer
)

processes = Table(
    "processes",
    metadata,
    key(),
    whole("node_id"),
    whole("pid"),
    whole("start_unix_ns", null=True),
    text("owner", null=True),
    text("job", null=True),
    text("container", null=True),
    whole("rank", null=True),
    whole("local_rank", null=True),
    whole("world_size", null=True),
    text("model", null=True),
    text("versions"),  # JSON object
    Index("processes_node", "node_id"),
)


def _budget() -> tuple[Column[Any], ...]:
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


# How a process stands with its agent, as it was told last.
process_states = Table(
    "process_states",
    metadata,
    key("process_id"),
    whole("seen_unix_ns"),
    whole("since_unix_ns"),  # when it registered
    *_budget(),
    text("skipped"),  # JSON object: windows not taken since then, by reason
)

# Labels of nodes and processes; the owner's id is a content hash, so one column serves both.
labels = Table(
    "labels",
    metadata,
    key("owner_id"),
    Column("key", Text, primary_key=True),
    text("value"),
    Index("labels_key_value", "key", "value"),
    sqlite_with_rowid=False,
)

texts = Table("texts", metadata, key(), text("value"))  # names of kernels, ops and modules

signatures = Table(
    "signatures",
    metadata,
    key(),
    whole("kernel_id"),
    whole("op_id", null=True),
    whole("module_id", null=True),
    text("kind"),
    text("phase"),
    text("shapes", null=True),
    text("dtypes", null=True),
    text("arguments", null=True),
    text("formula", null=True),
    text("precision", null=True),
    text("unit", null=True),
    whole("flops", null=True),
    whole("bytes", null=True),
    whole("flops_max", null=True),
    Index("signatures_kernel", "kernel_id"),
)

# The roof follows from the signature's FLOPs and bytes and the device's peaks, so it is no column of the fact.
roofs = Table(
    "roofs",
    metadata,
    key("signature_id"),
    key("peaks_id"),
    Column("roof_ns", Double, nullable=True),
    Column("ridge", Double, nullable=True),
    sqlite_with_rowid=False,
)

agents = Table(
    "agents",
    metadata,
    key(),  # of (name, boot)
    text("name"),
    text("boot"),
    text("version"),
    whole("node_id"),
    whole("seen_unix_ns"),  # when it last said hello
    whole("forgotten", default=-1),  # segments up to this number are no longer kept one by one: each was stored
)

segments = Table(
    "segments",
    metadata,
    key("agent_id"),
    key("sequence"),
    whole("crc32"),
    whole("windows"),
    whole("received_unix_ns"),
    Index("segments_received", "received_unix_ns"),
    sqlite_with_rowid=False,
)

agent_drops = Table(
    "agent_drops",
    metadata,
    key("agent_id"),
    key("sequence"),
    Column("reason", Text, primary_key=True),
    whole("count"),
    sqlite_with_rowid=False,
)

# The devices of windows, by the hash of their ids.
device_sets = Table("device_sets", metadata, key(), key("device_id"), sqlite_with_rowid=False)

_BY_WINDOW = "RANGE (window_id)"
serials = Sequence("windows_id_seq", metadata=metadata)  # of windows on Postgres; SQLite counts by itself

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
    *_budget(),
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
