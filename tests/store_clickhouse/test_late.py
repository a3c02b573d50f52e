"""Windows of an hour of which sums alone are kept: whoever asks while these are added finds the old sums or the new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clickhouse_server import ClickHouse
from rollup_builders import BEGIN_NS, DAY_NS, HOUR_NS
from sqlalchemy import Connection
from store_builders import GEMM, NORM, process_of, segment_of, stat, window_of

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import BudgetState, ProcessState
from roofwatch.proto import codec
from roofwatch.store import database
from roofwatch.store.clickhouse import reading, sums, upkeep
from roofwatch.store.clickhouse.flush import Flusher
from roofwatch.store.clickhouse.journal import Journal, open_file
from roofwatch.store.clickhouse.opening import ClickHouse as Opened
from roofwatch.store.clickhouse.pieces import Key
from roofwatch.store.clickhouse.remembered import remembered
from roofwatch.store.config import Keep
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.unpack import Unpacked, Unpacker

KEEP = Keep(3600, 99 * 86_400)
HOUR = Filter(since_unix_ns=BEGIN_NS, until_unix_ns=BEGIN_NS + HOUR_NS)


def segment(number: int, pid: int = 1) -> Unpacked:
    """A window of two kernels, 1,110 ns and the number."""
    kernels = [stat(GEMM, [1000 + number]), stat(NORM, [50, 60])]
    window = window_of(f"{pid}-{number}", kernels, start_unix_ns=BEGIN_NS, process=process_of(pid=pid))
    return Unpacker().unpack(segment_of([window], 10 * pid + number))


def forget(connection: Connection) -> None:
    """As if nobody had asked before."""
    known = remembered(connection)
    assert known is not None
    known.clear()


def total_ns(db: Opened, f: Filter, *, anew: bool = True) -> int:
    """Device time of all kernels, whichever way they are asked for; ``anew``: by somebody who never asked before."""
    if anew:
        with db.engine.connect() as connection:
            forget(connection)
    ways = (
        Queries(db).run("top", f)["rows"],
        Queries(db).run("top_by", f, options={"by": "node"})["rows"],
        Queries(db).run("top_by", f, options={"by": "kernel"})["rows"],
    )
    found = {sum(row["total_ns"] for row in rows) for rows in ways}
    assert len(found) == 1, found
    return found.pop()


@pytest.fixture
def db(clickhouse: ClickHouse):
    """A database of its own."""
    opened = database.open(clickhouse.url(clickhouse.create()))
    assert isinstance(opened, Opened)
    yield opened
    opened.close()


@pytest.mark.parametrize("processes", [1, 20])
def test_sums_that_are_added_to_stay(
    db: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Also where a store ends with the new sums written and not told, and a day is summed up from them."""
    journal = open_file(tmp_path / "journal.db")
    flusher = Flusher(db, journal, KEEP)

    def taken(*some: Unpacked) -> None:
        with journal.write() as kept:
            journal.take(kept, some, BEGIN_NS)

    taken(*(segment(0, pid) for pid in range(1, processes + 1)))
    assert flusher.flush(30_000)
    with db.engine.connect() as connection:
        upkeep.prune_all(connection, journal, BEGIN_NS + 2 * DAY_NS, KEEP)
    before, after = 1110 * processes, 1110 * processes + 1117
    assert total_ns(db, HOUR) == total_ns(db, HOUR, anew=False) == total_ns(db, Filter()) == before
    seen = []
    plain = sums._kernels_in

    def ending(connection: object, key: Key, found: object, number: int) -> None:
        seen.append(total_ns(db, HOUR))
        plain(connection, key, found, number)  # type: ignore[arg-type]
        seen.append(total_ns(db, HOUR))
        raise RoofwatchError("the store is killed")

    taken(segment(7))
    with monkeypatch.context() as patched:
        patched.setattr(sums, "_kernels_in", ending)
        with pytest.raises(RoofwatchError, match="is killed"):
            flusher.flush(30_000)
    assert seen == [before, after]
    assert total_ns(db, HOUR) == after
    with db.engine.connect() as connection:
        assert sums.sweep(connection, journal, BEGIN_NS + 2 * DAY_NS) == 1
    assert total_ns(db, Filter()) == after
    assert {total_ns(db, f, anew=False) for f in (HOUR, Filter())} == {after}
    finished(flusher, journal)
    taken(segment(9))
    finished(flusher, journal)
    assert {total_ns(db, f, anew=False) for f in (HOUR, Filter())} == {after + 1119}
    assert {total_ns(db, f) for f in (HOUR, Filter())} == {after + 1119}
    journal.close()


