"""The store on ClickHouse (chdb, the engine itself, behind ClickHouse's HTTP protocol in a process of its own).

Ingest over gRPC until everything can be asked for, against raw inserts of the same rows, 30,000 at a time; then ten
million kernels of a day of 128 processes, made by SQL from what was ingested, summed up and asked. Answers are judged
by the clock, since store and engine work at once; what they took of the processor is told beside it (``cpu_ms``).

A question for the first time is one of hours and days that nobody asked for: of these nothing is remembered, neither
kernels nor other sums, nor the roofs of what is shown. What stays is what a content hash names, the descriptions of
signatures and devices: whichever node is asked for, they are those of the question before. The server's own caches
stay, too: pages of files, and marks.

    python bench/store_clickhouse.py [--copies N] [--minutes N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import _servers
import psutil
from _clickhouse_day import fact_bytes, multiplied, summed_up, two_models
from _rows import or_skipped, row, say
from clickhouse_server import ClickHouse

from roofwatch.cli.fleet.bench import Fleet, fleet_of, over_grpc
from roofwatch.cli.fleet.local import local_store
from roofwatch.store import database
from roofwatch.store.clickhouse import batch
from roofwatch.store.clickhouse.engine import client
from roofwatch.store.clickhouse.native import encode
from roofwatch.store.clickhouse.opening import ClickHouse as Opened
from roofwatch.store.clickhouse.remembered import remembered
from roofwatch.store.clickhouse.sink import type_of
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries
from roofwatch.store.queries.gathered import gathered
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.unpack import Unpacker

AGENTS, MINUTES, ROUNDS = 16, 8, 3
ROWS = 30_000
COPIES = 32
MOST_MS = {"one node": 20, "all nodes": 60, "two models": 60}
NAMES = {"one node": "top 20 of one node", "all nodes": "top 20 of all nodes", "two models": "compare of two models"}


@dataclass(frozen=True, slots=True)
class Load:
    """How much is measured; of less than the default nothing is judged."""

    minutes: int = MINUTES
    rounds: int = ROUNDS
    copies: int = COPIES

    @property
    def ingest_judged(self) -> bool:
        """Whether as much was ingested as the limits are about."""
        return self.minutes >= MINUTES

    @property
    def judged(self) -> bool:
        """Whether the day is as large as the limits are about."""
        return self.ingest_judged and self.copies >= COPIES


Blocks = Sequence[tuple[list[str], bytes]]


def ready(windows: Sequence[Any], *, narrow: bool) -> list[tuple[list[str], bytes]]:
    """The kernels as blocks of so many rows: of the table's own types, or as the store sends them."""
    blocks, some, rows = [], [], 0
    for number, w in enumerate(windows, 1):
        some.append((number, w))
        rows += w.rows
        if rows >= ROWS or number == len(windows):
            columns = [batch.facts(some)] if not narrow else list(batch.blocks(some))
            told = [{name: (type_of("kernel_facts", name), of[name]) for name in of} for of in columns]
            blocks.append((list(columns[0]), b"".join(encode(of, narrow=narrow) for of in told)))
            some, rows = [], 0
    return blocks


def raw_insert(opened: Opened, blocks: Blocks) -> float:
    """Seconds for ready blocks into the same table, and nothing else."""
    with opened.engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE raw_facts AS kernel_facts")
        begin = time.perf_counter()
        for names, block in blocks:
            client(connection).raw_insert("raw_facts", names, block, fmt="Native")
        took = time.perf_counter() - begin
        connection.exec_driver_sql("DROP TABLE raw_facts SYNC")
    return took


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds a kernel: of the clock for raw inserts and for ingest, of processor for store and engine."""

    alone: float  # blocks of the table's own types
    narrow: float  # the store's own blocks, sent again
    acked: float
    took: float  # until all can be asked for
    store_cpu: float
    engine_cpu: float


def ingest(server: ClickHouse, folder: Path, load: Load) -> str:
    """The same kernels by raw inserts and over gRPC, in turns; prints the medians, gives the last database's name."""
    fleet = fleet_of(AGENTS, load.minutes)
    unpacker = Unpacker()
    windows = [w for of in fleet for e in of for w in unpacker.unpack(e).windows]
    blocks = ready(windows, narrow=False), ready(windows, narrow=True)
    rounds, name = [], ""
    for number in range(load.rounds):
        name, here = server.create(), folder / str(number)
        here.mkdir()
        rounds.append(one_round(server, name, here, fleet, windows, blocks))
    told_ingest(rounds, judged=load.ingest_judged)
    return name


