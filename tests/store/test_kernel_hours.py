"""Sums of hours as plain rows, and views: what they say in SQL is what the store answers, whatever came when."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from typing import Any

import pytest
from before_0012 import without_partitions
from rollup_builders import BEGIN_NS, DAY_NS, DAYS, HOUR_NS, processes, window
from sqlalchemy import text, update
from store_builders import GEMM, NORM, process_of, segment_of, stat, window_of

from roofwatch.model.record import Bound, Process, Window
from roofwatch.store import database, retention, rollup
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.given_up import GivenUp
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.queries.process_list import BUDGET
from roofwatch.store.schema import REVISION, kernel_blocks
from roofwatch.store.unpack import Unpacker

END_NS = BEGIN_NS + (DAYS + 1) * DAY_NS
TABLE = "SELECT * FROM kernel_hours ORDER BY 1, 2, 3, 4, 10"

LATER = {"windows": BUDGET, "window_devices": ("ecc_corrected", "ecc_uncorrected")}  # columns that came with 0011


def store(writer: Writer, windows: list[Window], first: int) -> None:
    """In one segment."""
    assert writer.submit(Unpacker().unpack(segment_of(windows, first))).result(60).reason == ""


def sweep(db: Database, now_ns: int = END_NS) -> None:
    """Sum up all that is over."""
    with db.write() as connection:
        while rollup.sweep(connection, now_ns):
            pass


def told(db: Database, query: str) -> list[tuple[Any, ...]]:
    """Rows of a statement."""
    with db.read() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def drawn(draw: random.Random, name: str, running: list[Process], count: int) -> list[Window]:
    """Windows of everything, in four hours of two days: each sum that is made takes time."""
    starts = [BEGIN_NS + 7 * HOUR_NS * draw.randrange(4) + draw.randrange(HOUR_NS) for _ in range(count)]
    return [window(draw, f"{name} {i}", draw.choice(running), start) for i, start in enumerate(starts)]


def by_node(db: Database, query: str) -> dict[tuple[str, str], tuple[int, ...]]:
    """Rows (node, chip, numbers …) as whole numbers; SQLite and Postgres sum into different types."""
    return {(row[0], row[1]): tuple(int(value) for value in row[2:]) for row in told(db, query)}


SUMMED = (
    "SELECT host, device_model, sum(calls), sum(total_ns), sum(est_ns), min(min_ns), max(max_ns) "
    "FROM dashboard_kernel_hours GROUP BY host, device_model"
)


def answered(db: Database, f: Filter | None = None) -> dict[tuple[str, str], tuple[int, ...]]:
    """The same from ``top --by node``."""
    rows = Queries(db).run("top_by", f or Filter(), 0, options={"by": "node"})["rows"]
    keys = ("calls", "total_ns", "est_ns", "min_ns", "max_ns")
    return {(row["node"], row["device"]): tuple(row[key] for key in keys) for row in rows}


@pytest.mark.parametrize("seed", [1])
def test_sums_in_sql_are_those_of_top_by_node(db: Database, writer: Writer, seed: int) -> None:
    """Exactly, over hours that are over; and again after late windows have opened some of them again."""
    draw = random.Random(seed)
    running = processes(draw)
    first = drawn(draw, "first", running, 40)
    store(writer, first, 1)
    sweep(db)
    assert len(answered(db)) > 3
    assert by_node(db, SUMMED) == answered(db)
    store(writer, drawn(draw, "late", running, 10), 1000)
    assert by_node(db, SUMMED) != answered(db)
    sweep(db)
    assert by_node(db, SUMMED) == answered(db)


def test_a_node_is_told_once_all_its_processes_are(db: Database, writer: Writer) -> None:
    """Of two processes of a node one comes to the next hour: there is nothing yet; then the other: both are in it.

    By hand: 3 calls of 10 and 2 of 30 ns with weight 1, then 4 of 20 ns with weight 2, est 3·10 + 2·30 + 2·4·20 = 250.
    """
    one, other = process_of("n", 1), process_of("n", 2)
    store(
        writer,
        [
            window_of("a", [stat(GEMM, [10] * 3 + [30] * 2)], process=one, start_unix_ns=BEGIN_NS, span_ns=500),
            window_of(
                "b", [stat(GEMM, [20] * 4)], process=other, start_unix_ns=BEGIN_NS + 7, span_ns=500, represents_ns=1000
            ),
            window_of("c", [stat(NORM, [1])], process=one, start_unix_ns=BEGIN_NS + HOUR_NS, span_ns=500),
        ],
        1,
    )
    assert told(db, TABLE) == []
    store(writer, [window_of("d", [stat(NORM, [1])], process=other, start_unix_ns=BEGIN_NS + HOUR_NS, span_ns=500)], 10)
    assert told(db, "SELECT bucket_unix_ns, calls, total_ns, est_ns, min_ns, max_ns, bound FROM kernel_hours") == [
        (BEGIN_NS, 9, 170, 250, 10, 30, 1)
    ]


def test_bounds_are_told_apart_and_evidence_is_not(db: Database, writer: Writer) -> None:
    """A kernel that is held up by memory in one window and by nothing known in the next has two rows."""
    memory = stat(GEMM, [7], bound=Bound.MEMORY)
    store(
        writer,
        [
            window_of("a", [memory], start_unix_ns=BEGIN_NS),
            window_of("b", [dataclasses.replace(memory, formula_bound=Bound.COMPUTE)], start_unix_ns=BEGIN_NS + 1),
            window_of("c", [stat(GEMM, [9], bound=Bound.UNKNOWN)], start_unix_ns=BEGIN_NS + 2),
        ],
        1,
    )
    sweep(db)
    query = "SELECT kernel, op, kind, bound, calls FROM dashboard_kernel_hours ORDER BY bound"
    rest = (GEMM.kernel, GEMM.op, "matmul")
    assert told(db, query) == [(*rest, "memory", 2), (*rest, "unknown", 1)]


def test_a_window_that_comes_after_its_kernels_were_cleared(db: Database, writer: Writer) -> None:
    """Its hour is added to, and so are the rows."""
    store(writer, [window_of("a", [stat(GEMM, [10])], start_unix_ns=BEGIN_NS)], 1)
    retention.prune_all(db, BEGIN_NS + 9 * DAY_NS, Keep(3600, 30 * 86_400, 400 * 86_400))
    assert told(db, "SELECT count(*) FROM rollups WHERE grain = 3600 AND NOT finer") == [(1,)]
    store(writer, [window_of("b", [stat(GEMM, [30])], start_unix_ns=BEGIN_NS + 5)], 2)
    assert told(db, "SELECT calls, total_ns, min_ns, max_ns FROM kernel_hours") == [(2, 40, 10, 30)]
    assert by_node(db, SUMMED) == answered(db)


def test_rows_go_with_the_hours(db: Database, writer: Writer) -> None:
    """Once the hours of a day are removed for all processes of a node; the next day's stay."""
    days = [
        window_of(
            f"{pid} {day}", [stat(GEMM, [10])], process=process_of("n", pid), start_unix_ns=BEGIN_NS + day * DAY_NS
        )
        for day in (0, 1)
        for pid in (1, 2)
    ]
    store(writer, days, 1)
    sweep(db)
    assert told(db, "SELECT bucket_unix_ns, calls FROM kernel_hours ORDER BY 1") == [
        (BEGIN_NS, 2), (BEGIN_NS + DAY_NS, 2),
    ]  # fmt: skip
    with db.write() as connection:  # a process at a time
        keep = Keep(3600, 86_400, 400 * 86_400)
        retention.prune(connection, BEGIN_NS + 2 * DAY_NS + HOUR_NS, keep, most=1)
    assert told(db, "SELECT bucket_unix_ns, calls FROM kernel_hours ORDER BY 1")[-1] == (BEGIN_NS + DAY_NS, 2)
    retention.prune_all(db, BEGIN_NS + 2 * DAY_NS + HOUR_NS, keep)
    assert told(db, "SELECT bucket_unix_ns, calls FROM kernel_hours") == [(BEGIN_NS + DAY_NS, 2)]


