"""Postgres' partitions of a day: where windows land, what a question looks into, what is dropped, and old databases."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from postgres_server import Postgres
from sqlalchemy import event, insert, select
from sqlalchemy.exc import IntegrityError
from store_builders import GEMM, process_of, stat, window_of
from test_retention import SHORT, count, store, total

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Trigger, Window
from roofwatch.store import checks, database, postgres_partitions, postgres_retention, rollup, schema
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.days import SHARED, day_of
from roofwatch.store.filter import Filter
from roofwatch.store.given_up import GivenUp
from roofwatch.store.postgres_retention import tidy
from roofwatch.store.queries import Queries
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.retention import Upkeep, prune, prune_all

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
BEGIN_NS = 1_800_000_000_000_000_000 // DAY_NS * DAY_NS  # 2027-01-15
KEPT = ("windows", "window_devices", "window_drops", "idle_causes")
KERNELS = ("kernel_blocks", "collectives", "graphs")


@pytest.fixture
def db(on_postgres: Database) -> Database:
    """On Postgres alone."""
    return on_postgres


@pytest.fixture
def name(postgres_name: str) -> str:
    """Of that database."""
    return postgres_name


def at(name: str, ns: int, **more: Any) -> Window:
    """A window of one kernel of 10 ns."""
    return window_of(name, [stat(GEMM, [10])], start_unix_ns=BEGIN_NS + ns, **more)


def imported(name: str, ns: int, **more: Any) -> Window:
    """One from a file."""
    return dataclasses.replace(at(name, ns, **more), trigger=Trigger.IMPORTED)


def days_of(postgres: Postgres, name: str, table: str = "windows") -> dict[str, int]:
    """The rows in each partition that has any, by the end of its name."""
    asked = f"SELECT tableoid::regclass::text, count(*) FROM {table} GROUP BY 1"  # noqa: S608 - our own
    return {part.removeprefix(f"{table}_"): int(rows) for part, rows in postgres.run(asked, name)}


def partitions(postgres: Postgres, name: str, table: str) -> set[str]:
    """The ends of the names of all partitions."""
    asked = f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{table}'::regclass"  # noqa: S608 - our own
    return {part.removeprefix(f"{table}_") for (part,) in postgres.run(asked, name)}


@contextmanager
def statements(db: Database) -> Iterator[list[tuple[str, Any]]]:
    """What is sent to the database meanwhile."""
    sent: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        sent.append((statement, parameters))

    event.listen(db.engine, "before_cursor_execute", note)
    yield sent
    event.remove(db.engine, "before_cursor_execute", note)


def test_where_windows_land(db: Database, postgres: Postgres, name: str) -> None:
    """Each in its day; odd dates get a day while there are few, imports never; the number tells the day."""
    last = checks.MAX_UNIX_NS - 1 - BEGIN_NS
    store(db, [at("a", 0), at("b", DAY_NS - 1), at("c", DAY_NS), at("odd", last), at("1970", -BEGIN_NS)], 1)
    store(db, [imported("file", 0)], 2)
    assert days_of(postgres, name) == {"20270115": 2, "20270116": 1, "21160220": 1, "shared": 2}
    for table in ("kernel_blocks", "window_devices"):
        assert days_of(postgres, name, table) == days_of(postgres, name)
    for number, start in postgres.run("SELECT id, start_unix_ns FROM windows WHERE id >= 1::bigint << 40", name):
        assert number >> 40 == start // DAY_NS
    assert total(db, Filter())[0] == 60


def test_days_are_bounded(db: Database, postgres: Postgres, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of very many days share a partition once so many have their own."""
    there = len(partitions(postgres, name, "windows"))
    monkeypatch.setattr(postgres_partitions, "MOST_DAYS", there - 1 + 3)
    store(db, [at(f"w{i}", i * 50 * DAY_NS) for i in range(8)], 1)
    assert len(partitions(postgres, name, "windows")) == there + 3
    assert days_of(postgres, name)["shared"] == 5
    assert total(db, Filter())[0] == 80


