"""Postgres' partitions of sums: of hours by day, of days by month; made ahead, read where asked for, dropped whole."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from before_0012 import without_partitions
from postgres_server import Postgres
from rollup_builders import processes, window
from sqlalchemy import select
from store_builders import process_of
from test_postgres_partitions import BEGIN_NS, DAY_NS, HOUR_NS, at, imported, statements
from test_retention import SHORT, count, store, total

from roofwatch.store import database, postgres_sum_retention, postgres_sums, rollup, rollup_groups, schema
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.days import day_of
from roofwatch.store.filter import Filter
from roofwatch.store.given_up import GivenUp
from roofwatch.store.postgres_sums import Span
from roofwatch.store.queries import Queries
from roofwatch.store.retention import Upkeep, prune_all
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, ROLLED

SUMS = tuple(table.name for table in ROLLED)
DAY = day_of(BEGIN_NS)
KEPT = Keep(3600, 86_400, 400 * 86_400)


@pytest.fixture
def db(on_postgres: Database) -> Database:
    """On Postgres alone."""
    return on_postgres


@pytest.fixture
def name(postgres_name: str) -> str:
    """Of that database."""
    return postgres_name


def make(db: Database, *spans: Span) -> None:
    """Partitions, as if their time had come."""
    for span in spans:
        with db.write() as connection:
            postgres_sums.make(connection, span)


def sweep(db: Database) -> None:
    """Sum up all that is over."""
    with db.write() as connection:
        while rollup.sweep(connection, BEGIN_NS + 100 * DAY_NS):
            pass


def rows(postgres: Postgres, name: str, table: str) -> dict[str, int]:
    """The rows in each partition of a table of sums that has any, by the end of its name; no group's."""
    where = "" if table == "kernel_hours" else f"WHERE process_id > {rollup_groups.PARTS}"
    asked = f"SELECT tableoid::regclass::text, count(*) FROM {table} {where} GROUP BY 1"  # noqa: S608 - our own
    return {part.removeprefix(f"{table}_"): int(found) for part, found in postgres.run(asked, name)}


def there(db: Database) -> list[Span]:
    """What has partitions."""
    with db.read() as connection:
        return postgres_sums.spans(connection)


