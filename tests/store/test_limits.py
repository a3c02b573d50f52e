"""What one sender, one segment or a long life may take of a store: each bounded, and refused with a reason."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import fresh
import pytest
from sqlalchemy import Connection, event, select, text
from store_builders import GEMM, process_of, segment_of, stat, window_of

from roofwatch.model.histogram import Histogram
from roofwatch.model.record import Window
from roofwatch.proto import codec, weight
from roofwatch.proto.codec import WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import catalog, ingest, retention, rollup, rollup_groups, schema, unpack
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.histograms import BUCKETS
from roofwatch.store.ingest import Writer
from roofwatch.store.load import Loader
from roofwatch.store.outcome import STORED
from roofwatch.store.rollup_schema import HOUR_S
from roofwatch.store.unpack import Unpacker

HOUR_NS = 3600 * 10**9
BEGIN_NS = 1_800_000_000_000_000_000 // (24 * HOUR_NS) * 24 * HOUR_NS


def at(name: str, hour: int, pid: int = 100, **more: Any) -> Window:
    """A window of one kernel, in an hour."""
    process = process_of(pid=pid)
    return window_of(name, [stat(GEMM, [1000])], start_unix_ns=BEGIN_NS + hour * HOUR_NS + 1, process=process, **more)


def opened(folder: Path) -> Database:
    """A new database."""
    return fresh.opened(folder / "s.db")


def commits_of(db: Database) -> list[float]:
    """When each transaction of writers ends, from now on."""
    found: list[float] = []

    def committed(connection: Connection) -> None:
        if connection.get_execution_options().get("roofwatch_write"):
            found.append(time.monotonic())

    event.listen(db.engine, "commit", committed)
    return found


def test_a_segment_of_too_many_windows_is_refused() -> None:
    """They need no kernels, and cost as much as those that have."""
    message = pb.Segment(schema=codec.SEGMENT_SCHEMA)
    for _ in range(unpack.MAX_WINDOWS + 1):
        message.windows.add()
    with pytest.raises(WireError, match="10001 windows: the limit is 10000"):
        Unpacker().unpack(codec.seal(message, "agent", "boot", 1))


def test_a_segment_of_too_many_states_is_refused() -> None:
    """An empty one is two bytes on the wire, and an object and a row here."""
    message = pb.Segment(schema=codec.SEGMENT_SCHEMA)
    for _ in range(unpack.MAX_STATES + 1):
        message.states.add()
    with pytest.raises(WireError, match="states of 10001 processes: the limit is 10000"):
        Unpacker().unpack(codec.seal(message, "agent", "boot", 1))


def test_a_group_ends_with_its_windows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five segments that wait, of four windows each: where six are enough, two are one transaction."""
    monkeypatch.setattr(ingest, "GROUP_WINDOWS", 6)
    db, unpacker = opened(tmp_path), Unpacker()
    works = [unpacker.unpack(segment_of([at(f"{n} {i}", 0) for i in range(4)], n)) for n in range(1, 6)]
    writer, commits = Writer(db), commits_of(db)
    with db.write():
        waiting = [writer.submit(work) for work in works]
    assert [one.result() for one in waiting] == [STORED] * 5
    writer.close()
    assert len(commits) - 1 >= 3  # the first holds what was there when it began
    db.close()


def test_sums_of_groups_are_forgotten_in_any_number(tmp_path: Path) -> None:
    """More hours and nodes than a statement takes values."""
    db = opened(tmp_path)
    with db.write() as connection:
        rollup_groups.forget(connection, HOUR_S, range(20_000), range(1, 20_000))
    db.close()


def test_a_full_catalog_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dictionaries that were resolved with it would keep it."""
    monkeypatch.setattr(catalog, "MAX_KNOWN", 1)
    unpacker = Unpacker()
    kinds = [dataclasses.replace(GEMM, kernel=f"gemm {i}") for i in range(6)]
    for n in range(3):
        own = [stat(kind, [10]) for kind in kinds[2 * n : 2 * n + 2]]
        for again in range(2):  # what comes once is not kept
            unpacker.unpack(segment_of([window_of(f"w{n}", own)], 2 * n + again + 1))
    known = unpacker.dictionaries
    kept = [one for one, _ in known._known.values()]
    assert {id(one.catalog) for one in kept} == {id(known.catalog)}
    assert known._cells == sum(one.cells for one in kept)


def test_sets_of_devices_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender draws another subset for each window; their ids stay what they are."""
    monkeypatch.setattr(unpack, "MAX_SETS", 2)
    base = at("w", 0)
    windows = [dataclasses.replace(at(f"w{i}", 0), devices=base.devices * (i + 1)) for i in range(5)]
    found = Unpacker().unpack(segment_of(windows, 1))
    assert len(found.dictionary.sets) <= 2
    alone = [Unpacker().unpack(segment_of([w], 1)).windows[0].devices_id for w in windows]
    assert [w.devices_id for w in found.windows] == alone


