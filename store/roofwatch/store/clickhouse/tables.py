"""The tables as ClickHouse has them: those of ``schema.py`` with an engine each, and kernels as rows instead of blocks.

Kernels of windows are ``kernel_facts``, those of hours and days ``kernel_sums``. A window's number tells its day, as on
Postgres (``days.py``), and each day is a partition; sums have a partition for each day and length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
)

from roofwatch.store import schema
from roofwatch.store.blocks import FACT, SUM
from roofwatch.store.columns import Int
from roofwatch.store.days import SERIAL_BITS
from roofwatch.store.rollup_schema import DAY_S, SECOND_NS

_own = MetaData()
_NARROW = {"evidence": "UInt8", "bound": "UInt8", "formula_bound": "Int8", "first": "UInt8", "device": "UInt16"}
_WIDE = "CODEC(T64, ZSTD(1))"
_HISTOGRAM = {
    "histogram_buckets": "Array(UInt16) CODEC(ZSTD(1))",
    "histogram_counts": "Array(UInt64) CODEC(T64, ZSTD(1))",
}
# Of a kernel: whose, when, and where in its window; the weight of its device (rollup_sources.weight).
FACT_COLUMNS = {
    "process_id": "Int64 CODEC(ZSTD(1))",
    "start_unix_ns": "Int64 CODEC(Delta, ZSTD(1))",
    "window_id": "Int64 CODEC(Delta, ZSTD(1))",
    "place": "UInt32 CODEC(Delta, ZSTD(1))",
    "device_id": "Int64 CODEC(ZSTD(1))",
    "weight": "Float64 CODEC(ZSTD(1))",
    "steps": "Int64 CODEC(ZSTD(1))",
    **{name: f"{_NARROW[name]} CODEC(ZSTD(1))" if name in _NARROW else f"Int64 {_WIDE}" for name in FACT},
    "signature_id": "Int64 CODEC(ZSTD(1))",
    **_HISTOGRAM,
}
SUM_COLUMNS = {
    "grain": "Int64 CODEC(ZSTD(1))",
    "process_id": "Int64 CODEC(ZSTD(1))",
    "bucket_unix_ns": "Int64 CODEC(ZSTD(1))",
    "device_id": "Int64 CODEC(ZSTD(1))",
    "build": "Int64 CODEC(ZSTD(1))",
    **{name: f"{_NARROW[name]} CODEC(ZSTD(1))" if name in _NARROW else f"Int64 {_WIDE}" for name in SUM},
    "signature_id": "Int64 CODEC(ZSTD(1))",
    **_HISTOGRAM,
}


def _table(name: str, columns: dict[str, str]) -> Table:
    """For queries; the arrays are never compared, so their type does not matter."""
    types = {column: Double if kind.startswith("F") else Int for column, kind in columns.items()}
    return Table(name, _own, *(Column(column, kind) for column, kind in types.items()))


kernel_facts = _table("kernel_facts", FACT_COLUMNS)
kernel_sums = _table("kernel_sums", SUM_COLUMNS)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table lies: its engine's arguments, key, partition, shard, and columns of its own."""

    columns: dict[str, str]
    key: tuple[str, ...]
    engine: str = "MergeTree"
    arguments: tuple[str, ...] = ()
    partition: str = ""
    shard: str = ""  # of which column the hash tells the server; "": every server has all rows
    settings: dict[str, int] = field(default_factory=dict)  # of one server; copies remember inserts by themselves
    storage: dict[str, int] = field(default_factory=dict)  # of each server
    indexes: dict[str, str] = field(default_factory=dict)  # beside the key: what lets parts be passed over


# What the journal gives up must survive a power cut; what is merged was there before, and stays for minutes.
DURABLE = {"fsync_after_insert": 1, "fsync_part_directory": 1}
_DAY = f"intDiv({{}}, {1 << SERIAL_BITS})"
_PIECES = f"(grain, intDiv(bucket_unix_ns, {DAY_S * SECOND_NS}))"
# A node's processes lie scattered among all, with some hundred rows each: of less around them less is read.
FINE = {"min_compress_block_size": 16_384}
_FINE = {"index_granularity": 1024, **FINE}
PACKED = "packed_sums"
_PACKED = {
    **dict.fromkeys(("grain", "process_id", "bucket_unix_ns", "build"), "Int64 CODEC(ZSTD(1))"),
    "packed": "String CODEC(ZSTD(1))",  # packed.py
}
_ONCE = {"non_replicated_deduplication_window": 10_000}  # inserts remembered: thousands of batches
_NEWEST = "ReplacingMergeTree"
# A window is sought by its uid alone when somebody asks for its trace: 2.4 bytes a window tell in which 8,192 rows it
# may be. So few wrong ones, since a list of traces seeks hundreds at once.
BY_UID = {"windows_uid": "uid TYPE bloom_filter(0.0001) GRANULARITY 1"}
_NAMES = {"trigger", "collector", "cause", "reason", "close_path", "throttle", "kind", "phase", "vendor",
          "interval_reason"}  # fmt: skip


