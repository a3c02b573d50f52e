"""Batches into ClickHouse: killed at every point nothing is lost and nothing double; a server that is away."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clickhouse_server import ClickHouse
from rollup_builders import BEGIN_NS, DAY_NS
from store_builders import GEMM, NORM, segment_of, stat, window_of

from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import database
from roofwatch.store.clickhouse import opening
from roofwatch.store.clickhouse import writer as batches
from roofwatch.store.clickhouse.writer import JournalWriter, start
from roofwatch.store.config import Keep
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.unpack import Unpacked, Unpacker

DAYS = BEGIN_NS + 3 * DAY_NS


def opened(clickhouse: ClickHouse, name: str) -> opening.ClickHouse:
    """A database, open."""
    found = database.open(clickhouse.url(name))
    assert isinstance(found, opening.ClickHouse)
    return found


def segment(number: int, agent: str = "agent-a") -> Unpacked:
    """Two windows of a day."""
    kernels = [stat(GEMM, [1000 + number]), stat(NORM, [50, 60])]
    windows = [window_of(f"{agent}-{number}-{k}", kernels, start_unix_ns=DAYS + k) for k in range(2)]
    return Unpacker().unpack(segment_of(windows, number, agent=agent))


def settled(writer: JournalWriter) -> None:
    """Until ClickHouse has all that was acknowledged."""
    deadline = time.monotonic() + 60
    while writer.journal.waiting()[0]:
        assert time.monotonic() < deadline, writer.failed
        time.sleep(0.02)


def total_ns(db: database.Database) -> int:
    """Device time of all kernels."""
    return sum(row["total_ns"] for row in Queries(db).run("top", Filter())["rows"])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_killed_between_all_inserts(clickhouse: ClickHouse, tmp_path: Path) -> None:
    """Each batch has windows of a day whose kernels are gone: these are added to sums, and also once."""
    name = clickhouse.create()
    db = opened(clickhouse, name)
    program = Path(__file__).with_name("crash_points.py")
    command = [sys.executable, str(program), clickhouse.url(name), str(tmp_path / "journal.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["deaths"] > 10  # as many as a batch has inserts, and one before them
    count = told["segments"]
    assert clickhouse.run("SELECT count(), uniqExact(uid) FROM windows", name) == [[str(2 * count), str(2 * count)]]
    for table in ("window_devices", "window_drops"):
        assert clickhouse.run(f"SELECT count() FROM {table}", name) == [[str(2 * count)]]  # noqa: S608 - a test's own
    assert clickhouse.run("SELECT count() FROM kernel_facts", name) == [[str(2 * count)]]  # of the day that is not gone
    expected = 2 * sum(1000 + number + 110 for number in range(count))
    answer = Queries(db).run("top", Filter())
    assert sum(row["total_ns"] for row in answer["rows"]) == expected
    assert sum(row["calls"] for row in answer["rows"]) == 2 * 3 * count
    assert answer["coverage"]["windows"] == 2 * count
    assert answer["coverage"]["dropped"] == {"x": 2 * count}
    db.close()


def test_a_server_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes meanwhile is acknowledged and inserted later; a full journal takes no more until there is room."""
    from clickhouse_server import running_clickhouse  # noqa: PLC0415 - one of its own, to be killed

    monkeypatch.setattr(batches, "BATCH_S", 0.05)
    monkeypatch.setattr(batches, "AGAIN_S", (0.05, 0.2))
    monkeypatch.setattr(batches, "FULL_S", 0.05)
    with running_clickhouse() as server:
        name = server.create()
        db = opened(server, name)
        writer = start(db, Keep(), tmp_path / "journal.db")
        assert writer.submit(segment(1)).result(30).status == pb.STORED
        settled(writer)
        server.kill()
        assert [writer.submit(segment(i)).result(30).status for i in (2, 2, 3)] == [pb.STORED, pb.DUPLICATE, pb.STORED]
        deadline = time.monotonic() + 30
        while "no ClickHouse answers" not in writer.failed:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        writer.limit_bytes = 1
        waiting = writer.submit(segment(4))
        time.sleep(0.3)
        assert writer.full
        assert not waiting.done()
        server.start()
        assert waiting.result(30).status == pb.STORED
        settled(writer)
        assert total_ns(db) == 2 * sum(1000 + i + 110 for i in (1, 2, 3, 4))
        writer.close()
        db.close()


def test_a_store_that_starts_again_goes_on(
    clickhouse: ClickHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits in the journal is inserted by the next store; repetitions of before are known."""
    monkeypatch.setattr(batches, "BATCH_S", 3600.0)
    name, file = clickhouse.create(), tmp_path / "journal.db"
    db = opened(clickhouse, name)
    writer = start(db, Keep(), file)
    assert writer.submit(segment(1)).result(30).status == pb.STORED
    with pytest.raises(RoofwatchError, match="another store holds the journal"):
        start(db, Keep(), file)
    with pytest.raises(
        RoofwatchError, match=r"is written by another store, whose journal is .*journal.db: stop that one"
    ):
        start(db, Keep(), tmp_path / "other.db")
    assert clickhouse.run("SELECT count() FROM windows", name) == [["0"]]
    writer.close()
    assert clickhouse.run("SELECT count() FROM windows", name) == [["2"]]
    writer = start(db, Keep(), file)
    assert writer.submit(segment(1)).result(30).status == pb.DUPLICATE
    other = Unpacker().unpack(segment_of([window_of("x", [stat(GEMM, [1])])], 1))
    assert "two agents share one identity" in writer.submit(other).result(30).reason
    assert writer.submit(segment(2)).result(30).status == pb.STORED
    writer.close()
    with raw_only():
        assert total_ns(db) == 2 * (1110 + 1 + 1110 + 2)
    assert clickhouse.run(
        "SELECT count() FROM (SELECT bitAnd(id, 1099511627775) AS s FROM windows GROUP BY s)", name
    ) == [["4"]]
    db.close()


def test_a_journal_that_was_lost(clickhouse: ClickHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two minutes later a new one takes over: numbers go on, and sums that are whole stay so."""
    from roofwatch.store.clickhouse import holding, upkeep  # noqa: PLC0415

    monkeypatch.setattr(batches, "BATCH_S", 0.05)
    name = clickhouse.create()
    db = opened(clickhouse, name)
    writer = start(db, Keep(), tmp_path / "journal.db")
    writer.submit(segment(1)).result(30)
    settled(writer)
    with db.engine.connect() as connection:
        upkeep.prune_all(connection, writer.journal, DAYS + 2 * DAY_NS, Keep())
    writer.close()
    monkeypatch.setattr(holding, "HELD_NS", 0)
    writer = start(db, Keep(), tmp_path / "new.db")
    writer.submit(segment(2)).result(30)
    settled(writer)
    rows = clickhouse.run("SELECT count(), uniqExact(id) FROM windows", name)
    assert rows == [["4", "4"]]
    assert clickhouse.run("SELECT stale FROM rollups FINAL WHERE grain = 3600", name) == [["true"]]
    assert total_ns(db) == 2 * (1110 + 1 + 1110 + 2)
    writer.close()
    db.close()