def test_a_histogram_that_ends_beyond_the_last_bucket_is_refused() -> None:
    """Both its beginning and its length are within the limit, their sum is not."""
    for low, counts, good in ((BUCKETS - 2, (1, 1), True), (BUCKETS - 1, (1, 1), False)):
        kernel = dataclasses.replace(stat(GEMM, [10, 10]), histogram=Histogram(low, counts))
        envelope = segment_of([window_of("w", [kernel])], 1)
        if good:
            assert len(Unpacker().unpack(envelope).windows) == 1
            continue
        with pytest.raises(WireError, match="histogram: 1201 is out of range"):
            Unpacker().unpack(envelope)


def test_fields_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small numbers weigh little: what takes long is to look at each."""
    monkeypatch.setattr(weight, "MAX_FIELDS", 1000)
    for fields, good in ((1000, True), (1001, False)):
        raw = b"\x08\x01" * fields
        if good:
            assert weight.parsed_bytes(raw, pb.Segment.DESCRIPTOR, 1 << 30) == 8 * fields
            continue
        with pytest.raises(ValueError, match="more than 1000 fields"):
            weight.parsed_bytes(raw, pb.Segment.DESCRIPTOR, 1 << 30)


def test_processes_that_wait_for_a_sum_are_remembered_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where very many begin an hour at once the store's upkeep finds them by itself."""
    monkeypatch.setattr(rollup, "KNOWN_MOST", 20)
    monkeypatch.setattr(rollup, "AT_ONCE", 1)
    db, loader, unpacker = opened(tmp_path), Loader(now_ns=time.time_ns), Unpacker()
    for n in range(1, 6):
        works = [unpacker.unpack(segment_of([at(f"{n} {i}", 0, pid=100 * n + i) for i in range(10)], n))]
        with db.write() as connection:
            loader.load(connection, works)
        loader.commit()
        assert len(loader.waiting) <= 30
    with db.write() as connection:
        while rollup.sweep(connection, BEGIN_NS + 30 * HOUR_NS):
            pass
        assert connection.execute(select(schema.rollups.c.grain).where(schema.rollups.c.stale)).all() == []
    db.close()


def test_pruning_lets_others_write_in_between(tmp_path: Path) -> None:
    """Sums of forty hours are several transactions, and each tells how far it is."""
    db, loader, unpacker = opened(tmp_path), Loader(now_ns=time.time_ns), Unpacker()
    works = [unpacker.unpack(segment_of([at(f"{n} {i}", n, pid=100 + i) for i in range(10)], n + 1)) for n in range(4)]
    with db.write() as connection:
        loader.load(connection, works)
    loader.commit()
    commits, told = commits_of(db), []
    retention.prune_all(db, BEGIN_NS + 9 * HOUR_NS, Keep(), told.append)
    assert len(commits) >= 40 // rollup.AT_ONCE
    assert told[0] == f"{rollup.AT_ONCE} sums made"
    assert len(told) == len(commits)
    db.close()


def test_late_windows_of_damaged_sums_are_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its hour is gone but for a sum that cannot be read: the window and its segment's others are taken, told once."""
    db, unpacker = opened(tmp_path), Unpacker()
    writer = Writer(db)

    def put(sequence: int, *windows: Window) -> None:
        assert writer.submit(unpacker.unpack(segment_of(list(windows), sequence))).result() == STORED

    put(1, at("first", 0), at("other", 0, pid=5))
    retention.prune_all(db, BEGIN_NS + 9 * HOUR_NS, Keep(3600))
    with db.write() as connection:
        assert not any(connection.scalars(select(schema.rollups.c.finer).where(schema.rollups.c.grain == HOUR_S)))
        process = "SELECT id FROM processes WHERE pid = 100"
        connection.execute(text(f"UPDATE kernel_sums SET sums = x'0011' WHERE process_id = ({process})"))  # noqa: S608
    put(2, at("late", 0), at("late other", 0, pid=5))
    put(3, at("later", 0))
    writer.close()
    assert len([message for message in caplog.messages if "cannot be added to its sums" in message]) == 1
    assert writer.broken_sums() == 1
    with db.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM windows")).scalar() == 5
    db.close()