def test_spans() -> None:
    """A day's hours; a calendar month's days, through leap years and the year's end."""
    assert (postgres_sums.hours_of(DAY).suffix, postgres_sums.days_of(DAY).suffix) == ("20270115", "202701")
    for year, month, days in ((2027, 1, 31), (2028, 2, 29), (2027, 2, 28), (2026, 12, 31), (2100, 2, 28)):
        span = postgres_sums.days_of((datetime(year, month, 17, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days)
        assert (span.suffix, span.until - span.since) == (f"{year}{month:02d}", days)
        assert postgres_sums.days_of(span.since) == postgres_sums.days_of(span.until - 1) == span
        assert postgres_sums.days_of(span.until).since == span.until


def test_partitions_are_made_ahead(db: Database) -> None:
    """Of today and tomorrow at every opening, of the days that a store was away for, and none of a clock that jumps."""
    now = day_of(database.time.time_ns())
    soon = [postgres_sums.hours_of(now), postgres_sums.hours_of(now + 1)]
    assert there(db) == sorted({*soon, postgres_sums.days_of(now), postgres_sums.days_of(now + 1)})
    keeper = Upkeep(db, Keep(), now_ns=lambda: (now + 4) * DAY_NS, clock=lambda: 1e9)
    keeper.due_s = 0
    keeper.run()
    assert keeper.failed == ""
    assert [span.since for span in there(db) if span.grain == HOUR_S] == list(range(now, now + 6))
    with db.read() as connection:
        assert postgres_sums.missing(connection, (now + 30) * DAY_NS)[0] == postgres_sums.hours_of(now + 23)
        assert postgres_sums.missing(connection, 0) == []


def test_a_partition_takes_what_came_before_it(db: Database, postgres: Postgres, name: str) -> None:
    """Sums of a day that had none lie in the default partition, and move when it is made; answers are the same."""
    store(db, [at("a", 0), at("b", DAY_NS)], 1)
    sweep(db)
    before = Queries(db).run("top", Filter())
    assert rows(postgres, name, "window_sums") == {"hourly_shared": 2, "daily_shared": 2}
    make(db, postgres_sums.hours_of(DAY), postgres_sums.days_of(DAY))
    for table in SUMS:
        found = rows(postgres, name, table)
        assert {part for part, many in found.items() if many} <= {"hourly_20270115", "hourly_shared", "daily_202701"}
    assert rows(postgres, name, "window_sums") == {"hourly_20270115": 1, "hourly_shared": 1, "daily_202701": 2}
    assert rows(postgres, name, "kernel_hours") == {"20270115": 1, "shared": 1}
    assert Queries(db).run("top", Filter()) == before
    store(db, [at("late", 5)], 2)
    sweep(db)
    assert rows(postgres, name, "window_sums") == {"hourly_20270115": 1, "hourly_shared": 1, "daily_202701": 2}
    assert total(db, Filter()) == (30, [])


def test_old_sums_are_dropped_and_none_is_deleted(db: Database, postgres: Postgres, name: str) -> None:
    """A day's hours, then a month's days, of many processes at once; answers are what they were."""
    make(db, *map(postgres_sums.hours_of, (DAY, DAY + 1)), postgres_sums.days_of(DAY))
    store(db, [at(f"w{i}", i * HOUR_NS, process=process_of(pid=1 + i % 3)) for i in range(30)], 1)
    sweep(db)
    whole = Filter(BEGIN_NS, BEGIN_NS + 2 * DAY_NS)
    with statements(db) as sent:
        found = prune_all(db, BEGIN_NS + 2 * DAY_NS + HOUR_NS, KEPT)
    assert (found.days_of_hours, found.days) == (3, 0)
    told = [one for one, _ in sent]
    assert not [one for one in told if "DELETE" in one.upper() and any(f"FROM {table}" in one for table in SUMS)]
    assert [one for one in told if one.startswith("DROP TABLE kernel_sums")] == [
        f"DROP TABLE {', '.join(f'{table}_hourly_20270115' for table in SUMS)}, kernel_hours_20270115"
    ]
    assert rows(postgres, name, "window_sums") == {"hourly_20270116": 6, "daily_202701": 6}
    assert rows(postgres, name, "kernel_hours") == {"20270116": 6}
    assert total(db, whole) == (300, [])
    cut = Filter(BEGIN_NS, BEGIN_NS + HOUR_NS)
    assert total(db, cut) == (0, [{"since_unix_ns": BEGIN_NS, "until_unix_ns": BEGIN_NS + HOUR_NS}])

    store(db, [at("late", 7, process=process_of(pid=1))], 2)  # added to its day
    store(db, [at("late", 7, process=process_of(pid=1))], 3)
    assert total(db, whole) == (310, [])
    sweep(db)
    month = postgres_sums.days_of(DAY)
    with statements(db) as sent:
        found = prune_all(db, month.high_ns + 400 * DAY_NS, KEPT)
    assert (found.days_of_hours, found.days) == (3, 6)
    told = [one for one, _ in sent]
    assert not [one for one in told if "DELETE" in one.upper() and any(f"FROM {table}" in one for table in SUMS)]
    tables = (schema.rollups, schema.windows, schema.kernel_hours, *ROLLED)
    assert [count(db, table) for table in tables] == [0] * len(tables)


def test_what_must_stay_is_kept_apart(db: Database, postgres: Postgres, name: str) -> None:
    """Sums of a process with an imported window stay, in the default partition; those of others go with their day."""
    make(db, postgres_sums.hours_of(DAY), postgres_sums.days_of(DAY))
    other = process_of("b", 2)
    store(db, [at("mixed", 5), imported("file", 6), at("gone", 7, process=other)], 1)
    prune_all(db, BEGIN_NS + 2 * DAY_NS + HOUR_NS, KEPT)
    assert rows(postgres, name, "window_sums") == {"hourly_shared": 1, "daily_202701": 2}
    assert rows(postgres, name, "kernel_hours") == {"shared": 1}
    hour = Filter(BEGIN_NS, BEGIN_NS + HOUR_NS)
    assert total(db, hour)[0] == 20
    prune_all(db, BEGIN_NS + 500 * DAY_NS, KEPT)
    assert rows(postgres, name, "window_sums") == {"hourly_shared": 1, "daily_shared": 1}
    assert total(db, Filter()) == (20, [])
    assert count(db, schema.rollups) == 2


def test_a_sum_that_cannot_be_made_holds_up_no_day(db: Database, postgres: Postgres, name: str) -> None:
    """A damaged hour stays with its day; those of others go."""
    make(db, postgres_sums.hours_of(DAY), postgres_sums.days_of(DAY))
    store(db, [at("bad", 0), at("good", 1, process=process_of("b", 2))], 1)
    uid = bytes.fromhex(at("bad", 0).uid)
    with db.write() as connection:
        number = connection.execute(select(schema.windows.c.id).where(schema.windows.c.uid == uid)).scalar_one()
        connection.exec_driver_sql("UPDATE kernel_blocks SET facts = '\\x0011' WHERE window_id = %s", (number,))
    assert prune_all(db, BEGIN_NS + 2 * DAY_NS + HOUR_NS, KEPT).days_of_hours == 1
    assert postgres_sums.hours_of(DAY) not in there(db)
    assert rows(postgres, name, "window_sums") == {"daily_202701": 1}
    assert postgres.run("SELECT grain, stale, finer FROM rollups ORDER BY 1, 2", name) == [
        (HOUR_S, True, True), (DAY_S, False, False), (DAY_S, True, True),
    ]  # fmt: skip


def test_a_reader_that_takes_long(db: Database, postgres: Postgres, name: str) -> None:
    """Nothing is half gone: a drop gives up soon, before it has deleted anything, and it is done later."""
    make(db, postgres_sums.hours_of(DAY), postgres_sums.days_of(DAY))
    store(db, [at("a", 0)], 1)
    sweep(db)
    other = database.open(postgres.url(name))
    reference = BEGIN_NS + 2 * DAY_NS + HOUR_NS
    with other.read() as reading:
        reading.execute(select(schema.window_sums)).all()
        with statements(db) as sent:
            assert postgres_sum_retention.tidy(db, BEGIN_NS + 3 * DAY_NS, reference, SHORT, GivenUp()).partitions == 0
        assert [one for one, _ in sent if one.startswith("LOCK TABLE")]
        assert not [one for one, _ in sent if one.startswith(("DELETE", "UPDATE"))]
        assert count(db, schema.rollups) == 2
        store(db, [at("b", 3 * DAY_NS)], 2)
        assert total(db, Filter())[0] == 20
    assert postgres_sum_retention.tidy(db, BEGIN_NS + 3 * DAY_NS, reference, SHORT, GivenUp()).days_of_hours == 1
    assert (count(db, schema.rollups), postgres_sums.hours_of(DAY) in there(db)) == (3, False)
    other.close()


def test_a_question_of_an_hour_looks_into_its_day(db: Database) -> None:
    """Of a month of partitions the day's: what a plan reads is decided before it runs, also behind joins."""
    make(db, *(postgres_sums.hours_of(DAY + i) for i in range(12)), postgres_sums.days_of(DAY))
    of = [process_of("n3", 1 + k) for k in range(2)]
    store(db, [at(f"{i}-{k}", i * DAY_NS + k, process=of[k]) for i in range(3) for k in range(2)], 1)
    sweep(db)
    fresh = parts_planned(db)
    store(db, [at("late", DAY_NS + 5, process=of[0])], 2)  # now rollups decide, for each process
    stale = parts_planned(db)
    for planned in (fresh, stale):
        assert {label: parts for label, parts in planned.items() if parts != {"hourly_20270116"}} == {}


def parts_planned(db: Database) -> dict[str, set[str]]:
    """The partitions of sums that are in the plans of questions of an hour."""
    found: dict[str, set[str]] = {}
    hour = Filter(BEGIN_NS + DAY_NS, BEGIN_NS + DAY_NS + HOUR_NS)
    filters: dict[str, dict[str, str]] = {"all": {}, "node": {"node": "n3"}, "device": {"device": "h100"}}
    for query in ("top", "timeline_process", "processes", "report", "diagnose"):
        for label, more in filters.items():
            with statements(db) as sent:
                Queries(db).run(query, dataclasses.replace(hour, **more))
            with db.read() as connection:
                for statement, parameters in sent:
                    if "_sums" in statement and statement.lstrip().startswith(("SELECT", "WITH")):
                        asked = f"EXPLAIN (FORMAT JSON) {statement}"
                        plan = connection.exec_driver_sql(asked, parameters).scalar_one()[0]["Plan"]
                        parts = {name.partition("_sums_")[2] for name in _named(plan)} - {""}
                        found.setdefault(f"{query} {label}", set()).update(parts)
    return found


def _named(plan: dict[str, Any]) -> Iterator[str]:
    if "Relation Name" in plan:
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from _named(part)


def test_an_older_store_is_upgraded_with_its_sums(db: Database, postgres: Postgres, name: str) -> None:
    """What schema 0011 held is in its partitions, answers are the same, and retention drops them."""
    draw = random.Random(12)
    of = processes(draw)
    store(db, [window(draw, f"w{i}", draw.choice(of)) for i in range(40)], 1)
    sweep(db)
    asked = [(query, f) for query in ("top", "timeline_process") for f in (Filter(), Filter(vendor="nvidia"))]
    before = [Queries(db).run(query, f) for query, f in asked]
    held = {table: count(db, schema.metadata.tables[table]) for table in (*SUMS, "kernel_hours")}
    assert all(held.values())
    with db.write() as connection:
        without_partitions(connection)
    db.close()
    opened = database.open(postgres.url(name))
    assert [Queries(opened).run(query, f) for query, f in asked] == before
    assert {table: count(opened, schema.metadata.tables[table]) for table in held} == held
    for table in held:
        assert not [part for part in rows(postgres, name, table) if part.endswith("shared")]
    assert {span.suffix for span in there(opened)} >= {"20270115", "20270116", "20270117", "202701"}
    prune_all(opened, BEGIN_NS + 9 * DAY_NS, KEPT)
    assert {span.suffix for span in there(opened)}.isdisjoint({"20270115", "20270116", "20270117"})
    opened.close()