def test_small_sums_as_texts_say_what_their_tables_do(db: Opened, tmp_path: Path) -> None:
    """An answer from texts is that from windows; where one is of another attempt, or missing, the tables are read."""
    journal = open_file(tmp_path / "journal.db")
    flusher = Flusher(db, journal, KEEP)
    with journal.write() as kept:
        journal.take(kept, [segment(0, pid) for pid in range(1, 4)], BEGIN_NS)
    finished(flusher, journal)
    asked = [("top", Filter()), ("diagnose", HOUR), ("timeline", Filter(device="a"))]
    with raw_only():
        wanted = [without_sources(Queries(db).run(query, f)) for query, f in asked]
    another = "SELECT grain, process_id, bucket_unix_ns, build + 1000, '{}' FROM packed_sums LIMIT 1"
    for spoilt in ("", f"INSERT INTO packed_sums {another}", "TRUNCATE TABLE packed_sums"):
        with db.engine.connect() as connection:
            if spoilt:
                connection.exec_driver_sql(spoilt)
            forget(connection)
        with reading_told() as read:
            assert [without_sources(Queries(db).run(query, f)) for query, f in asked] == wanted
        assert any("FROM packed_sums" in sql for sql in read)
        assert any("FROM window_sums" in sql for sql in read) == bool(spoilt)
    journal.close()


def without_sources(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer but for the tables that it is from."""
    told = {name: value for name, value in answer["coverage"].items() if "source" not in name}
    return {**answer, "coverage": told}


def test_a_clock_that_was_ahead_hides_nothing(db: Opened, tmp_path: Path) -> None:
    """What an agent told a year ahead is of when it came; so it yields to what the agent tells once its clock is right.

    A little ahead is no wrong clock: as on the other engines.
    """
    journal = open_file(tmp_path / "journal.db")
    flusher = Flusher(db, journal, KEEP)

    def told(sequence: int, ahead_ns: int, now_ns: int, **skipped: int) -> tuple[int, dict[str, int]]:
        state = ProcessState(process_of(pid=1), now_ns + ahead_ns, BEGIN_NS - 7, BudgetState("schedule"), skipped)
        envelope = codec.seal(codec.segment([], {}, [state]), "agent-a", "boot-a", sequence)
        with journal.write() as kept:
            journal.take(kept, [Unpacker().unpack(envelope)], now_ns)
        assert flusher.flush(30_000)
        [row] = Queries(db).run("processes", Filter())["rows"]
        return row["told_unix_ns"], row["skipped"]

    assert told(1, 5_000_000_000, BEGIN_NS, budget=1) == (BEGIN_NS + 5_000_000_000, {"budget": 1})
    assert told(2, 365 * DAY_NS, BEGIN_NS + 10**10, budget=2) == (BEGIN_NS + 10**10, {"budget": 2})
    assert told(3, -5, BEGIN_NS + 2 * 10**10, budget=3) == (BEGIN_NS + 2 * 10**10 - 5, {"budget": 3})
    journal.close()


def finished(flusher: Flusher, journal: Journal) -> None:
    """The batch is repeated, and what it made stale is summed up."""
    while flusher.flush(30_000):
        pass
    with flusher.database.engine.connect() as connection:
        while sums.sweep(connection, journal, BEGIN_NS + 2 * DAY_NS):
            pass


@contextmanager
def reading_told() -> Iterator[list[str]]:
    """The statements that whole columns are read by."""
    plain, statements = reading._read, list[str]()

    def told(connection: Any, settings: Any, sql: str, names: Any) -> Any:
        statements.append(sql)
        return plain(connection, settings, sql, names)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "_read", told)
        yield statements
