"""Sums of a node and of the fleet, and every other table: an answer is what the windows themselves add up to."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fresh
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rollup_builders import BEGIN_NS, DAY_NS, DAYS, HOUR_NS, processes, scope, window
from sqlalchemy import func, select
from store_builders import GEMM, process_of, segment_of, stat, window_of

from roofwatch.model.answer import estimated, weight_of
from roofwatch.model.answer_rows import percentile
from roofwatch.model.histogram import Histogram
from roofwatch.model.record import Device, Node, Process, Window
from roofwatch.store import retention, rollup, rollup_groups, schema
from roofwatch.store.blocks import pack
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.rollup_groups import FLEET
from roofwatch.store.unpack import Unpacker

EXAMPLES = int(os.environ.get("ROOFWATCH_GROUP_EXAMPLES", "4"))
END_NS = BEGIN_NS + (DAYS + 1) * DAY_NS
K = schema.kernel_sums.c


@contextmanager
def opened() -> Iterator[Database]:
    """A database of its own: an example of many has no fixture."""
    with tempfile.TemporaryDirectory() as folder:
        db = fresh.opened(Path(folder) / "store.db")
        yield db
        db.close()


def store(db: Database, windows: list[Window], sequence: int) -> None:
    """One segment."""
    writer = Writer(db)
    writer.submit(Unpacker().unpack(segment_of(windows, sequence))).result(60)
    writer.close()


def sweep(db: Database, now_ns: int = END_NS) -> None:
    """Sum up all that is over."""
    with db.write() as connection:
        while rollup.sweep(connection, now_ns):
            pass


def groups(db: Database) -> Counter[str]:
    """How many hours and days have sums of the fleet and of nodes."""
    with db.read() as connection:
        found = connection.execute(select(K.grain, K.bucket_unix_ns, K.process_id).distinct()).all()
        hosts = set(connection.scalars(select(schema.nodes.c.id)))
    return Counter("fleet" if of == FLEET else "node" if of in hosts else "process" for _, _, of in found)


def meant(f: Filter, w: Window, device: Device) -> bool:
    """Whether a filter means a device's kernels in a window, in plain words."""
    p = w.process
    return (
        (f.since_unix_ns is None or f.since_unix_ns <= w.start_unix_ns)
        and (f.until_unix_ns is None or w.start_unix_ns < f.until_unix_ns)
        and f.node in {None, p.node.host}
        and f.process in {None, str(p.pid)}
        and f.model in {None, p.model}
        and f.job in {None, p.job}
        and all(value in {p.labels.get(key), p.node.labels.get(key)} for key, value in f.labels.items())
        and (f.device is None or f.device.lower() in device.model.lower())
        and f.vendor in {None, str(device.vendor)}
    )


def left(db: Database, f: Filter, w: Window) -> bool:
    """Whether a store still knows a window for a filter: an hour or day of which only sums are kept, as a whole."""
    r = schema.rollups.c
    for grain, size in ((86_400, DAY_NS), (3600, HOUR_NS)):
        begin = w.start_unix_ns // size * size
        mine = (r.grain == grain, r.bucket_unix_ns == begin, r.process_id == w.process.id)
        with db.read() as connection:
            gone = connection.scalar(select(r.finer).where(*mine)) is False
        if gone:
            since, until = f.since_unix_ns, f.until_unix_ns
            return (since is None or since <= begin) and (until is None or begin + size <= until)
    return True


