"""The tables. Dimensions under content-hash ids, one narrow fact, windows with their ledger; no engine is named here.

Names are plural, so that none is a reserved word of SQLite, Postgres or ClickHouse. There are no foreign keys: what is
pointed at is written before what points, in the same transaction. The schema changes by migration only.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
)

from roofwatch.model.record import Bound, Evidence

REVISION = "0006"  # the newest migration

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
BOUNDS = {code: bound for bound, code in BOUND_CODES.items()}
EVIDENCES = {code: evidence for evidence, code in EVIDENCE_CODES.items()}

metadata = MetaData()
Int = BigInteger().with_variant(Integer, "sqlite")  # on SQLite an INTEGER key is the row's own number: no second index


def _id(name: str = "id", **more: Any) -> Column[Any]:
    return Column(name, Int, primary_key=True, autoincrement=False, **more)


def _int(name: str, *, null: bool = False, default: int | None = None) -> Column[Any]:
    return Column(name, BigInteger, nullable=null, server_default=None if default is None else str(default))


def _text(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, String, nullable=null)


nodes = Table("nodes", metadata, _id(), _text("host"), _text("boot_id"))

devices = Table(
    "devices",
    metadata,
    _id(),
    _text("vendor"),
    _text("model"),
    _text("uuid", null=True),
    _int("ordinal", null=True),
    _int("memory_bytes", null=True),
    _int("units", null=True),
    _text("driver", null=True),
    Column("inferred", Boolean, nullable=False),
    _int("peaks_id"),
    _text("peaks"),  # JSON: the device as in an answer
)

processes = Table(
    "processes",
    metadata,
    _id(),
    _int("node_id"),
    _int("pid"),
    _int("start_unix_ns", null=True),
    _text("owner", null=True),
    _text("job", null=True),
    _text("container", null=True),
    _int("rank", null=True),
    _int("local_rank", null=True),
    _int("world_size", null=True),
    _text("model", null=True),
    _text("versions"),  # JSON object
    Index("processes_node", "node_id"),
)

# Labels of nodes and processes; the owner's id is a content hash, so one column serves both.
labels = Table(
    "labels",
    metadata,
    _id("owner_id"),
    Column("key", String, primary_key=True),
    _text("value"),
    Index("labels_key_value", "key", "value"),
    sqlite_with_rowid=False,
)

texts = Table("texts", metadata, _id(), _text("value"))  # names of kernels, ops and modules

signatures = Table(
    "signatures",
    metadata,
    _id(),
    _int("kernel_id"),
    _int("op_id", null=True),
    _int("module_id", null=True),
    _text("kind"),
    _text("phase"),
    _text("shapes", null=True),
    _text("dtypes", null=True),
    _text("arguments", null=True),
    _text("formula", null=True),
    _text("precision", null=True),
    _text("unit", null=True),
    _int("flops", null=True),
    _int("bytes", null=True),
    _int("flops_max", null=True),
    Index("signatures_kernel", "kernel_id"),
)

# The roof follows from the signature's FLOPs and bytes and the device's peaks, so it is no column of the fact.
roofs = Table(
    "roofs",
    metadata,
    _id("signature_id"),
    _id("peaks_id"),
    Column("roof_ns", Double, nullable=True),
    Column("ridge", Double, nullable=True),
    sqlite_with_rowid=False,
)

agents = Table(
    "agents",
    metadata,
    _id(),  # of (name, boot)
    _text("name"),
    _text("boot"),
    _text("version"),
    _int("node_id"),
    _int("seen_unix_ns"),  # when it last said hello
)

segments = Table(
    "segments",
    metadata,
    _id("agent_id"),
    _id("sequence"),
    _int("crc32"),
    _int("windows"),
    _int("received_unix_ns"),
    sqlite_with_rowid=False,
)

agent_drops = Table(
    "agent_drops",
    metadata,
    _id("agent_id"),
    _id("sequence"),
    Column("reason", String, primary_key=True),
    _int("count"),
    sqlite_with_rowid=False,
)

windows = Table(
    "windows",
    metadata,
    Column("id", Int, primary_key=True),
    Column("uid", LargeBinary(16), nullable=False, unique=True),
    _int("process_id"),
    _int("start_unix_ns"),
    _int("duration_ns"),
    _int("steps", null=True),
    _int("represents_ns", null=True),
    _text("trigger"),
    _text("collector"),
    Column("shapes_recorded", Boolean, nullable=False),
    _int("events_read"),
    _int("device_records"),
    _int("device_time_ns"),
    Column("has_host_events", Boolean, nullable=False),
    _int("linked_ns"),
    _int("backlog_ns"),
    _int("classifiable_ns"),
    _int("classified_ns"),
    _int("named_ns"),
    _text("close_path", null=True),
    _int("open_ns", null=True),
    _int("quiesce_ns", null=True),
    _int("close_ns", null=True),
    _int("save_ns", null=True),
    _int("free_ns", null=True),
    _int("base_step_ns", null=True),
    _int("longest_step_ns", null=True),
    _int("lost_in_ns", null=True),
    _int("lost_after_ns", null=True),
    _int("parse_cpu_ns", null=True),
    _int("padding_batches", null=True),
    _int("padding_real_tokens", null=True),
    _int("padding_padded_tokens", null=True),
    _int("padding_real_squared", null=True),
    _int("padding_padded_squared", null=True),
    _int("first_step", null=True),
    _int("model_ns", default=0),
    _int("model_known_ns", default=0),
    _int("model_flops", default=0),
    _int("model_peak_ns", default=0),
    _int("compared_ns", default=0),
    _int("disagreed_ns", default=0),
    _int("layout_ns", null=True),
    _int("python_events", null=True),
    _int("waits", null=True),
    _int("wait_ns", null=True),
    _int("longest_wait_ns", null=True),
    _text("padding_lengths", null=True),  # JSON: [[length, sequences], …], ascending
    _text("padding_shapes", null=True),  # JSON: [[sequences, padded length, batches], …], ascending
    _int("padding_coarsened", null=True),
    _int("padding_unread", null=True),
    Index("windows_process_start", "process_id", "start_unix_ns"),
    Index("windows_start", "start_unix_ns"),
)

window_drops = Table(
    "window_drops",
    metadata,
    _id("window_id"),
    Column("reason", String, primary_key=True),
    _int("count"),
    sqlite_with_rowid=False,
)

window_devices = Table(
    "window_devices",
    metadata,
    _id("window_id"),
    Column("position", SmallInteger, primary_key=True, autoincrement=False),
    _int("device_id"),
    _int("span_ns"),
    _int("busy_ns"),
    _int("exposed_copy_ns"),
    _int("exposed_communication_ns"),
    _int("memory_used_bytes", null=True),
    _int("memory_peak_bytes", null=True),
    *(Column(name, Double, nullable=True) for name in ("clock_hz", "clock_max_hz")),
    *(Column(name, Double, nullable=True) for name in ("power_w", "power_limit_w", "temperature_c")),
    _text("throttle", null=True),
    sqlite_with_rowid=False,
)

idle_causes = Table(
    "idle_causes",
    metadata,
    _id("window_id"),
    Column("position", SmallInteger, primary_key=True, autoincrement=False),
    Column("cause", String, primary_key=True),
    _int("total_ns"),
    _int("count"),
    _int("longest_ns"),
    _text("example", null=True),
    _int("startup_ns", default=0),
    _int("startup_count", default=0),
    _int("steady_longest_ns", null=True),
    _text("steady_example", null=True),
    sqlite_with_rowid=False,
)

collectives = Table(
    "collectives",
    metadata,
    _id("window_id"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("device", SmallInteger, nullable=False),  # the position in window_devices
    _text("name"),
    _text("group_name"),
    _int("group_size", null=True),
    _int("sequence", null=True),
    _int("start_unix_ns"),
    _int("duration_ns"),
    _int("bytes", null=True),
    sqlite_with_rowid=False,
)

graphs = Table(
    "graphs",
    metadata,
    _id("window_id"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("device", SmallInteger, nullable=False),  # the position in window_devices
    _text("name"),
    _int("launches"),
    _int("records"),
    _int("total_ns"),
    _int("attributed_ns"),
    _text("source", null=True),
    Column("confidence", Double, nullable=True),
    sqlite_with_rowid=False,
)

# The fact: eight-byte columns first (Postgres pads less). ``device`` is the position in window_devices.
kernel_stats = Table(
    "kernel_stats",
    metadata,
    Column("window_id", Int, nullable=False),
    Column("signature_id", Int, nullable=False),
    _int("total_ns"),
    _int("min_ns"),
    _int("max_ns"),
    _int("step_ns"),
    _int("calls"),
    _int("step_calls"),
    Column("device", SmallInteger, nullable=False),
    Column("evidence", SmallInteger, nullable=False),
    Column("bound", SmallInteger, nullable=False),
    Column("histogram", LargeBinary, nullable=False),  # histograms.py
    Column("formula_bound", SmallInteger, nullable=True),  # beside a measured one
    PrimaryKeyConstraint("window_id", "device", "signature_id", "evidence"),  # as queries reach for it
    sqlite_with_rowid=False,
)
