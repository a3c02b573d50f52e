"""SQLite's own best with the same kernel rows: what the store's ingest and answers are held against."""

from __future__ import annotations

import sqlite3
import time
from itertools import chain
from pathlib import Path

import numpy as np

from roofwatch.store.blocks import FACT
from roofwatch.store.facts import Facts

CHUNK = 2_500  # rows a statement: below SQLite's limit of variables
TRANSACTION = 30_000
COLUMNS = (
    "signature_id", "total_ns", "min_ns", "max_ns", "step_ns", "calls", "step_calls", "device", "evidence", "bound",
    "histogram",
)  # fmt: skip
WIDTH = len(COLUMNS) + 1  # and the window


def as_rows(window: int, facts: Facts) -> list[tuple[object, ...]]:
    """What a table of kernels would hold of a window: its columns, and the bytes of each histogram."""
    of = {name: column.tolist() for name, column in zip(FACT, facts.columns, strict=True)}
    told = facts.histograms
    ends = np.cumsum(told.lengths).tolist()
    body = told.counts.astype(np.uint8).tobytes()  # counts of these windows are below 128: a byte each
    blobs = [
        low.to_bytes(2, "little") + body[end - length : end]
        for low, length, end in zip(told.lows.tolist(), told.lengths.tolist(), ends, strict=True)
    ]
    columns = [blobs if name == "histogram" else of[name] for name in COLUMNS]
    return [(window, *row) for row in zip(*columns, strict=True)]


def load(file: Path, rows: list[tuple[object, ...]]) -> float:
    """Write the rows into a new file; seconds by the fastest way SQLite has, journal and sync as the store's."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        f"CREATE TABLE kernel_stats (window_id INTEGER NOT NULL, {', '.join(f'{c} NOT NULL' for c in COLUMNS)}, "
        "PRIMARY KEY (window_id, device, signature_id, evidence)) WITHOUT ROWID"
    )
    row = f"({','.join('?' * WIDTH)})"
    flat = list(chain.from_iterable(rows))
    begin = time.perf_counter()
    for at in range(0, len(rows), TRANSACTION):
        end = min(at + TRANSACTION, len(rows))
        connection.execute("BEGIN IMMEDIATE")
        for start in range(at, end, CHUNK):
            part = flat[start * WIDTH : min(start + CHUNK, end) * WIDTH]
            values = ",".join([row] * (len(part) // WIDTH))
            connection.execute(f"INSERT INTO kernel_stats VALUES {values}", part)  # noqa: S608 - question marks
        connection.execute("COMMIT")
    took = time.perf_counter() - begin
    connection.close()
    return took


def top(file: Path, windows: tuple[int, int] | None = None) -> float:
    """Seconds of the statement under a top-20: time by signature, of some windows (first and last) or all."""
    where = "WHERE window_id BETWEEN ? AND ?" if windows else ""
    connection = sqlite3.connect(file)
    begin = time.perf_counter()
    connection.execute(
        "SELECT signature_id, sum(calls), sum(total_ns) AS t, min(min_ns), max(max_ns) FROM kernel_stats "  # noqa: S608 - constants
        f"{where} GROUP BY signature_id ORDER BY t DESC LIMIT 20",
        windows or (),
    ).fetchall()
    took = time.perf_counter() - begin
    connection.close()
    return took