def by_hand(db: Database, windows: list[Window], f: Filter) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Calls, times, percentiles by kernel, shapes, module and device model, added up one by one."""
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for w in windows:
        for k in w.kernels:
            device = w.devices[k.device]
            if meant(f, w, device.device) and left(db, f, w):
                s = k.signature
                est = estimated(k.total_ns, weight_of(w, device))
                found[s.kernel, s.shapes, s.module, device.device.model].append((k, est))
    rows = {}
    for key, of in found.items():
        stats = [k for k, _ in of]
        low, high = min(k.min_ns for k in stats), max(k.max_ns for k in stats)
        spread = Histogram.merged(k.histogram for k in stats)
        rows[key] = (
            sum(k.calls for k in stats), sum(k.total_ns for k in stats), sum(est for _, est in of), low, high,
            percentile(spread, 0.5, low, high), percentile(spread, 0.95, low, high),
        )  # fmt: skip
    return rows


def told(db: Database, f: Filter) -> tuple[dict[tuple[Any, ...], tuple[Any, ...]], dict[str, int]]:
    """The same as the store answers, and from where."""
    answer = Queries(db).run("top", f)
    names = ("calls", "total_ns", "est_ns", "min_ns", "max_ns", "p50_ns", "p95_ns")
    rows = {
        (
            row["kernel"], None if row["shapes"] is None else json.dumps(row["shapes"], separators=(",", ":")),
            row["module"], row["device"],
        ): tuple(row[name] for name in names)
        for row in answer["rows"]
    }  # fmt: skip
    return rows, answer["coverage"]["sources"]


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, phases=[Phase.generate])  # a seed has no simpler one
@given(seed=st.integers(0, 1 << 30), kept_h=st.sampled_from((1, 30, 60, 10**6)), days=st.sampled_from((1, 2, 10**4)))
def test_an_answer_is_what_its_windows_add_up_to(seed: int, kept_h: int, days: int) -> None:
    """Random windows, late ones, retention at any state, any filter: equal to a sum over all windows by hand."""
    draw = random.Random(seed)
    of = processes(draw)
    windows = [window(draw, f"{seed}-{i}", draw.choice(of)) for i in range(30)]
    now_ns = BEGIN_NS + DAYS * DAY_NS
    with opened() as db:
        store(db, windows[:20], 1)
        sweep(db, BEGIN_NS + draw.randrange(DAYS * DAY_NS))
        keep = Keep(raw_s=kept_h * 3600, hourly_s=max(kept_h * 3600, days * 86_400), daily_s=10**12)
        with db.write() as connection:
            retention.prune(connection, now_ns, keep, most=draw.choice((1, 5, 1000)))
        store(db, windows[20:], 2)
        for swept in (False, True):
            if swept:
                sweep(db)
                assert groups(db)["fleet"] > 0
            for _ in range(6):
                f = scope(draw)
                assert told(db, f)[0] == by_hand(db, windows, f), (f, swept)


BLOCKS = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)  # engines that keep sums as blocks


def of_hour(name: str, process: Process, hour: int, ns: int = 10) -> Window:
    """A window of one kernel."""
    return window_of(name, [stat(GEMM, [ns])], process=process, start_unix_ns=BEGIN_NS + hour * HOUR_NS)


@BLOCKS
def test_groups_are_made_forgotten_and_made_again(db: Database) -> None:
    """A node of two processes gets a sum; a late window takes its and the fleet's away, and no other's.

    By hand: node a has two processes in hours 0 and 1, node b one; so 2 sums of a and 2 of the fleet by hour, and one
    of each of the day.
    """
    first, second, other = process_of("a", 1), process_of("a", 2), process_of("b", 1)
    windows = [of_hour(f"{p.node.host}{p.pid}-{hour}", p, hour) for p in (first, second, other) for hour in (0, 1)]
    store(db, windows, 1)
    sweep(db)
    assert groups(db) == {"process": 9, "node": 3, "fleet": 3}
    store(db, [of_hour("late", other, 1, 7)], 2)
    assert groups(db)["node"] == 3  # node b has none, and a is as it was
    assert groups(db)["fleet"] == 1  # hour 0
    assert told(db, Filter())[0] == by_hand(db, [*windows, of_hour("late", other, 1, 7)], Filter())
    store(db, [of_hour("later", first, 0, 7)], 3)
    assert groups(db)["node"] == 1
    sweep(db)
    assert groups(db) == {"process": 9, "node": 3, "fleet": 3}


def _spoil(db: Database) -> None:
    """Make what groups hold three times as much, so that an answer tells whether it read them."""
    with db.write() as connection:
        for row in connection.execute(select(schema.kernel_sums)).all():
            if row.process_id == FLEET or connection.scalar(
                select(func.count()).select_from(schema.nodes).where(schema.nodes.c.id == row.process_id)
            ):
                from roofwatch.store.blocks import SUM, unpack  # noqa: PLC0415

                columns = unpack(row.sums, len(SUM)).copy()
                columns[SUM.index("total_ns")] *= 3
                mine = (K.grain == row.grain, K.bucket_unix_ns == row.bucket_unix_ns, K.process_id == row.process_id)
                changed = schema.kernel_sums.update().where(*mine, K.device_id == row.device_id)
                connection.execute(changed.values(sums=pack(columns)))


@BLOCKS
def test_which_questions_read_groups(db: Database) -> None:
    """All, one node, each node are read from groups; a process, job, model or label, a host of two boots never are."""
    first, second = process_of("a", 1, job="j", model="m", labels={"x": "y"}), process_of("a", 2)
    again = dataclasses.replace(process_of("c", 1), node=Node("c", "boot-1"))
    more = [again, dataclasses.replace(again, node=Node("c", "boot-2"), pid=2)]
    store(db, [of_hour(f"w{i}", p, 0) for i, p in enumerate((first, second, *more))], 1)
    sweep(db)
    _spoil(db)

    def total(**f: Any) -> int:
        return int(Queries(db).run("top", Filter(**f))["rows"][0]["total_ns"])

    assert total() == 3 * 40
    assert total(node="a") == total(node="a", device="h100") == 3 * 20
    assert total(node="c") == 20
    assert [total(process="1"), total(job="j"), total(model="m"), total(labels={"x": "y"})] == [20, 10, 10, 10]
    assert Queries(db).run("top_by", Filter(), options={"by": "kernel"})["rows"][0]["total_ns"] == 3 * 40
    for by, wanted in (("node", {"a": 3 * 20, "c": 20}), ("device", {"a": 20, "c": 20})):
        for every in ({}, {"every_ns": HOUR_NS}):
            rows = Queries(db).run("top_by", Filter(), options={"by": by, **every})["rows"]
            assert {host: sum(r["total_ns"] for r in rows if r["node"] == host) for host in "ac"} == wanted
    rows = Queries(db).run("top_by", Filter(job="j"), options={"by": "node"})["rows"]
    assert [r["total_ns"] for r in rows] == [10]


def _of_fleet(db: Database) -> list[Any]:
    """Its sums, to the byte."""
    with db.read() as connection:
        found = connection.execute(select(schema.kernel_sums).where(K.process_id == FLEET)).all()
    return sorted(tuple(row) for row in found)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_fleet_of_many_nodes_is_summed_up_by_parts(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part a transaction, until the fleet's sum is there: the same bytes as at once, and no part stays.

    A late window in between takes the parts away that lack it.
    """
    hosts = [process_of(host, pid) for host in "abcdefg" for pid in (1, 2) if (host, pid) != ("g", 2)]
    store(db, [of_hour(f"{p.node.host}{p.pid}", p, 0) for p in hosts], 1)
    monkeypatch.setattr(rollup_groups, "SPLIT", 6)
    monkeypatch.setattr(rollup_groups, "PARTS", 2)

    def parts() -> set[int]:
        with db.read() as connection:
            return set(connection.scalars(select(K.process_id).where(K.process_id.between(1, 2))))

    def one() -> int:
        with db.write() as connection:
            return rollup.sweep(connection, END_NS)

    while not parts():
        assert one()
    assert len(parts()) == 1
    assert not _of_fleet(db)
    store(db, [of_hour("late", hosts[0], 0)], 2)
    assert not parts()
    sweep(db)
    assert not parts()
    by_parts = _of_fleet(db)
    assert by_parts
    with db.write() as connection:
        connection.execute(schema.kernel_sums.delete().where(K.process_id == FLEET))
    monkeypatch.setattr(rollup_groups, "SPLIT", 7)
    sweep(db)
    assert _of_fleet(db) == by_parts