def test_a_damaged_process_does_not_hide_its_node(db: Database, writer: Writer) -> None:
    """What cannot be summed up is left out; the others of the node are told."""
    good, bad = process_of("n", 1), process_of("n", 2)
    store(writer, [window_of("a", [stat(GEMM, [10])], process=good, start_unix_ns=BEGIN_NS)], 1)
    store(writer, [window_of("b", [stat(GEMM, [10])], process=bad, start_unix_ns=BEGIN_NS)], 2)
    with db.write() as connection:
        of = "SELECT id FROM windows WHERE process_id = (SELECT id FROM processes WHERE pid = 2)"
        number = connection.execute(text(of)).scalar_one()
        connection.execute(update(kernel_blocks).where(kernel_blocks.c.window_id == number).values(facts=b"x"))
    with db.write() as connection:
        broken = GivenUp()
        while rollup.sweep(connection, END_NS, broken):
            pass
    assert len(broken) == 1
    assert told(db, "SELECT calls FROM kernel_hours") == [(1,)]


def test_an_older_store_gets_its_rows(db: Database, writer: Writer, url: str) -> None:
    """The migration writes what the store would have written."""
    draw = random.Random(3)
    running = processes(draw)
    store(writer, drawn(draw, "w", running, 20), 1)
    sweep(db)
    before = told(db, TABLE)
    assert len(before) > 20
    with db.write() as connection:
        without_partitions(connection)
        for table in ("kernel_hours", "process_states"):
            connection.execute(text(f"DROP TABLE {table}"))
        for table, names in LATER.items():
            for name in names:
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {name}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0009'"))
    opened = database.open(url)
    try:
        assert told(opened, TABLE) == before
        assert told(opened, "SELECT version_num FROM alembic_version") == [(REVISION,)]
        assert told(opened, SUMMED)
    finally:
        opened.close()


