"""How long a store of 24 hours of 16 nodes (bench/_fleet_day.py) takes to answer, in SQLite and in Postgres.

In-process: ``Queries.run`` on a warm connection, which is what a served store does for each question. Judged is
processor time, the store's and the database server's, of the best of some runs: it is what an idle machine's clock
would say, and what else runs here hits it least; the clock's best and median stand beside it. "The blocks alone" is
what the same answer cannot do without: reading and unpacking the sums that it rests on, and nothing else.

The first run builds both stores in build/bench (some minutes each) and keeps them.

    python bench/store_queries.py [--engine sqlite|postgres|both] [--rounds N] [--all]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import _fleet_day as day
import psutil
from _rows import CACHE, or_skipped, row
from sqlalchemy import select

from roofwatch.store import database
from roofwatch.store.blocks import SUM, unpack
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.queries.run import Queries, load
from roofwatch.store.rollup_groups import FLEET
from roofwatch.store.rollup_schema import HOUR_S
from roofwatch.store.schema import kernel_sums, nodes

ROUNDS = 5
NODE = "node-03"
HOUR_NS = HOUR_S * 10**9
DAY: dict[str, Any] = {"since_unix_ns": day.BEGIN_NS, "until_unix_ns": day.END_NS}
# Neither end is a whole hour: the windows of two hours are read one by one.
ODD: dict[str, Any] = {"since_unix_ns": day.BEGIN_NS + 10**12, "until_unix_ns": day.END_NS - 10**12}
LIMITS = {"SQLite": (60, 400, 55), "Postgres": (30, 200, 105)}  # ms of one node, of all; bytes a fact


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and by which of the limits it is judged: 0 of one node, 1 of all, None by none."""

    query: str
    scope: Filter
    limit: int = 20
    other: Filter | None = None
    options: dict[str, Any] | None = None
    judged: int | None = None


def job(number: int, **times: Any) -> Filter:
    """Two nodes."""
    return Filter(job=f"slurm:{number}", **(times or DAY))


