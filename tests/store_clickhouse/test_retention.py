"""Retention on ClickHouse: days go as partitions, and no row is looked for to be deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clickhouse_server import ClickHouse
from rollup_builders import BEGIN_NS, DAY_NS, HOUR_NS
from sqlalchemy import event
from store_builders import GEMM, segment_of, stat, window_of

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import database
from roofwatch.store.clickhouse import opening, upkeep
from roofwatch.store.clickhouse.writer import start
from roofwatch.store.config import Keep
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker

FIRST = BEGIN_NS // DAY_NS
FOR_EVER = Keep(99 * 86_400, 99 * 86_400)


def filled(db: opening.ClickHouse, journal: Path) -> None:
    """Three days of a window at noon, all of which ClickHouse has once the writer is closed."""
    starts = [(FIRST + day) * DAY_NS + 12 * HOUR_NS for day in range(3)]
    writer = start(db, FOR_EVER, journal, now_ns=lambda: starts[-1] + HOUR_NS)
    windows = [window_of(f"w{i}", [stat(GEMM, [1000])], start_unix_ns=at) for i, at in enumerate(starts)]
    assert writer.submit(Unpacker().unpack(segment_of(windows, 1))).result(30).status == pb.STORED
    writer.close()


def days_of(clickhouse: ClickHouse, name: str, table: str) -> list[int]:
    """Days after the first of which a table has rows."""
    found = clickhouse.run(f"SELECT DISTINCT window_id FROM {table}", name)  # noqa: S608 - a test's own word
    return sorted((int(number) >> 40) - FIRST for (number,) in found)


def test_old_days_are_dropped_and_nothing_is_deleted(clickhouse: ClickHouse, tmp_path: Path) -> None:
    """Kernels of the first two days go, then all else of them, by their partitions; what they add up to stays."""
    name = clickhouse.create()
    db = database.open(clickhouse.url(name))
    assert isinstance(db, opening.ClickHouse)
    filled(db, tmp_path / "journal.db")
    assert days_of(clickhouse, name, "kernel_facts") == [0, 1, 2]
    writer = start(db, FOR_EVER, tmp_path / "journal.db", now_ns=lambda: (FIRST + 3) * DAY_NS)
    sent: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(db.engine, "before_cursor_execute", note)
    now_ns, two_days = (FIRST + 4) * DAY_NS + HOUR_NS, 2 * 86_400
    with db.engine.connect() as connection:
        upkeep.prune_all(connection, writer.journal, now_ns, Keep(two_days, 99 * 86_400))
        assert [days_of(clickhouse, name, of) for of in ("kernel_facts", "window_devices")] == [[2], [0, 1, 2]]
        upkeep.prune_all(connection, writer.journal, now_ns, Keep(two_days, two_days))
    assert [days_of(clickhouse, name, of) for of in ("kernel_facts", "window_devices")] == [[2], [2]]
    changes = [statement for statement in sent if statement.startswith(("ALTER", "DELETE", "TRUNCATE"))]
    assert {" ".join(one.split()[:2] + one.split()[3:5]) for one in changes} == {"ALTER TABLE DROP PARTITION"}
    assert {one.split()[5] for one in changes if "kernel_facts" in one} == {str(FIRST), str(FIRST + 1)}
    assert clickhouse.run(f"SELECT count() FROM system.mutations WHERE database = '{name}'") == [["0"]]  # noqa: S608
    assert [(row["calls"], row["total_ns"]) for row in Queries(db).run("top", Filter())["rows"]] == [(3, 3000)]
    writer.close()
    db.close()
