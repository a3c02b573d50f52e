"""What is removed when, and that answers about old times stay what they were."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import fresh
import pytest
from rollup_builders import BEGIN_NS, DAY_NS, DAYS, HOUR_NS, processes, window
from sqlalchemy import func, select
from store_builders import GEMM, process_of, segment_of, stat, window_of

from roofwatch.model.errors import UsageError
from roofwatch.model.record import Trigger, Window
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import retention, schema
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.load import Hello, Loader
from roofwatch.store.queries import Queries
from roofwatch.store.queries.run import QUERIES
from roofwatch.store.retention import Believed, Upkeep, prune, prune_all
from roofwatch.store.unpack import Unpacker

SECONDS = 10**9
SHORT = Keep(raw_s=3600, hourly_s=86_400, daily_s=2 * 86_400)


def store(db: Database, windows: list[Window], sequence: int) -> None:
    """One segment."""
    writer = Writer(db)
    writer.submit(Unpacker().unpack(segment_of(windows, sequence)))
    writer.close()


def count(db: Database, table: Any) -> int:
    """Rows of a table."""
    with db.read() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def at(name: str, ns: int, **more: Any) -> Window:
    """A window of one kernel of 10 ns."""
    return window_of(name, [stat(GEMM, [10])], start_unix_ns=BEGIN_NS + ns, **more)


def total(db: Database, f: Filter) -> tuple[int, list[Any]]:
    """Device time of all kernels, and what was left out."""
    found = Queries(db).run("top", f)
    return sum(row["total_ns"] for row in found["rows"]), found["coverage"]["left_out"]


def test_what_is_old_becomes_coarser(db: Database) -> None:
    """Windows' kernels go first, then windows and hours, then days; each time what is left answers what it can."""
    store(db, [at(f"w{i}", i * HOUR_NS // 2) for i in range(48)], 1)
    whole = Filter(BEGIN_NS, BEGIN_NS + DAY_NS)
    cut = Filter(BEGIN_NS + HOUR_NS // 4, BEGIN_NS + 2 * HOUR_NS)
    assert total(db, cut) == (30, [])

    now = BEGIN_NS + DAY_NS + HOUR_NS
    found = prune_all(db, now, SHORT)
    assert (found.hours_of_kernels, found.days_of_hours, found.days) == (24, 0, 0)
    assert (count(db, schema.kernel_blocks), count(db, schema.windows)) == (0, 48)
    assert total(db, whole) == (480, [])
    gone = {"since_unix_ns": cut.since_unix_ns, "until_unix_ns": BEGIN_NS + HOUR_NS}
    assert total(db, cut) == (20, [gone])

    found = prune_all(db, now + DAY_NS, SHORT)
    assert (found.hours_of_kernels, found.days_of_hours, found.days) == (0, 1, 0)
    assert [count(db, t) for t in (schema.windows, schema.window_devices, schema.idle_causes)] == [0, 0, 0]
    assert count(db, schema.rollups) == 1
    assert total(db, whole) == (480, [])
    gone = {"since_unix_ns": cut.since_unix_ns, "until_unix_ns": cut.until_unix_ns}
    assert total(db, cut) == (0, [gone])

    assert prune_all(db, now + 20 * DAY_NS, SHORT).days == 1  # its month is over, too: Postgres drops days by months
    assert [count(db, t) for t in (schema.rollups, schema.kernel_sums, schema.window_sums)] == [0, 0, 0]
    assert total(db, whole) == (0, [])


def test_an_answer_says_what_its_rows_come_from(tmp_path: Path) -> None:
    """Rows that are said to come from windows go with them; all others are the same from the sums of days alone."""
    db = fresh.opened(tmp_path / "store.db")
    kept = Keep(10**9, 10**9, 10**9)
    store(db, [at(f"w{i}", i * HOUR_NS, represents_ns=HOUR_NS // 2) for i in range(48)], 1)
    prune_all(db, BEGIN_NS + 9 * DAY_NS, kept)

    def asked() -> dict[str, tuple[str, list[Any]]]:
        own = {"whatif": {"bandwidth": 2.0}, "top_by": {"by": "op"}}
        names = [*QUERIES, *own, "records"]
        found = {name: Queries(db).run(name, Filter(), options=own.get(name)) for name in names}
        return {name: (told["coverage"]["rows_source"], told["rows"]) for name, told in found.items()}

    before = asked()
    assert not prune_all(db, BEGIN_NS + 9 * DAY_NS, dataclasses.replace(kept, raw_s=3600, hourly_s=3600)).nothing
    assert count(db, schema.windows) == 0
    after = asked()
    by_window = {name for name, (source, _) in before.items() if source == "raw"}
    assert by_window == {"windows", "timeline_window", "peers", "ranks", "padding", "records"}
    assert {name for name, (source, _) in after.items() if source == "daily"} == after.keys() - by_window
    for name in after.keys() - {"padding"}:  # its rows are the schemes, which stay without figures
        rows = after[name][1]
        assert rows == ([] if name in by_window else before[name][1]), name
    assert before["windows"][1]
    db.close()


@pytest.mark.parametrize("old", [HOUR_NS * 2, DAY_NS + HOUR_NS])
def test_a_window_that_comes_after_its_time_was_cleared_counts_once(db: Database, old: int) -> None:
    """It is added to what is kept of its time, and sending it again changes nothing."""
    store(db, [at("a", 1), at("b", 2)], 1)
    prune_all(db, BEGIN_NS + DAY_NS + old, SHORT)
    store(db, [at("late", 3)], 2)
    store(db, [at("late", 3)], 3)
    assert total(db, Filter()) == (30, [])
    coverage = Queries(db).run("top", Filter())["coverage"]
    assert (coverage["windows"], coverage["device_time_ns"]) == (3, 30)
    assert count(db, schema.kernel_blocks) == 0


@pytest.mark.parametrize("level", [1, 2])
def test_answers_are_those_of_a_store_that_kept_everything(tmp_path: Path, level: int) -> None:
    """Random windows, some after their time was cleared: whole days (and hours) answer alike to the last digit."""
    draw = random.Random(level)
    of = processes(draw)
    windows = [window(draw, f"{level}-{i}", draw.choice(of)) for i in range(90)]
    kept, pruned = (fresh.opened(tmp_path / f"{name}.db") for name in ("kept", "pruned"))
    for db in (kept, pruned):
        store(db, windows[:60], 1)
    keep = Keep(3600, (99 if level == 1 else 1) * 86_400, 99 * 86_400)
    now = BEGIN_NS + DAYS * DAY_NS + 2 * HOUR_NS
    assert not prune_all(pruned, now, keep).nothing
    for db in (kept, pruned):
        store(db, windows[60:], 2)
    prune_all(pruned, now, keep)
    step = HOUR_NS if level == 1 else DAY_NS
    for query in ("top", "roofline", "timeline", "timeline_process", "nodes", "processes"):
        for f in (Filter(), Filter(vendor="nvidia"), Filter(BEGIN_NS + DAY_NS + (step if level == 1 else 0), None)):
            answers = [Queries(db).run(query, f) for db in (kept, pruned)]
            for answer in answers:
                for name in ("source", "sources", "rows_source"):
                    answer["coverage"].pop(name)
                answer.get("cost", {}).pop("noise_ns", None)  # told by the losses of single windows, which are gone
                for row in answer["rows"]:
                    row.pop("agent_drops", None)
                    row.pop("lost_noise_ns", None)  # the same
            assert answers[0] == answers[1], (query, f)
    for db in (kept, pruned):
        db.close()


def test_who_keeps_for_millennia_keeps(db: Database) -> None:
    """More nanoseconds than 64 bits: nothing is removed, and what is over is summed up."""
    store(db, [at("old", 0)], 1)
    for_ever = 10**11
    assert prune_all(db, BEGIN_NS + 1000 * DAY_NS, Keep(for_ever, for_ever, for_ever)).nothing
    assert total(db, Filter()) == (10, [])
    assert Queries(db).run("top", Filter())["coverage"]["source"] == "daily"


def test_imported_windows_stay(db: Database) -> None:
    """A file's date says nothing of how long somebody wants it."""
    imported = dataclasses.replace(at("file", 5), trigger=Trigger.IMPORTED)
    store(db, [imported, at("live", 5, process=process_of("b", 2))], 1)
    prune_all(db, BEGIN_NS + 40 * DAY_NS, SHORT)
    assert count(db, schema.kernel_blocks) == count(db, schema.windows) == 1
    assert total(db, Filter()) == (10, [])


def test_a_clock_that_jumps_ahead_removes_nothing(db: Database) -> None:
    """The store's own upkeep counts age from the newest window, should the clock be far ahead of it."""
    store(db, [at(f"w{i}", i * HOUR_NS) for i in range(4)], 1)
    seconds = [0.0]
    upkeep = Upkeep(db, Keep(), now_ns=lambda: BEGIN_NS + 10_000 * DAY_NS, clock=lambda: seconds[0])
    upkeep.run()
    assert Queries(db).run("top", Filter())["coverage"]["source"] == "hourly"  # it was not its time yet
    for _ in range(9):
        seconds[0] += 60
        upkeep.run()
    assert Queries(db).run("top", Filter())["coverage"]["source"] == "daily"
    assert (count(db, schema.kernel_blocks), count(db, schema.segments)) == (4, 1)


def test_upkeep_is_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run removes no more than so many pieces; the next comes soon while there is more."""
    monkeypatch.setattr(retention, "AT_ONCE", 3)
    store(db, [at(f"w{i}", i * HOUR_NS) for i in range(20)], 1)
    with db.write() as connection:
        removed = retention.prune(connection, BEGIN_NS + 9 * DAY_NS, SHORT, 3)
    assert removed.hours_of_kernels == 3


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ((60, 86_400, 86_400), "--keep-raw 1m is too short: keep windows' kernels at least 1h"),
        ((40 * 86_400, 30 * 86_400, 86_400 * 400), "--keep-raw 40d is longer than --keep-hourly 30d: give --keep-"),
        ((3600, 7200, 5400), "--keep-hourly 2h is longer than --keep-daily 90m: give --keep-daily as long, or --keep-"),
    ],
)
def test_the_finer_goes_first(seconds: tuple[int, int, int], said: str) -> None:
    """A retention that would drop the coarser before the finer is refused, with both options and their values."""
    with pytest.raises(UsageError) as told:
        Keep(*seconds)
    assert str(told.value).startswith(said)


def test_a_segment_that_is_forgotten_is_still_no_new_one(db: Database) -> None:
    """Its number is kept a month, then the greatest that is gone: sent again later still it changes nothing."""
    segments = [Unpacker().unpack(segment_of([at(f"w{i}", i * HOUR_NS)], i)) for i in (1, 2, 3)]
    now = [BEGIN_NS]
    loader = Loader(now_ns=lambda: now[0])

    def load(*sent: int) -> list[int]:
        with db.write() as connection:
            loader.load(connection, [Hello("agent-a", "boot-a", "0", process_of().node)])
            found = [outcome.status for outcome in loader.load(connection, [segments[i - 1] for i in sent])]
        loader.commit()
        return found

    assert load(1, 2) == [pb.STORED, pb.STORED]
    now[0] += 31 * DAY_NS
    with db.write() as connection:
        newer = Unpacker().unpack(segment_of([at("new", 31 * DAY_NS)], 9))
        assert [outcome.status for outcome in loader.load(connection, [newer])] == [pb.STORED]
    loader.commit()
    found = prune_all(db, now[0] + DAY_NS, Keep(3600, 86_400, 400 * 86_400))
    assert (found.segments, count(db, schema.segments), count(db, schema.windows)) == (2, 1, 1)
    assert load(2, 3, 1) == [pb.DUPLICATE, pb.STORED, pb.DUPLICATE]  # the third was never sent
    assert total(db, Filter())[0] == 40


def test_a_clock_that_jumps_ahead_is_believed_a_day_later() -> None:
    """Years ahead: not now, but once it stood so for a day. Back, or a little ahead: at once."""
    second, hour = 10**9, HOUR_NS
    told = Believed(1000 * second)  # the clock, where the one that cannot be set is 0
    assert told.time_ns(1010 * second, 10.0) == 1010 * second
    assert told.time_ns(1020 * second + hour, 20.0) == 1020 * second + hour  # an hour: believed
    ahead = 2 * 365 * DAY_NS
    assert told.time_ns(1030 * second + hour + ahead, 30.0) == 1030 * second + hour
    assert told.time_ns(1040 * second + hour, 40.0) == 1040 * second + hour  # it was set right
    assert told.time_ns(1050 * second + hour + ahead, 50.0) == 1050 * second + hour
    day = 86_400 * second
    assert told.time_ns(1049 * second + hour + ahead + day, 86_449.0) == 1049 * second + hour + day
    assert told.time_ns(1051 * second + hour + ahead + day, 86_451.0) == 1051 * second + hour + ahead + day
    assert told.time_ns(5 * second, 86_452.0) == 5 * second  # back to 1970


def test_segments_of_a_clock_that_was_ahead(db: Database) -> None:
    """One that was received years ahead makes no other old: their numbers stay, and a repetition is one."""
    now = [BEGIN_NS]
    loader = Loader(now_ns=lambda: now[0])

    def load(number: int) -> int:
        unpacked = Unpacker().unpack(segment_of([at(f"w{number}", number * 1000)], number))
        with db.write() as connection:
            [outcome] = loader.load(connection, [unpacked])
        loader.commit()
        return outcome.status

    assert load(1) == pb.STORED
    now[0] += 2 * 365 * DAY_NS
    assert load(2) == pb.STORED
    now[0] = BEGIN_NS + 1000
    with db.write() as connection:
        prune(connection, now[0], Keep())
    assert count(db, schema.segments) == 2
    assert [load(1), load(2), load(3)] == [pb.DUPLICATE, pb.DUPLICATE, pb.STORED]
