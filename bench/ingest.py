"""Ingest over gRPC, end to end, against the engines' own best: the same rows at the same durability.

SQLite alone writes them by multi-VALUES, Postgres alone by binary COPY; each in turns with the store, best of three;
what competes for the cores hits both. It is what ``roofwatch store bench`` measures, with the project's limits beside
it. Beside synthetic windows of 300 kernels the windows of real traces are sent, varied by a seed (``store replay``).

    python bench/ingest.py [--engine sqlite|postgres|both] [--minutes N] [--rounds N] [FOLDER OF TRACES]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import _copy
import _servers
from _rows import TRACES, Lacking, or_skipped, row, say

from roofwatch.cli.fleet import bench, source, templates
from roofwatch.cli.fleet.local import local_store
from roofwatch.model.errors import UsageError
from roofwatch.store.unpack import Unpacker

DURABLE = ("shared_buffers=128MB", "listen_addresses=")  # fsync and synchronous_commit as they are by default: on
SECONDS_NS = 6_000_000_000  # between two segments of a node
REAL_KERNELS = 30  # a window with less is no job's


def sqlite(fleet: bench.Fleet, rounds: int, *, full: bool) -> None:
    """The store on SQLite, and SQLite alone."""
    with tempfile.TemporaryDirectory() as name:
        found = bench.run(fleet, Path(name), rounds)
    say(f"SQLite: {found.rows:,} rows")
    row("SQLite: ingest over gRPC, acknowledged on disk", found.rows / found.ingest_s, "rows/s")
    row("SQLite: the same rows by multi-VALUES alone", found.rows / found.raw_s, "rows/s")
    row("SQLite: ingest over gRPC against multi-VALUES", found.share * 100, "%", at_least=28 if full else None)
    cpu_us = found.cpu_s_per_row * 1e6
    row("SQLite: processor time of the store a row", cpu_us, "µs", at_most=2 if full else None)
    row("SQLite: the same, all kernels new", found.first_cpu_s_per_row * 1e6, "µs")
    row("SQLite: 99th percentile of an acknowledgement", found.ack_p99_s, "s")
    row("SQLite: bytes a row, everything included", found.row_bytes, "B", at_most=55 if full else None)
    row("SQLite: bytes a row of the fact alone", found.raw_row_bytes, "B")
    row(f"SQLite: top 20 of one node of {len(fleet)}, over gRPC", found.node_s * 1000, "ms")
    row("SQLite: top 20 of all nodes, over gRPC", found.all_s * 1000, "ms")
    row("SQLite: largest resident memory of the store", found.memory_bytes / 2**20, "MiB")


def postgres(fleet: bench.Fleet, rounds: int, *, full: bool) -> None:
    """The store on Postgres, and Postgres alone.

    Raises:
        Lacking: there is none here.
    """
    unpacker = Unpacker()
    facts = [w.facts for segments in fleet for e in segments for w in unpacker.unpack(e).windows]
    rows, ready = sum(map(len, facts)), _copy.buffers(facts)
    ours, theirs = [], []
    with _servers.postgres(DURABLE) as server:
        for _ in range(rounds):
            theirs.append(_copy.load(server.url(server.create()), ready))
            with tempfile.TemporaryDirectory() as name, local_store(Path(name), server.url(server.create())) as store:
                ours.append(bench.ingested(store, fleet, rows))
    took, cpu = min(one.took_s for one in ours), min(one.cpu_s_per_row for one in ours)
    row("Postgres: ingest over gRPC, acknowledged", rows / took, "rows/s")
    row("Postgres: the same rows by binary COPY alone", rows / min(theirs), "rows/s")
    row("Postgres: ingest over gRPC against COPY", min(theirs) / took * 100, "%", at_least=45 if full else None)
    row("Postgres: processor time of the store a row", cpu * 1e6, "µs", at_most=1.2 if full else None)
    row("Postgres: the same, all kernels new", min(one.first_cpu_s_per_row for one in ours) * 1e6, "µs")


def real(folder: Path, rounds: int) -> None:
    """Windows of real traces, as many nodes as there are, eight ranks each; on SQLite.

    Raises:
        Lacking: there are none.
    """
    try:
        windows = [w for w in source.of_folder(folder, lambda _: None) if len(w.kernels) >= REAL_KERNELS]
    except UsageError as error:
        raise Lacking(str(error)) from error
    draw, now = random.Random(7), time.time_ns()
    made = templates.Source(templates.templates(windows, 8, draw), "bench", SECONDS_NS)
    fleet = [
        [made.segment(node, number, now + number * SECONDS_NS)[0] for number in range(1, bench.MINUTES + 1)]
        for node in range(len(windows))
    ]
    count = sum(e.windows for segments in fleet for e in segments)
    rows = sum(8 * len(w.kernels) * bench.MINUTES for w in windows)
    ours = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name, local_store(Path(name)) as store:
            ours.append(bench.ingested(store, fleet, rows))
    cpu = min(one.cpu_s_per_row for one in ours)
    row(f"SQLite, real windows of {rows / count:.0f} kernels: processor time a row", cpu * 1e6, "µs")
    row("SQLite, real windows: processor time a window", cpu * rows / count * 1e6, "µs")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--minutes", type=int, default=bench.MINUTES, help="sent by a node; of fewer nothing is judged")
    parser.add_argument("--rounds", type=int, default=bench.ROUNDS, help="the best counts")
    parser.add_argument("traces", type=Path, nargs="?", default=TRACES, help="a folder of real traces")
    options = parser.parse_args()
    fleet, full = bench.fleet_of(minutes=options.minutes), options.minutes >= bench.MINUTES
    if options.engine != "postgres":
        sqlite(fleet, options.rounds, full=full)
    if options.engine != "sqlite":
        with or_skipped("Postgres: ingest over gRPC"):
            postgres(fleet, options.rounds, full=full)
    if full:
        with or_skipped("SQLite, real windows"):
            real(options.traces, options.rounds)


if __name__ == "__main__":
    main()
