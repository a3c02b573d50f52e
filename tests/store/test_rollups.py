"""Sums of hours and days: an answer from them is the answer from the windows, whatever came when."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from rollup_builders import BEGIN_NS, DAY_NS, DAYS, HOUR_NS, processes, scope, window
from sqlalchemy import func, select
from store_builders import GEMM, NORM, SQLITE_ALONE, process_of, segment_of, stat, window_of

from roofwatch.model.record import Cause, IdleCause, Window
from roofwatch.store import rollup, schema
from roofwatch.store.blocks import FACT
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.sums import COLUMN, of_windows
from roofwatch.store.unpack import Unpacker

SEEDS = int(os.environ.get("ROOFWATCH_ROLLUP_SEEDS", "1"))
ASKED = ("top", "roofline", "timeline", "timeline_process", "timeline_node", "diagnose", "nodes", "processes")
END_NS = BEGIN_NS + (DAYS + 1) * DAY_NS


def store(writer: Writer, windows: list[Window], first: int) -> None:
    """Each window in a segment of its own, in this order."""
    unpacker = Unpacker()
    sent = [writer.submit(unpacker.unpack(segment_of([w], i))) for i, w in enumerate(windows, first)]
    for future in sent:
        future.result(60)


def sweep(db: Database, now_ns: int = END_NS) -> None:
    """Sum up all that is over."""
    with db.write() as connection:
        while rollup.sweep(connection, now_ns):
            pass


def asked(db: Database, query: str, f: Filter, limit: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """An answer without where it came from, and that."""
    found = json.loads(json.dumps(Queries(db).run(query, f, limit)))
    for name in ("source", "rows_source"):
        found["coverage"].pop(name)
    return found, found["coverage"].pop("sources")


def alike(db: Database, draw: random.Random, times: int) -> Counter[str]:
    """Hold answers from sums against answers from windows alone; gives how many windows the former took from where."""
    used: Counter[str] = Counter()
    for _ in range(times):
        f = scope(draw)
        query, limit = draw.choice(ASKED), draw.choice((0, 2))
        found, sources = asked(db, query, f, limit)
        with raw_only():
            expected, windows = asked(db, query, f, limit)
        assert found == expected, (query, f)
        assert sum(sources.values()) == sum(windows.values()) == found["coverage"]["windows"]
        used.update(sources)
    return used


@SQLITE_ALONE
@pytest.mark.parametrize("seed", range(SEEDS))
def test_sums_answer_as_windows_do(db: Database, writer: Writer, seed: int) -> None:
    """Random windows in random order, random filters: equal to the last digit, before, amid and after summing up."""
    draw = random.Random(seed)
    of = processes(draw)
    windows = [window(draw, f"{seed}-{i}", draw.choice(of)) for i in range(160)]
    store(writer, windows[:100], 1)
    used = alike(db, draw, 8)  # those hours that a process left behind are summed up
    sweep(db, BEGIN_NS + DAYS * DAY_NS // 2)
    used += alike(db, draw, 8)
    store(writer, windows[100:], 101)  # late ones, all over the days
    used += alike(db, draw, 8)
    sweep(db)
    used += alike(db, draw, 16)
    assert all(used[name] for name in ("raw", "hourly", "daily"))


def test_an_hour_is_summed_up_when_its_process_leaves_it(db: Database, writer: Writer) -> None:
    """Windows of an hour are asked one by one until one of the next arrives; a late one opens the hour again."""
    q = Queries(db)

    def sources() -> dict[str, int]:
        return dict(q.run("top", Filter())["coverage"]["sources"])

    def at(name: str, minutes: int) -> Window:
        return window_of(name, [stat(GEMM, [10])], start_unix_ns=BEGIN_NS + minutes * 60 * 10**9)

    store(writer, [at("a", 1), at("b", 59)], 1)
    assert sources() == {"raw": 2}
    store(writer, [at("c", 60)], 3)
    assert sources() == {"hourly": 2, "raw": 1}
    store(writer, [at("late", 30)], 4)
    assert sources() == {"raw": 4}
    store(writer, [at("late", 30)], 5)  # once more under another number: counted once
    sweep(db)
    assert sources() == {"daily": 4}
    row = q.run("top", Filter())["rows"][0]
    assert (row["calls"], row["total_ns"]) == (4, 40)


def test_cut_hours_come_from_windows(db: Database, writer: Writer) -> None:
    """A filter that cuts hours takes their windows, whole hours between from sums, and never the day."""
    windows = [
        window_of(f"w{i}", [stat(GEMM, [i + 1])], start_unix_ns=BEGIN_NS + i * HOUR_NS // 4) for i in range(4 * 24)
    ]
    store(writer, windows, 1)
    sweep(db)
    cut = Filter(BEGIN_NS + HOUR_NS // 2, BEGIN_NS + 3 * HOUR_NS + HOUR_NS // 4)
    found = Queries(db).run("top", cut)
    assert found["coverage"]["sources"] == {"hourly": 8, "raw": 3}
    assert found["coverage"]["source"] == "hourly"
    assert found["rows"][0]["total_ns"] == sum(i + 1 for i in range(2, 13))
    assert Queries(db).run("top", Filter())["coverage"]["sources"] == {"daily": 96}


def test_processes_of_unequal_rates_rank_rightly(db: Database, writer: Writer) -> None:
    """A process seen sixty times as often does not weigh more: what counts is the time that its windows stand for.

    By hand, over one hour: A has a window a minute, half of it GEMM: 30 min. B has one window that stands for the
    hour, 9/10 of it NORM: 54 min. Sampled, GEMM has 60 × 500 µs and NORM 900 µs.
    """
    often, seldom = process_of("a", 1), process_of("b", 2)
    minute = 60 * 10**9
    windows = [
        window_of(
            f"a{i}", [stat(GEMM, [500_000])], process=often, start_unix_ns=BEGIN_NS + i * minute, span_ns=10**6,
            represents_ns=minute,
        )
        for i in range(60)
    ]  # fmt: skip
    windows.append(
        window_of(
            "b", [stat(NORM, [900_000])], process=seldom, start_unix_ns=BEGIN_NS, span_ns=10**6, represents_ns=HOUR_NS
        )
    )
    store(writer, windows, 1)
    for summed in (False, True):
        rows = Queries(db).run("top", Filter())["rows"]
        assert [(r["kernel"], r["est_ns"], r["total_ns"]) for r in rows] == [
            (NORM.kernel, 54 * minute, 900_000),
            (GEMM.kernel, 30 * minute, 30_000_000),
        ], summed
        assert rows[0]["share"] == pytest.approx(54 / 84)
        sweep(db)
    assert Queries(db).run("top", Filter())["coverage"]["source"] == "daily"


def test_nothing_is_left_stale(db: Database, writer: Writer) -> None:
    """Sweeping sums up every piece that is over, the hours of a day before the day, and then has nothing to do."""
    draw = random.Random(9)
    of = processes(draw)
    store(writer, [window(draw, f"n{i}", draw.choice(of)) for i in range(40)], 1)
    sweep(db)
    r = schema.rollups.c
    with db.write() as connection:
        assert connection.execute(select(func.count()).where(r.stale)).scalar() == 0
        assert rollup.sweep(connection, END_NS) == 0


def test_halves_and_ties_by_hand(db: Database, writer: Writer) -> None:
    """An estimate is in whole nanoseconds, halves up; of examples as long the first in the alphabet is told.

    By hand: a window of span 8 that stands for 12 has weight 1.5; a kernel of 3 ns stands for 4.5, so 5; two for 10.
    """

    def one(name: str, example: str) -> Window:
        cause = IdleCause(Cause.INPUT, 4, 1, 4, example)
        at = BEGIN_NS if name == "a" else BEGIN_NS + HOUR_NS
        return window_of(name, [stat(GEMM, [3])], start_unix_ns=at, span_ns=8, represents_ns=12, causes=(cause,))

    store(writer, [one("a", "second"), one("b", "first")], 1)
    for _ in range(2):
        found = Queries(db).run("top", Filter())
        assert [row["est_ns"] for row in found["rows"]] == [10]
        assert found["summary"]["causes"]["input"]["est_ns"] == 12
        assert found["summary"]["causes"]["input"]["example"] == "first"
        sweep(db)


def test_calls_inside_steps_count_only_where_there_are_steps() -> None:
    """Of windows without steps no calls are inside; a window's steps go to the row that is its kernel's first."""
    facts = np.zeros((len(FACT), 2), np.int64)
    facts[FACT.index("step_calls")] = 4
    facts[FACT.index("first")] = 1
    rows = of_windows(facts, np.array([0, 0]), np.ones(2), np.array([0, 3]))
    assert rows.columns[COLUMN["stepping_calls"]].tolist() == [0, 4]
    assert rows.columns[COLUMN["steps"]].tolist() == [0, 3]
