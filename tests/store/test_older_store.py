"""A store that an older version wrote, window by window: what it holds is answered as it was, from windows and sums.

``store_0006.sql`` is what the program wrote before kernels were blocks and hours had sums: five windows of two
processes, their kernels' calls as below.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from postgres_server import Postgres
from sqlalchemy import MetaData, create_engine, select

from roofwatch.store import database, postgres_partitions, retention
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.migrations import upgrade
from roofwatch.store.queries import Queries

HOUR_NS = 3600 * 10**9
BEGIN_NS = 1_800_000_000_000_000_000 // (24 * HOUR_NS) * 24 * HOUR_NS
FOR_EVER = Keep(10**9, 10**9, 10**9)


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Database]:
    """The store, brought to today's schema by opening it."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.executescript(Path(__file__).with_name("store_0006.sql").read_text("utf-8"))
    opened = database.open(str(tmp_path / "store.db"))
    yield opened
    opened.close()


@pytest.mark.parametrize("summed", [False, True])
def test_what_an_older_version_stored_is_answered(older: Database, summed: bool) -> None:
    """Five windows: one stands for ten times its span; an hour's last nanosecond; a batch; another device; nothing."""
    if summed:
        retention.prune_all(older, BEGIN_NS + 1000 * HOUR_NS, FOR_EVER)
    found = Queries(older).run("top", Filter())
    rows = {(row["kernel"], row["device"]): row for row in found["rows"]}
    gemm = rows["nvjet_tst_128x256", "NVIDIA H100 80GB HBM3"]
    # calls of 1000 + 3000 ns (weight 10), 5000 ns, 1000 + 3000 ns
    names = ("calls", "total_ns", "est_ns", "min_ns", "max_ns")
    assert [gemm[name] for name in names] == [5, 13_000, 49_000, 1000, 5000]
    assert gemm["roof_fraction"] == pytest.approx(5 * 500.0 / 13_000)
    assert abs(gemm["p50_ns"] - 3000) < 0.02 * 3000  # a bucket's width
    assert (rows["layer_norm", "NVIDIA H100 80GB HBM3"]["est_ns"], len(rows)) == (700, 3)
    norm = rows["layer_norm", "AMD Instinct MI300X"]
    assert [norm[name] for name in names] == [2, 70, 70, 30, 40]
    cover = found["coverage"]
    assert (cover["windows"], cover["device_time_ns"], cover["dropped"]) == (5, 13_140, {"unfinished": 2})
    assert cover["source"] == ("daily" if summed else "raw")
    # busy: 4070 of 10⁶ ns ten times, then 5000, 4000, 70 and 0 of 10⁶ ns each
    assert found["summary"]["est_busy_ns"] == 49_770
    assert found["summary"]["causes"]["host"]["est_ns"] == 9000
    told = Queries(older).run("padding", Filter())
    assert told["utilisation"] == {"linear": 10 / 16, "quadratic": 52 / 128}


def test_a_part_of_an_hour_of_an_older_store(older: Database) -> None:
    """Its windows are kept, so a filter may cut an hour: the window of its last nanosecond alone."""
    retention.prune_all(older, BEGIN_NS + 1000 * HOUR_NS, FOR_EVER)
    found = Queries(older).run("top", Filter(BEGIN_NS + HOUR_NS // 2, BEGIN_NS + HOUR_NS))
    assert [(row["calls"], row["total_ns"]) for row in found["rows"]] == [(1, 5000)]
    assert found["coverage"]["left_out"] == []


def copied(file: Path, postgres: Postgres, revision: str) -> str:
    """The older store at some revision as a database of the server at the same; its name."""
    engine = create_engine(f"sqlite:///{file}")
    name = postgres.create()
    other = database._engine(database._parse(postgres.url(name)), create=True)
    with engine.begin() as source, other.begin() as target:
        upgrade.run(source, revision)
        upgrade.run(target, revision)
        tables = MetaData()
        tables.reflect(target)
        for table in tables.sorted_tables:
            rows = [dict(row) for row in source.execute(select(table)).mappings()]
            if rows and table.name != "alembic_version":
                target.execute(table.insert(), rows)
        target.exec_driver_sql("SELECT setval('windows_id_seq', (SELECT max(id) FROM windows))")
    for one in (engine, other):
        one.dispose()
    return name


@pytest.mark.parametrize("revision", ["0006", "0007", "0008"])
def test_an_older_store_on_postgres_is_partitioned(tmp_path: Path, postgres: Postgres, revision: str) -> None:
    """Its windows are in their days, one from a file among those of none, and answers are those of SQLite."""
    file = tmp_path / "store.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(Path(__file__).with_name("store_0006.sql").read_text("utf-8"))
        connection.execute("UPDATE windows SET trigger = 'imported' WHERE id = (SELECT min(id) FROM windows)")
        connection.commit()
        starts = dict(connection.execute("SELECT hex(uid), start_unix_ns FROM windows"))
    name = copied(file, postgres, revision)
    found = [database.open(url) for url in (str(file), postgres.url(name))]
    rows = postgres.run("SELECT upper(encode(uid, 'hex')), id, start_unix_ns, trigger FROM windows", name)
    assert {uid: start for uid, _, start, _ in rows} == starts
    assert sorted(number & (1 << 40) - 1 for _, number, _, _ in rows) == [1, 2, 3, 4, 5]
    for _, number, start, trigger in rows:
        assert number >> 40 == (0 if trigger == "imported" else start // (24 * HOUR_NS))
    days = postgres.run("SELECT DISTINCT tableoid::regclass::text FROM windows", name)
    assert {day for (day,) in days} == {"windows_20270115", "windows_20270116", "windows_shared"}
    for query in ("top", "timeline", "windows", "records", "padding", "processes"):
        told = [Queries(one).run(query, Filter()) for one in found]
        for answer in told:
            answer.pop("upto", None)
            answer["rows"].sort(key=str)  # older kernels of a window came in no order
        assert told[0] == told[1], query
    with found[1].write() as connection:  # and the next window's number is a new one
        told_numbers = postgres_partitions.numbers(connection, [(b"\1" * 16, BEGIN_NS, False)])
    assert told_numbers == [(BEGIN_NS // (24 * HOUR_NS) << 40) + 6]
    for one in found:
        one.close()