_KINDS = ((Boolean, "Bool"), (SmallInteger, "Int16"), (BigInteger, "Int64"), (Integer, "Int32"), (Double, "Float64"))


def _kind(column: Column[object]) -> str:
    """The type of a column; integers before those that are kinds of them."""
    t = column.type
    if isinstance(t, LargeBinary):
        kind = f"FixedString({t.length})"
    else:
        kind = next((name for of, name in _KINDS if isinstance(t, of)), "String")
    return f"Nullable({kind})" if column.nullable else kind


def _plain(table: Table, more: dict[str, str] | None = None) -> dict[str, str]:
    found = {}
    for column in table.columns:
        kind = _kind(column)
        low = f"LowCardinality({kind})" if column.name in _NAMES else kind
        found[column.name] = f"{low} CODEC(ZSTD(1))"
    return {**found, **(more or {})}


def _key(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.primary_key.columns)


def _layouts() -> dict[str, Layout]:
    found = {}
    for table in (schema.nodes, schema.devices, schema.texts, schema.signatures, schema.device_sets, schema.segments,
                  schema.agent_drops):  # fmt: skip
        found[table.name] = Layout(_plain(table), _key(table), _NEWEST)
    for table in (schema.processes, schema.roofs, schema.agents):
        found[table.name] = Layout(_plain(table), _key(table), "CoalescingMergeTree")
    states = schema.process_states
    found[states.name] = Layout(_plain(states), _key(states), _NEWEST, ("seen_unix_ns",))
    gone = {"version": "UInt64", "deleted": "UInt8"}
    found["labels"] = Layout(_plain(schema.labels, gone), _key(schema.labels), _NEWEST, ("version", "deleted"))
    found["windows"] = Layout(
        _plain(schema.windows), ("process_id", "start_unix_ns", "id"), partition=_DAY.format("id"), shard="id",
        settings=_ONCE, indexes=BY_UID,
    )  # fmt: skip
    for table in (schema.window_drops, schema.window_devices, schema.idle_causes, schema.collectives, schema.graphs):
        found[table.name] = Layout(
            _plain(table), _key(table), partition=_DAY.format("window_id"), shard="window_id", settings=_ONCE
        )
    counts = {name: kind for name, kind in _plain(schema.kernel_blocks).items() if name in {"window_id", "rows"}}
    found["kernel_blocks"] = Layout(
        counts, ("window_id",), partition=_DAY.format("window_id"), shard="window_id", settings=_ONCE
    )
    found["kernel_facts"] = Layout(
        FACT_COLUMNS, ("process_id", "start_unix_ns", "window_id", "place"), partition=_DAY.format("window_id"),
        shard="process_id", settings=_ONCE,
    )  # fmt: skip
    keys = ("grain", "process_id", "bucket_unix_ns", "device_id", "signature_id", "evidence", "bound", "formula_bound")
    found["kernel_sums"] = Layout(SUM_COLUMNS, keys, _NEWEST, ("build",), _PIECES, "process_id", storage=_FINE)
    for table in (schema.window_sums, schema.drop_sums, schema.device_sums, schema.cause_sums):
        found[table.name] = Layout(
            _plain(table, {"build": "Int64"}), _key(table), _NEWEST, ("build",), _PIECES, "process_id"
        )
    found[PACKED] = Layout(
        _PACKED, keys[:3], _NEWEST, ("build",), _PIECES, "process_id", storage={**_FINE, "index_granularity": 256}
    )
    state = {"build": "Int64", "version": "UInt64"}
    found["rollups"] = Layout(
        _plain(schema.rollups, state), _key(schema.rollups), _NEWEST, ("version",), _PIECES, "process_id"
    )
    return found


LAYOUTS = _layouts()
OWN = {  # of the store itself
    "journals": Layout(
        {"name": "String", "place": "String", "seen_unix_ns": "Int64"}, ("name",), _NEWEST, ("seen_unix_ns",)
    ),
    "roofwatch_versions": Layout({"version": "UInt32", "applied_unix_ns": "Int64"}, ("version",), _NEWEST),
}