def test_sent_again_counts_once(db: Database) -> None:
    """In its day, in the shared one, and where its day got a partition only meanwhile."""
    store(db, [at("a", 0), imported("file", 0)], 1)
    with db.write() as connection:
        connection.exec_driver_sql("ALTER TABLE kernel_blocks DETACH PARTITION kernel_blocks_20270115")
        connection.exec_driver_sql("INSERT INTO rollups VALUES (3600, %s, 1, false, false)", (BEGIN_NS,))
    store(db, [at("b", 1)], 2)  # its day is over
    with db.write() as connection:
        connection.exec_driver_sql("DELETE FROM rollups WHERE process_id = 1")
        connection.exec_driver_sql("DROP TABLE kernel_blocks_20270115")
    store(db, [at("a", 0), at("b", 1), imported("file", 0), at("c", 2)], 3)
    assert count(db, schema.windows) == 4
    with db.read() as connection:
        numbers = dict(connection.execute(select(schema.windows.c.start_unix_ns, schema.windows.c.id)).all())
    assert numbers[BEGIN_NS + 1] < SHARED < numbers[BEGIN_NS + 2]


def test_the_index_of_a_partition_refuses_a_uid_twice(db: Database) -> None:
    """Were the writers' lock not there, the database itself would keep a window single."""
    store(db, [at("a", 0)], 1)
    with db.read() as connection:
        row = connection.execute(select(schema.windows)).mappings().one()
    with pytest.raises(IntegrityError, match="windows_20270115_uid"), db.write() as connection:
        connection.execute(insert(schema.windows).values({**row, "id": row["id"] + 1}))