def one_round(
    server: ClickHouse, name: str, folder: Path, fleet: Fleet, windows: Sequence[Any], blocks: Sequence[Blocks]
) -> Round:
    """Both ways of raw inserts, then a store; its first minute, in which everything is new, is not counted."""
    rows, minutes = sum(w.rows for w in windows), len(fleet[0])
    counted = rows * (minutes - 1) / minutes
    opened = database.open(server.url(name))
    assert isinstance(opened, Opened)
    alone, narrow = (raw_insert(opened, some) / rows for some in blocks)
    opened.close()
    with local_store(folder, server.url(name)) as store:
        over_grpc(store, [of[:1] for of in fleet])
        _until(server, name, AGENTS * 8)
        before, own, begin = store.cpu_s(), _spent(server), time.perf_counter()
        acked = over_grpc(store, [of[1:] for of in fleet])[0]
        _until(server, name, len(windows))
        took = time.perf_counter() - begin
        spent = store.cpu_s() - before, _spent(server) - own
    return Round(alone, narrow, acked / counted, took / counted, spent[0] / counted, spent[1] / counted)


def told_ingest(rounds: Sequence[Round], *, judged: bool) -> None:
    """Medians; of ratios, those within a round, since what else runs here hits both."""
    median = statistics.median
    share = median(one.alone / one.took for one in rounds) * 100
    cpu_us = median(one.store_cpu for one in rounds) * 1e6
    row("ClickHouse: ingest over gRPC, acknowledged", 1 / median(one.acked for one in rounds), "rows/s")
    row("ClickHouse: ingest over gRPC, all to be asked for", 1 / median(one.took for one in rounds), "rows/s")
    row(f"ClickHouse: raw inserts of {ROWS:,} rows alone", 1 / median(one.alone for one in rounds), "rows/s")
    row(
        f"ClickHouse: ingest over gRPC against raw inserts of {ROWS:,} rows",
        share,
        "%",
        at_least=50 if judged else None,
    )
    row("ClickHouse: raw inserts of the store's own narrow blocks", 1 / median(one.narrow for one in rounds), "rows/s")
    narrow = median(one.narrow / one.took for one in rounds) * 100
    row("ClickHouse: ingest over gRPC against these narrow ones", narrow, "%")
    row("ClickHouse: processor time of the store a row", cpu_us, "µs", at_most=2 if judged else None)
    row("ClickHouse: processor time of the engine a row", median(one.engine_cpu for one in rounds) * 1e6, "µs")


def _until(server: ClickHouse, name: str, windows: int) -> None:
    """Wait for so many windows, asked for on one connection: the two cores are for who inserts."""
    with closing(HTTPConnection("127.0.0.1", server.port)) as connection:
        told = -1
        while told != windows:
            time.sleep(0 if told < 0 else 0.02)
            connection.request("POST", f"/?database={name}", "SELECT count() FROM windows")
            told = int(connection.getresponse().read())


def _spent(server: ClickHouse) -> float:
    assert server.process is not None
    of = psutil.Process(server.process.pid).cpu_times()
    return float(of.user + of.system)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=COPIES, help="of what was ingested make the day; 0: ingest alone")
    parser.add_argument("--minutes", type=int, default=MINUTES, help="that each node sends; 8 are 307,200 kernels")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of ingest")
    options = parser.parse_args()
    load = Load(options.minutes, options.rounds, options.copies)
    with (
        or_skipped("ClickHouse: ingest, answers, bytes a raw fact"),
        _servers.clickhouse() as server,
        tempfile.TemporaryDirectory(prefix="roofwatch-bench-") as folder,
    ):
        os.environ["XDG_STATE_HOME"] = folder
        name = ingest(server, Path(folder), load)
        if load.copies:
            with closing(database.open(server.url(name))) as opened:
                assert isinstance(opened, Opened)
                day(server, opened, name, load)


