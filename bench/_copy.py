"""Postgres' own best with the same kernel rows: binary COPY of ready bytes into a narrow table with the same key."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import psycopg

from roofwatch.store.blocks import FACT
from roofwatch.store.facts import Facts

COLUMNS = (
    "signature_id", "total_ns", "min_ns", "max_ns", "step_ns", "calls", "step_calls", "device", "evidence", "bound",
)  # fmt: skip
KEY = "window_id, device, signature_id, evidence"
WINDOWS = 100  # of a transaction: 30,000 rows
HEAD, TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


def buffers(windows: Sequence[Facts]) -> list[bytes]:
    """What COPY takes, a transaction each; without the histograms, which would make it slower."""
    names = ("window_id", *COLUMNS)
    fields = [("fields", ">i2"), *(pair for name in names for pair in ((f"{name} bytes", ">i4"), (name, ">i8")))]
    found = []
    for at in range(0, len(windows), WINDOWS):
        parts = [HEAD]
        for number, facts in enumerate(windows[at : at + WINDOWS], at + 1):
            rows = np.zeros(len(facts), fields)
            rows["fields"], rows["window_id"] = len(names), number
            for name in names:
                rows[f"{name} bytes"] = 8
            for name in COLUMNS:
                rows[name] = facts.columns[FACT.index(name)]
            parts.append(rows.tobytes())
        found.append(b"".join((*parts, TAIL)))
    return found


def load(url: str, ready: Sequence[bytes]) -> float:
    """Write the rows into a new table; seconds."""
    columns = ", ".join(f"{name} bigint NOT NULL" for name in COLUMNS)
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute(f"CREATE TABLE kernel_stats (window_id bigint NOT NULL, {columns}, PRIMARY KEY ({KEY}))")
        connection.commit()
        begin = time.perf_counter()
        for part in ready:
            with connection.cursor() as cursor, cursor.copy("COPY kernel_stats FROM STDIN (FORMAT binary)") as copy:
                copy.write(part)
            connection.commit()
        return time.perf_counter() - begin
