"""What must not happen whatever breaks: two stores on one database, a damaged hour, odd dates, a clock that jumps."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path

import pytest
from clickhouse_server import ClickHouse
from rollup_builders import BEGIN_NS, DAY_NS, HOUR_NS
from sqlalchemy import select
from store_builders import GEMM, NORM, process_of, segment_of, stat, window_of

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Collective
from roofwatch.proto.codec import WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import database, schema
from roofwatch.store.checks import MAX_DEVICES
from roofwatch.store.clickhouse import holding, opening, sums, tables, upkeep
from roofwatch.store.clickhouse import writer as batches
from roofwatch.store.clickhouse.flush import Flusher
from roofwatch.store.clickhouse.journal import Journal, open_file
from roofwatch.store.clickhouse.taking import MOST_DAYS, weight
from roofwatch.store.clickhouse.writer import start
from roofwatch.store.config import Keep
from roofwatch.store.days import came
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.unpack import Unpacked, Unpacker

ALL = Keep(400 * 86_400, 400 * 86_400, 400 * 86_400)


def opened(clickhouse: ClickHouse) -> tuple[str, opening.ClickHouse]:
    """A database of its own, open."""
    name = clickhouse.create()
    found = database.open(clickhouse.url(name))
    assert isinstance(found, opening.ClickHouse)
    return name, found


def segment(number: int, start_unix_ns: int = BEGIN_NS, pid: int = 1, agent: str = "agent-a") -> Unpacked:
    """A window of two kernels, 1,110 ns and the number."""
    kernels = [stat(GEMM, [1000 + number]), stat(NORM, [50, 60])]
    window = window_of(f"{agent}-{number}", kernels, start_unix_ns=start_unix_ns, process=process_of(pid=pid))
    return Unpacker().unpack(segment_of([window], number, agent=agent))


def written(journal: Journal, *segments: Unpacked) -> None:
    """Acknowledged."""
    with journal.write() as kept:
        outcomes, _ = journal.take(kept, segments, time.time_ns())
    assert [outcome.status for outcome in outcomes] == [pb.STORED] * len(segments)


def flushed(flusher: Flusher) -> None:
    """All that waits is in ClickHouse."""
    while flusher.flush(30_000):
        pass


def total_ns(db: database.Database) -> int:
    """Device time of all kernels."""
    return sum(row["total_ns"] for row in Queries(db).run("top", Filter())["rows"])


def test_who_lost_the_database_inserts_nothing(
    clickhouse: ClickHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a batch nor a sum; its senders are told, and what it had acknowledged stays in its journal."""
    monkeypatch.setattr(batches, "BATCH_S", 3600.0)
    monkeypatch.setattr(batches, "AGAIN_S", (0.05, 0.1))
    name, db = opened(clickhouse)
    first = start(db, ALL, tmp_path / "first.db")
    assert first.submit(segment(1)).result(30).status == pb.STORED
    monkeypatch.setattr(holding, "HELD_NS", 0)
    second = start(db, ALL, tmp_path / "second.db")
    monkeypatch.setattr(batches, "BATCH_S", 0.0)
    first._wake.set()
    deadline = time.monotonic() + 30
    while first.lost is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(RoofwatchError, match=r"another store has taken the database over, its journal is .*second.db"):
        first.submit(segment(2)).result(30)
    with pytest.raises(holding.LostError):
        first.flusher.flush(30_000)
    first.close()
    assert clickhouse.run("SELECT count() FROM windows", name) == [["0"]]
    assert second.submit(segment(2)).result(30).status == pb.STORED
    second.close()
    assert clickhouse.run("SELECT count() FROM windows", name) == [["1"]]
    db.close()