QUESTIONS = {
    "top 20 of one node": Question("top", Filter(node=NODE, **DAY), judged=0),
    "top 20 of all nodes": Question("top", Filter(**DAY), judged=1),
    "compare of two device models": Question(
        "compare", Filter(device="h100", **DAY), other=Filter(device="910b", **DAY), judged=1
    ),
    "top 20 of one node, odd hours": Question("top", Filter(node=NODE, **ODD)),
    "top 20 of all nodes, odd hours": Question("top", Filter(**ODD)),
}
MORE = {
    "top 20 of one label": Question("top", Filter(labels={"version": "v1"}, **DAY)),
    "top 20 of one job": Question("top", job(1)),
    "top by kernel": Question("top_by", Filter(**DAY), options={"by": "kernel"}),
    "top by op": Question("top_by", Filter(**DAY), options={"by": "op"}),
    "top by module": Question("top_by", Filter(**DAY), options={"by": "module"}),
    "top by node": Question("top_by", Filter(**DAY), options={"by": "node"}),
    "top by device": Question("top_by", Filter(**DAY), options={"by": "device"}),
    "top by kernel, every hour": Question("top_by", Filter(**DAY), options={"by": "kernel", "every_ns": HOUR_NS}),
    "top by node, every hour": Question("top_by", Filter(**DAY), options={"by": "node", "every_ns": HOUR_NS}),
    "roofline": Question("roofline", Filter(**DAY)),
    "timeline by device": Question("timeline", Filter(**DAY)),
    "timeline by process": Question("timeline_process", Filter(**DAY)),
    "timeline by node": Question("timeline_node", Filter(**DAY)),
    "timeline by window": Question("timeline_window", Filter(**DAY)),
    "nodes": Question("nodes", Filter(**DAY)),
    "processes": Question("processes", Filter(**DAY)),
    "windows": Question("windows", Filter(**DAY)),
    "diagnose of one node": Question("diagnose", Filter(node=NODE, **DAY), 10),
    "diagnose of all nodes": Question("diagnose", Filter(**DAY), 10),
    "padding": Question("padding", Filter(**DAY)),
    "peers of one job": Question("peers", job(1)),
    "ranks of one job": Question("ranks", job(1)),
    "whatif of one node": Question("whatif", Filter(node=NODE, **DAY), options={"weights": "int4"}),
    "regressions of one job, half a day against the other": Question(
        "regressions", job(1, since_unix_ns=day.BEGIN_NS, until_unix_ns=day.BEGIN_NS + 12 * HOUR_NS),
        other=job(1, since_unix_ns=day.BEGIN_NS + 12 * HOUR_NS, until_unix_ns=day.END_NS),
    ),
    "report of one node": Question("report", Filter(node=NODE, **DAY), 10),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds: least processor time, the clock's least and median."""

    cpu: float
    best: float
    median: float


def measured(run: Callable[[], object], rounds: int, cpu_s: Callable[[], float]) -> Took:
    """Of some runs after one that warms up."""
    run()
    cpus, walls = [], []
    for _ in range(rounds):
        before, begin = cpu_s(), time.perf_counter()
        run()
        walls.append((time.perf_counter() - begin) * 1000)
        cpus.append((cpu_s() - before) * 1000)
    return Took(min(cpus), min(walls), statistics.median(walls))


def ask(db: Database, q: Question) -> dict[str, Any]:
    """The answer."""
    return Queries(db).run(q.query, q.scope, q.limit, q.other, q.options or {})


def blocks_alone(db: Database, group: int) -> None:
    """Read and unpack the sums of hours of a node, or of all."""
    k = kernel_sums.c
    buckets = list(range(day.BEGIN_NS, day.END_NS, HOUR_NS))
    query = select(k.sums).where(k.grain == HOUR_S, k.bucket_unix_ns.in_(buckets), k.process_id == group)
    with db.read() as connection:
        for block in connection.scalars(query):
            unpack(block, len(SUM))


def took(name: str, run: Callable[[], object], rounds: int, cpu_s: Callable[[], float], limit: float | None) -> None:
    """Measure and print a row; the clock's times stand beside it."""
    found = measured(run, rounds, cpu_s)
    row(name, found.cpu, "ms", at_most=limit, wall_best_ms=found.best, wall_median_ms=found.median)


def answers(db: Database, name: str, options: argparse.Namespace, cpu_s: Callable[[], float]) -> None:
    """The table of one engine."""
    with db.read() as connection:
        node = int(connection.scalar(select(nodes.c.id).where(nodes.c.host == NODE)) or 0)
    asked = {**QUESTIONS, **(MORE if options.all else {})}
    for label, q in asked.items():
        limit = None if q.judged is None else LIMITS[name][q.judged]
        took(f"{name}, 10 M facts of 24 h: {label}", partial(ask, db, q), options.rounds, cpu_s, limit)
    for label, group in (("one node", node), ("all nodes", FLEET)):
        alone = partial(blocks_alone, db, group)
        took(f"{name}, the blocks alone that top of {label} rests on", alone, options.rounds, cpu_s, None)


def size(name: str, size_bytes: int) -> None:
    """What a fact takes, with everything that a store holds."""
    each = size_bytes / day.FACTS
    row(f"{name}: bytes a raw fact with histogram, sums and indexes", each, "B", at_most=LIMITS[name][2])


@contextmanager
def sqlite() -> Iterator[tuple[Database, Callable[[], float]]]:
    """The day's file, open."""
    file = day.sqlite_day(CACHE)
    db = database.open(str(file))
    size("SQLite", file.stat().st_size)
    yield db, time.process_time
    db.close()


@contextmanager
def postgres() -> Iterator[tuple[Database, Callable[[], float]]]:
    """The day's server, running."""
    with day.postgres_day(CACHE) as server:
        db = database.open(server.url("day"))
        size("Postgres", int(server.run("SELECT pg_database_size('day')")[0][0]))
        assert server.process is not None
        main = psutil.Process(server.process.pid)

        def cpu_s() -> float:
            times = [p.cpu_times() for p in (main, *main.children(recursive=True))]
            return time.process_time() + sum(t.user + t.system for t in times)

        yield db, cpu_s
        db.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--all", action="store_true", help="every question, not only those with limits")
    options = parser.parse_args()
    load()
    for name, opened in (("SQLite", sqlite), ("Postgres", postgres)):
        if options.engine in {name.lower(), "both"}:
            with or_skipped(f"{name}, 10 M facts of 24 h"), opened() as (db, cpu_s):
                answers(db, name, options, cpu_s)


if __name__ == "__main__":
    main()