def day(server: ClickHouse, opened: Opened, name: str, load: Load) -> None:
    """The day of ten million kernels: its size and its answers."""
    two_models(server, name)
    multiplied(server, name, load.copies)
    summed_up(server, opened, name)
    each, rows = fact_bytes(server, name)
    label = f"ClickHouse: bytes a raw fact with histogram and indexes, of {rows:,}"
    row(label, each, "B", at_most=25 if load.judged else None)
    questions(server, opened, f"ClickHouse, {rows / 1e6:.1f} M facts of 24 h", judged=load.judged)


def questions(server: ClickHouse, opened: Opened, store: str, *, judged: bool) -> None:
    """Top-20 of a node and of all, and two device models side by side.

    As a whole answer, asked for the first time (which is what is judged) and again (of hours and days that are
    remembered), and the kernels alone, for the first time; from sums, and from windows. What a statement costs whatever
    it says is in all of them: of the first answer of a node there are four.
    """
    assert server.process is not None
    engine = psutil.Process(server.process.pid)
    queries = Queries(opened)

    def one() -> None:
        with opened.read() as connection:
            connection.exec_driver_sql("SELECT 1").all()

    def forget() -> None:
        with opened.engine.connect() as connection:
            known = remembered(connection)
            if known is not None:
                known.clear()

    told("ClickHouse: SELECT 1", engine, one, 20)
    node, fleet, h100, h200 = Filter(node="node-3"), Filter(), Filter(device="H100"), Filter(device="H200")
    for what, query, sides in (
        ("one node", "top", (node,)), ("all nodes", "top", (fleet,)), ("two models", "compare", (h100, h200))
    ):  # fmt: skip

        def kernels(sides: Sequence[Filter] = sides) -> None:
            with opened.read() as connection:
                for scope in sides:
                    gathered(connection, scope)

        def raw(kernels: Callable[[], None] = kernels) -> None:
            with raw_only():
                kernels()

        def answer(query: str = query, sides: Sequence[Filter] = sides) -> None:
            queries.run(query, sides[0], 20, sides[1] if len(sides) > 1 else None)

        limit = MOST_MS[what] if judged else None
        name = f"{store}: {NAMES[what]}"
        told(f"{name}, asked for the first time", engine, answer, 5, limit, before=forget)
        told(f"{name}, asked again", engine, answer, 5)
        told(f"{name}, kernels alone from sums", engine, kernels, 5, before=forget)
        told(f"{name}, kernels alone from windows", engine, raw, 5, before=forget)


def told(
    what: str,
    engine: psutil.Process,
    function: Callable[[], None],
    rounds: int,
    limit: float | None = None,
    before: Callable[[], None] = lambda: None,
) -> None:
    """A row of the clock's best of some rounds; beside it the processor's time of all by their number.

    The latter is told in hundredths of a second. ``before`` each of them something may be done that is not counted.
    """
    function()
    taken = []
    for _ in range(rounds):
        before()
        taken.append(_timed(engine, function))
    best, cpu = min(clock for clock, _ in taken), sum(spent for _, spent in taken) / rounds
    row(what, best * 1e3, "ms", at_most=limit, cpu_ms=cpu * 1e3)
    say(f"    {cpu * 1e3:.1f} ms of processor")


def _timed(engine: psutil.Process, function: Callable[[], None]) -> tuple[float, float]:
    def spent() -> float:
        of = engine.cpu_times()
        return of.user + of.system + time.process_time()

    before, begin = spent(), time.perf_counter()
    function()
    return time.perf_counter() - begin, spent() - before


if __name__ == "__main__":
    main()