def test_partitions_are_made_ahead(db: Database, postgres: Postgres, name: str) -> None:
    """Of today and three days at every opening, and by upkeep once the day is another; two stores do it once."""
    now = [BEGIN_NS + 40 * DAY_NS]
    others = [database.open(postgres.url(name)) for _ in range(3)]
    keepers = [Upkeep(one, Keep(), now_ns=lambda: now[0], clock=lambda: 1e9) for one in (db, *others)]
    for keeper in keepers:
        keeper.due_s = 0
    threads = [threading.Thread(target=keeper.run) for keeper in keepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [keeper.failed for keeper in keepers] == [""] * 4
    ahead = {"20270224", "20270225", "20270226", "20270227"}
    for table in (*KEPT, *KERNELS):
        assert ahead <= partitions(postgres, name, table)
    now[0] += DAY_NS
    keepers[0].due_s = 0
    keepers[0].run()
    assert "20270228" in partitions(postgres, name, "windows")
    for one in others:
        one.close()


def test_old_days_are_dropped_and_nothing_is_deleted(db: Database, postgres: Postgres, name: str) -> None:
    """Kernels' partitions go, then those of windows; no statement deletes a fact or a window."""
    store(db, [at(f"w{i}", i * HOUR_NS, process=process_of(pid=1 + i % 3)) for i in range(30)], 1)
    with statements(db) as sent:
        found = prune_all(db, BEGIN_NS + DAY_NS + HOUR_NS, SHORT)
    assert (found.hours_of_kernels, found.partitions) == (24, 1)
    deletes = [one for one, _ in sent if "DELETE" in one.upper()]
    assert not [one for one in deletes if any(f"FROM {table}" in one for table in (*KEPT, *KERNELS))]
    assert [one for one, _ in sent if one.startswith("DROP TABLE")] == [
        "DROP TABLE IF EXISTS kernel_blocks_20270115, collectives_20270115, graphs_20270115"
    ]
    assert "20270115" not in partitions(postgres, name, "kernel_blocks")
    assert days_of(postgres, name) == {"20270115": 24, "20270116": 6}
    assert total(db, Filter(BEGIN_NS, BEGIN_NS + 2 * DAY_NS)) == (300, [])

    with statements(db) as sent:
        found = prune_all(db, BEGIN_NS + 2 * DAY_NS + HOUR_NS, SHORT)
    assert (found.days_of_hours, found.partitions) == (3, 2)  # and the second day's kernels
    deletes = [one for one, _ in sent if "DELETE" in one.upper()]
    assert not [one for one in deletes if any(f"FROM {table}" in one for table in (*KEPT, *KERNELS))]
    for table in KEPT:
        assert "20270115" not in partitions(postgres, name, table)
    assert days_of(postgres, name) == {"20270116": 6}
    assert total(db, Filter(BEGIN_NS, BEGIN_NS + 2 * DAY_NS)) == (300, [])


@pytest.mark.parametrize("together", [500, 1])
def test_what_must_stay_is_moved_out_of_a_day(
    db: Database, postgres: Postgres, name: str, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """A process's hour with an imported window keeps all its windows and kernels; its day goes nevertheless."""
    monkeypatch.setattr(postgres_retention, "AT_ONCE", together)
    more = [kind(f"{kind.__name__}{i}", i * HOUR_NS) for i in (4, 5) for kind in (at, imported)]
    other = process_of("b", 2)
    store(db, [at("mixed", 5), imported("file", 6), at("gone", 7, process=other), *more], 1)
    prune_all(db, BEGIN_NS + 9 * DAY_NS, SHORT)
    for table in ("windows", "kernel_blocks", "window_devices"):
        assert "20270115" not in partitions(postgres, name, table)
        assert days_of(postgres, name, table) == {"shared": 6}
    own = f"{rollup.bucket_of(BEGIN_NS, 3600)}"
    assert postgres.run(f"SELECT count(*) FROM rollups WHERE finer AND bucket_unix_ns = {own}", name) == [(2,)]  # noqa: S608
    with raw_only():
        assert total(db, Filter())[0] == 60


def test_a_sum_that_cannot_be_made_keeps_its_windows(db: Database, postgres: Postgres, name: str) -> None:
    """A damaged block holds up neither the partition nor the others: its windows are moved out."""
    store(db, [at("bad", 0), at("good", 1, process=process_of("b", 2))], 1)
    uid = bytes.fromhex(at("bad", 0).uid)
    with db.write() as connection:
        number = connection.execute(select(schema.windows.c.id).where(schema.windows.c.uid == uid)).scalar_one()
        connection.exec_driver_sql("UPDATE kernel_blocks SET facts = '\\x0011' WHERE window_id = %s", (number,))
    prune_all(db, BEGIN_NS + DAY_NS + HOUR_NS, SHORT)
    assert days_of(postgres, name, "kernel_blocks") == {"shared": 1}
    assert days_of(postgres, name) == {"20270115": 1, "shared": 1}


def test_a_reader_that_takes_long(db: Database, postgres: Postgres, name: str) -> None:
    """A drop gives up soon, readers do not wait behind it, ingest goes on, partitions are made; then it is dropped."""
    store(db, [at("a", 0)], 1)
    reference = BEGIN_NS + DAY_NS + HOUR_NS
    broken = GivenUp()
    other = database.open(postgres.url(name))
    with other.read() as reading:
        reading.execute(select(schema.kernel_blocks)).all()
        with db.write() as connection:
            while rollup.sweep(connection, reference, broken):
                pass
            assert prune(connection, reference, SHORT).hours_of_kernels == 1
        tidy(db, BEGIN_NS + 50 * DAY_NS, reference, SHORT, broken)
        assert "20270115" in partitions(postgres, name, "kernel_blocks")
        assert "20270306" in partitions(postgres, name, "kernel_blocks")  # made ahead meanwhile
        store(db, [at("b", 3 * DAY_NS)], 2)
        assert total(db, Filter())[0] == 20
    assert tidy(db, BEGIN_NS + 50 * DAY_NS, reference, SHORT, broken)[0] >= 1
    assert "20270115" not in partitions(postgres, name, "kernel_blocks")
    other.close()


def test_late_windows_of_a_day_that_was_dropped(db: Database, postgres: Postgres, name: str) -> None:
    """They are added to the sums, go to the shared partition, come again in vain, and go with the day's sums."""
    store(db, [at("a", 1)], 1)
    prune_all(db, BEGIN_NS + DAY_NS + HOUR_NS, SHORT)
    for sequence in (2, 3):
        store(db, [at("late", 2)], sequence)
    prune_all(db, BEGIN_NS + 2 * DAY_NS + HOUR_NS, SHORT)
    for sequence in (4, 5):
        store(db, [at("later", 3)], sequence)
    assert total(db, Filter()) == (30, [])
    assert days_of(postgres, name) == {"shared": 1}
    prune_all(db, BEGIN_NS + 3 * DAY_NS + HOUR_NS, SHORT)
    assert [count(db, t) for t in (schema.windows, schema.window_devices, schema.rollups)] == [0, 0, 0]


def scanned(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The (kind of scan, partition) that a plan has run."""
    if "Relation Name" in plan and plan["Actual Loops"]:
        yield plan["Node Type"], plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from scanned(part)


def many_windows(db: Database, postgres: Postgres, name: str) -> None:
    """A month of partitions; in four of its days 64 processes of 16 nodes with a window every twelve minutes."""
    store(db, [at("a", 0)], 1)
    with db.write() as connection:
        for day in range(1, 30):
            postgres_partitions.make(connection, day_of(BEGIN_NS) + day)
    own, of = f"({BEGIN_NS} + i * 720000000000 + p + 1)", "generate_series(0, 479) i, generate_series(1, 64) p"
    number = f"({own} / {DAY_NS} << 40) + nextval('windows_id_seq')"
    columns = [c.name for c in schema.windows.c if c.name not in {"id", "uid", "process_id", "start_unix_ns"}]
    told = ", ".join(f"w.{c}" for c in columns)
    postgres.run(
        f"""
        INSERT INTO nodes SELECT n, 'n' || n, 'b' FROM generate_series(1, 16) n;
        INSERT INTO processes (id, node_id, pid, versions)
            SELECT p, 1 + p % 16, p, '{{}}' FROM generate_series(1, 64) p;
        INSERT INTO windows (id, uid, process_id, start_unix_ns, {", ".join(columns)})
            SELECT {number}, decode(md5({own}::text), 'hex'), p, {own}, {told} FROM windows w, {of};
        INSERT INTO kernel_blocks SELECT w.id, b.rows, b.facts, b.histograms FROM windows w, kernel_blocks b
            WHERE w.process_id < 65;
        INSERT INTO window_devices (window_id, position, device_id, span_ns, busy_ns, exposed_copy_ns,
                                    exposed_communication_ns)
            SELECT w.id, 0, d.device_id, 1000, 10, 0, 0 FROM windows w, window_devices d WHERE w.process_id < 65
        """,  # noqa: S608 - our own
        name,
    )
    postgres.run("ANALYZE", name)


@pytest.mark.parametrize("node", ["n3", None])
def test_a_question_of_an_hour_looks_into_its_day(
    db: Database, postgres: Postgres, name: str, node: str | None
) -> None:
    """Of a month of partitions the day's and the shared one; windows and kernels by index, never all of a day's."""
    many_windows(db, postgres, name)
    since = BEGIN_NS + DAY_NS + 5 * HOUR_NS
    with statements(db) as sent, raw_only():
        found = Queries(db).run("top", Filter(since, since + HOUR_NS, node=node))
    windows = 5 * (64 if node is None else 4)
    assert (found["coverage"]["windows"], found["rows"][0]["total_ns"]) == (windows, windows * 10)
    plans = []
    with db.read() as connection:
        for statement, parameters in sent:
            if " windows" in statement:
                asked = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                plans.append(list(scanned(connection.exec_driver_sql(asked, parameters).scalar_one()[0]["Plan"])))
    of_kernels = [plan for plan in plans if any("kernel_blocks" in part for _, part in plan)]
    assert len(plans) > len(of_kernels) >= 2
    parts = {part for plan in plans for _, part in plan if part.rpartition("_")[0] in {*KEPT, *KERNELS}}
    assert {part for part in parts if part.rpartition("_")[2] not in {"20270116", "shared"}} == set()
    for plan in plans:
        assert ("Seq Scan", "windows_20270116") not in plan
    for plan in of_kernels if node else ():
        assert ("Index Scan", "kernel_blocks_20270116") in plan


def test_who_only_reads_needs_no_right_to_partitions(db: Database, postgres: Postgres, name: str) -> None:
    """SELECT on the tables is enough, also for the partitions of days that come later."""
    postgres.run("DROP ROLE IF EXISTS reader")
    postgres.run("CREATE ROLE reader LOGIN PASSWORD 'r'")
    for table in (*schema.metadata.tables, "alembic_version"):
        postgres.run(f"GRANT SELECT ON {table} TO reader", name)
    store(db, [at("a", 0), at("b", 7 * DAY_NS)], 1)
    reader = database.open(postgres.url(name, "reader", "r"), migrate=False)
    for query in ("top", "windows", "records", "timeline"):
        assert Queries(reader).run(query, Filter()) == Queries(db).run(query, Filter())
    with pytest.raises(RoofwatchError, match="permission denied"), database.telling("postgresql"), reader.write() as on:
        postgres_partitions.make(on, 20_000)
    reader.close()
    postgres.run("DROP OWNED BY reader", name)


def test_days_that_are_kept_for_long_tell_nothing_of_clocks(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps kernels for more days than a jumping clock may make still gets partitions of the days to come."""
    monkeypatch.setattr(postgres_partitions, "MOST_DAYS", 1)
    today = day_of(BEGIN_NS)
    with db.write() as connection:
        for day in range(today - 6, today):
            postgres_partitions.make(connection, day)
    tidy(db, BEGIN_NS, BEGIN_NS, Keep(10 * 86_400, 30 * 86_400, 400 * 86_400), GivenUp())
    with db.read() as connection:
        assert set(range(today - 6, today + postgres_partitions.AHEAD + 1)) <= postgres_partitions.days(connection)
