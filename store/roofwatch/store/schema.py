"""The tables. Dimensions under content-hash ids, windows with ledger and kernels; no engine is named here.

Names are plural, so that none is a reserved word of SQLite, Postgres or ClickHouse. There are no foreign keys: what is
pointed at is written before what points, in the same transaction. The schema changes by migration only.

Windows and what they are made of are in ``window_schema.py``, sums over them in ``rollup_schema.py``.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Double, Index, Table
from sqlalchemy import text as text_of

from roofwatch.model.record import Bound, Evidence
from roofwatch.store.columns import Text, key, metadata, text, whole
from roofwatch.store.rollup_schema import (
    cause_sums,
    device_sums,
    drop_sums,
    kernel_hours,
    kernel_sums,
    rollups,
    window_sums,
)
from roofwatch.store.window_schema import (
    budget_columns,
    collectives,
    graphs,
    idle_causes,
    kernel_blocks,
    window_devices,
    window_drops,
    windows,
)

__all__ = [
    "BOUNDS", "BOUND_CODES", "EVIDENCES", "EVIDENCE_CODES", "NO_KERNELS", "REVISION", "agent_drops", "agents",
    "cause_sums", "collectives", "device_sets", "device_sums", "devices", "drop_sums", "graphs", "idle_causes",
    "kernel_blocks", "kernel_hours", "kernel_sums", "labels", "metadata", "nodes", "process_states", "processes",
    "rollups", "roofs", "segments", "signatures", "texts", "window_devices", "window_drops", "window_sums", "windows",
]  # fmt: skip

REVISION = "0012"  # the newest migration

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
    # For its statistics: else Postgres takes the devices of a model for one, and looks through sums for each of them.
    Index("devices_model", text_of("lower(model)")).ddl_if(dialect="postgresql"),
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


# How a process stands with its agent, as it was told last.
process_states = Table(
    "process_states",
    metadata,
    key("process_id"),
    whole("seen_unix_ns"),
    whole("since_unix_ns"),  # when it registered
    *budget_columns(),
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