def test_who_takes_over_knows_what_is_there(
    clickhouse: ClickHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that come again count once, and numbers begin where the journal before cannot have come to."""
    monkeypatch.setattr(holding, "HELD_NS", 0)
    name, db = opened(clickhouse)
    for file in ("first.db", "second.db"):
        journal = open_file(tmp_path / file)
        with db.engine.connect() as connection:
            holding.take_over(connection, journal, name, time.time_ns())
        written(journal, segment(1), segment(len(file)))  # the first is the same window in both
        flusher = Flusher(db, journal, ALL)
        flushed(flusher)
        with journal.write() as kept:
            assert journal.next(kept, "build") > (holding.AHEAD if file == "second.db" else 0)
        journal.close()
    assert clickhouse.run("SELECT count(), uniqExact(uid) FROM windows", name) == [["3", "3"]]
    serials = clickhouse.run("SELECT bitAnd(id, 1099511627775) AS s FROM windows ORDER BY s", name)
    assert [int(row[0]) > holding.AHEAD for row in serials] == [False, False, True]
    assert total_ns(db) == 1110 + 1 + 1110 + 8 + 1110 + 9
    db.close()


def test_kernels_count_with_their_windows(
    clickhouse: ClickHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a batch that breaks before its windows, or before what its kernels point to, nothing is told."""
    _, db = opened(clickhouse)
    journal = open_file(tmp_path / "journal.db")
    flusher = Flusher(db, journal, Keep())
    written(journal, segment(1))
    flushed(flusher)
    broken = RoofwatchError("no route to host")
    for place in ("roofwatch.store.clickhouse.batch.insert", "roofwatch.store.clickhouse.batch.Tables.write_windows"):
        written(journal, segment(2 if "insert" in place else 3))
        with monkeypatch.context() as patched:
            patched.setattr(place, partial(_raise, broken))
            with pytest.raises(RoofwatchError, match="no route"):
                flusher.flush(30_000)
        assert total_ns(db) == 1111, place
        with raw_only():
            assert total_ns(db) == 1111, place
    with db.engine.connect() as connection:
        assert sums.sweep(connection, journal, BEGIN_NS + 2 * HOUR_NS) == 1
    assert total_ns(db) == 1111
    flushed(flusher)
    assert total_ns(db) == 1111 + 1112 + 1113
    journal.close()
    db.close()


def _raise(error: Exception, *_: object) -> None:
    raise error


def test_a_damaged_hour_holds_nothing_up(clickhouse: ClickHouse, tmp_path: Path) -> None:
    """It is told once and left; the other hours and processes are summed up, once each."""
    name, db = opened(clickhouse)
    journal = open_file(tmp_path / "journal.db")
    written(journal, segment(1, pid=1), segment(2, pid=2), segment(3, BEGIN_NS + HOUR_NS, pid=2))
    flushed(Flusher(db, journal, ALL))
    broken = segment(1, pid=1).windows[0].process_id
    clickhouse.run(
        "INSERT INTO kernel_facts (process_id, start_unix_ns, window_id, histogram_buckets, histogram_counts) "  # noqa: S608
        f"SELECT process_id, start_unix_ns, id, [1, 2], [1] FROM windows WHERE process_id = {broken}",
        name,
    )
    with db.engine.connect() as connection:
        rounds = 0
        while sums.sweep(connection, journal, BEGIN_NS + 3 * DAY_NS):
            rounds += 1
            assert rounds < 10
    found = clickhouse.run("SELECT grain, process_id FROM rollups FINAL WHERE NOT stale ORDER BY grain", name)
    other = str(segment(2, pid=2).windows[0].process_id)
    assert found == [["3600", other], ["3600", other], ["86400", other]]
    assert {key[2] for key in journal.broken} == {broken}
    journal.close()
    db.close()


def test_days_that_windows_make_are_not_without_limit(clickhouse: ClickHouse, tmp_path: Path) -> None:
    """Of 80 windows of 80 days 64 have a partition each, the rest have that of imported ones; all are asked for."""
    name, db = opened(clickhouse)
    journal = open_file(tmp_path / "journal.db")
    written(journal, *(segment(number, BEGIN_NS - number * 9 * DAY_NS) for number in range(1, 81)))
    flushed(Flusher(db, journal, ALL))
    days = clickhouse.run("SELECT count(), uniqExact(bitShiftRight(id, 40)) FROM windows", name)
    assert days == [["80", str(MOST_DAYS + 1)]]
    assert total_ns(db) == 80 * 1110 + sum(range(1, 81))
    written(journal, segment(99, time.time_ns() // DAY_NS * DAY_NS))  # today has one whatever came before
    flushed(Flusher(db, journal, ALL))
    days = clickhouse.run("SELECT uniqExact(bitShiftRight(id, 40)) FROM windows", name)
    assert days == [[str(MOST_DAYS + 2)]]
    journal.close()
    db.close()


def test_windows_are_in_the_order_in_which_they_came(clickhouse: ClickHouse, tmp_path: Path) -> None:
    """That of an earlier day came later."""
    _, db = opened(clickhouse)
    journal = open_file(tmp_path / "journal.db")
    written(journal, segment(1, BEGIN_NS + DAY_NS), segment(2, BEGIN_NS))
    flushed(Flusher(db, journal, ALL))
    w = schema.windows.c
    with db.read() as connection:
        starts = connection.scalars(select(w.start_unix_ns).order_by(came(w.id))).all()
    assert starts == [BEGIN_NS + DAY_NS, BEGIN_NS]
    journal.close()
    db.close()


def test_a_clock_that_jumps_takes_nothing_away(clickhouse: ClickHouse, tmp_path: Path) -> None:
    """Not even where the newest window shares that clock; a store that starts with it believes it."""
    name, db = opened(clickhouse)
    journal = open_file(tmp_path / "journal.db")
    now = [BEGIN_NS + HOUR_NS]
    flusher = Flusher(db, journal, Keep(3600, 3600, 400 * 86_400), now_ns=lambda: now[0])
    written(journal, segment(1))
    flushed(flusher)
    flusher.upkeep()
    now[0] += 30 * DAY_NS
    written(journal, segment(2, now[0]))
    flushed(flusher)
    for _ in range(4):
        flusher.cleared_s = 0.0
        flusher.upkeep()
    assert clickhouse.run("SELECT count() FROM kernel_facts", name) == [["4"]]
    again = Flusher(db, journal, flusher.keep, now_ns=lambda: now[0])
    for _ in range(4):
        again.cleared_s = 0.0
        again.upkeep()
    assert clickhouse.run("SELECT count() FROM kernel_facts", name) == [["2"]]
    assert upkeep.reference(journal, now[0] + DAY_NS) < now[0] + DAY_NS
    journal.close()
    db.close()


def test_windows_without_kernels_have_a_weight() -> None:
    """A batch and what is remembered of it are bounded by more than kernels."""
    plain = [window_of(f"{i}", []) for i in range(50)]
    assert weight(Unpacker().unpack(segment_of(plain, 1))) >= 50 * 20
    one = Collective(device=0, name="all_reduce", group="g", start_unix_ns=1, duration_ns=1)
    many = dataclasses.replace(window_of("x", []), collectives=(one,) * 500)
    assert weight(Unpacker().unpack(segment_of([many], 1))) >= 500


def test_places_of_devices_fit_their_column() -> None:
    """As many devices as a window may have are told apart; more are rejected whatever the engine."""
    one = window_of("x", [])
    most = (one.devices * MAX_DEVICES)[:MAX_DEVICES]
    assert tables.FACT_COLUMNS["device"].startswith("UInt16")
    assert MAX_DEVICES <= 1 << 16
    segment_ = segment_of([dataclasses.replace(one, devices=most)], 1)
    assert len(Unpacker().unpack(segment_).windows[0].devices) == MAX_DEVICES
    with pytest.raises(WireError, match="4097 devices in a window: at most 4096"):
        Unpacker().unpack(segment_of([dataclasses.replace(one, devices=(*most, most[0]))], 1))


def test_what_is_inserted_is_synced(clickhouse: ClickHouse) -> None:
    """Of every table: the journal gives up what ClickHouse has, so that must survive a power cut."""
    name, db = opened(clickhouse)
    made = clickhouse.run(f"SELECT name, create_table_query FROM system.tables WHERE database = '{name}'")  # noqa: S608
    assert len(made) > 20
    for table, text in made:
        assert "fsync_after_insert = 1" in text, table
        assert "fsync_part_directory = 1" in text, table
    db.close()
