"""On SQLite there are no partitions: what is old is found and removed by keys, never by looking through a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fresh
import pytest
from sqlalchemy import event
from store_builders import process_of
from test_retention import BEGIN_NS, DAY_NS, HOUR_NS, SHORT, at, count, store

from roofwatch.store import retention, schema
from roofwatch.store.database import Database

SMALL = {"process_states", "processes", "nodes", "agents", "devices"}  # a row a process, or fewer


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A fresh file."""
    opened = fresh.opened(tmp_path / "store.db")
    yield opened
    opened.close()


def test_nothing_is_scanned(db: Database) -> None:
    """Every statement of a store's retention: windows' kernels, hours, days, and numbers of segments."""
    for i in range(3):
        of = process_of("n", 1 + i % 2)
        store(db, [at(f"{i}-{k}", i * DAY_NS + k * HOUR_NS, process=of) for k in range(4)], i + 1)
    retention.prune_all(db, BEGIN_NS + 3 * DAY_NS + HOUR_NS, retention.Keep(3600 * 10**6, 10**10, 10**10))  # sums only
    assert count(db, schema.kernel_hours) > 0
    with db.write() as connection:  # their age is told by when they came
        connection.exec_driver_sql("UPDATE segments SET received_unix_ns = 1 WHERE sequence < 3")
    sent: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        sent.append((statement, parameters))

    event.listen(db.engine, "before_cursor_execute", note)
    for days in (2, 4, 9):
        with db.write() as connection:
            while not retention.prune(connection, BEGIN_NS + days * DAY_NS + HOUR_NS, SHORT).nothing:
                pass
    event.remove(db.engine, "before_cursor_execute", note)
    assert count(db, schema.segments) == 1
    tables = (schema.windows, schema.kernel_blocks, schema.rollups, schema.kernel_sums, schema.kernel_hours)
    assert [count(db, table) for table in tables] == [0] * len(tables)
    scanned = set()
    with db.read() as connection:
        for statement, parameters in sent:
            if statement.startswith(("SELECT", "DELETE", "UPDATE", "WITH")):
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
                    if (found := re.match(r"SCAN (\w+)", row[3])) and "SUBQUERY" not in row[3]:
                        scanned.add((found[1], row[3], statement[:200]))
    assert {one for one in scanned if one[0] not in SMALL} == set()
    assert len(sent) > 50