@pytest.mark.parametrize("summed_up", [0, 9 * HOUR_NS, END_NS - BEGIN_NS])
def test_hours_of_devices_are_whole(db: Database, writer: Writer, summed_up: int) -> None:
    """Whatever of it is summed up: each device's time and each cause's, by hour, as the windows themselves have it."""
    draw = random.Random(7)
    running = processes(draw)
    windows = drawn(draw, "w", running, 40)
    store(writer, windows, 1)
    if summed_up:
        sweep(db, BEGIN_NS + summed_up)
    spans: Counter[tuple[Any, ...]] = Counter()
    causes: Counter[tuple[Any, ...]] = Counter()
    for w in windows:
        hour = w.start_unix_ns // HOUR_NS * HOUR_NS
        for d in w.devices:
            weight = w.represents_ns / d.span_ns if w.represents_ns and d.span_ns else 1.0
            key = (hour, w.process.node.host, d.device.model)
            spans[(*key, "busy")] += d.busy_ns
            spans[(*key, "est")] += math.floor(d.busy_ns * weight + 0.5)
            for cause in d.causes:
                causes[(*key, cause.cause)] += math.floor(cause.total_ns * weight + 0.5)
    key = "hour_unix_ns, host, device_model"
    rows = told(db, f"SELECT {key}, sum(busy_ns), sum(est_busy_ns) FROM dashboard_device_hours GROUP BY {key}")  # noqa: S608 - ours
    found = {(*row[:3], name): int(value) for row in rows for name, value in zip(("busy", "est"), row[3:], strict=True)}
    assert found == dict(spans)
    rows = told(db, f"SELECT {key}, cause, sum(est_ns) FROM dashboard_idle_hours GROUP BY {key}, cause")  # noqa: S608 - ours
    assert {row[:4]: int(row[4]) for row in rows} == dict(causes)
    assert told(db, "SELECT count(*), count(DISTINCT id) FROM dashboard_windows") == [(len(windows), len(windows))]
    assert told(db, "SELECT count(*) FROM dashboard_devices") == [(sum(len(w.devices) for w in windows),)]
