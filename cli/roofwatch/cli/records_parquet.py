"""Kernel records as Parquet: a row group a few pages, so that memory holds no more than these."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from roofwatch.model.records import DEVICE_KEYS, FIGURE_KEYS, KEYS, POINTERS, SIGNATURE_KEYS, WINDOW_KEYS

GROUP_ROWS = 50_000  # of a row group, at least; the last may have fewer
_INTEGERS = frozenset(
    {
        "start_unix_ns", "duration_ns", "steps", "first_step", "represents_ns", "pid", "rank", "local_rank",
        "world_size", "index", "flops", "bytes", "flops_max", "calls", "total_ns", "est_ns", "min_ns", "max_ns",
        "step_calls", "step_ns", "histogram_low",
    }
)  # fmt: skip
_TYPES: Mapping[str, pa.DataType] = {
    **{name: pa.int64() if name in _INTEGERS else pa.string() for name in KEYS},
    "roof_ns": pa.float64(),
    "ridge": pa.float64(),
    "histogram_counts": pa.list_(pa.int64()),
}
SCHEMA = pa.schema([(name, _TYPES[name]) for name in KEYS])


def write(pages: Iterator[Mapping[str, Any]], file: BinaryIO) -> None:
    """All pages; labels, shapes, dtypes and arguments are JSON text."""
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for page in pages:
            waiting.append(_table(page))
            if sum(table.num_rows for table in waiting) >= GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def _table(page: Mapping[str, Any]) -> pa.Table:
    """Columns; what windows, devices and signatures have is built once and taken by the rows."""
    columns = list(zip(*page["rows"], strict=True)) or [()] * (POINTERS + len(FIGURE_KEYS))
    labels = WINDOW_KEYS.index("labels")
    windows = [[*one[:labels], json.dumps(one[labels]), *one[labels + 1 :]] for one in page["windows"]]
    arrays: list[Any] = []
    for names, told, at in (
        (WINDOW_KEYS, windows, columns[0]),
        (DEVICE_KEYS, page["devices"], columns[1]),
        (SIGNATURE_KEYS, page["signatures"], columns[2]),
    ):
        arrays += _taken(names, told, at)
    figures = columns[POINTERS:]
    arrays += [pa.array(column, _TYPES[name]) for name, column in zip(FIGURE_KEYS, figures, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _taken(names: Sequence[str], told: Sequence[Sequence[Any]], at: Sequence[int]) -> list[Any]:
    places = pa.array(at, pa.int64())
    columns = list(zip(*told, strict=True)) or [()] * len(names)
    return [pa.array(column, _TYPES[name]).take(places) for name, column in zip(names, columns, strict=True)]
