"""Ingest over gRPC, end to end, against the engines' own best: the same rows at the same durability.

SQLite alone writes them by multi-VALUES, Postgres alone by binary COPY; each in turns with the store, best of three;
what competes for the cores hits both. It is what ``roofwatch store bench`` measures, with the project's limits beside
it. Beside synthetic windows of 300 kernels the windows of real traces are sent, varied by a seed (``store replay``):
``python bench/ingest.py [FOLDER OF TRACES]``.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from roofwatch.cli.fleet import bench, source, templates
from roofwatch.cli.fleet.local import local_store
from roofwatch.model.errors import UsageError
from roofwatch.store.unpack import Unpacker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "store"))  # the server from a wheel, as in the tests

DURABLE = ("shared_buffers=128MB", "listen_addresses=")  # fsync and synchronous_commit as they are by default: on
SECONDS_NS = 6_000_000_000  # between two segments of a node
REAL_KERNELS = 30  # a window with less is no job's


def show(name: str, value: float, unit: str, *, least: float | None = None, most: float | None = None) -> None:
    """One row of the table, with its limit where there is one."""
    limit = f"≥ {least:g} {unit}" if least is not None else f"≤ {most:g} {unit}" if most is not None else "–"
    ok = value >= least if least is not None else value <= most if most is not None else None
    print(json.dumps({"name": f"store: {name}", "value": value, "unit": unit, "limit": limit, "ok": ok}), flush=True)


def sqlite(fleet: bench.Fleet) -> None:
    """The store on SQLite, and SQLite alone."""
    with tempfile.TemporaryDirectory() as name:
        found = bench.run(fleet, Path(name))
    show("ingest over gRPC, acknowledged on disk", found.rows / found.ingest_s, "rows/s")
    show("the same rows by multi-VALUES alone", found.rows / found.raw_s, "rows/s")
    show("ingest over gRPC against multi-VALUES", found.share * 100, "%", least=28)
    show("processor time a row", found.cpu_s_per_row * 1e6, "µs", most=2)
    show("processor time a row, all kernels new", found.first_cpu_s_per_row * 1e6, "µs")
    show("99th percentile of an acknowledgement", found.ack_p99_s, "s")
    show("bytes a row, everything included", found.row_bytes, "B", most=55)
    show("bytes a row of the fact alone", found.raw_row_bytes, "B")
    show(f"top 20 of one node of {bench.AGENTS}, {found.rows:,} rows in all", found.node_s * 1000, "ms")
    show("top 20 of all nodes", found.all_s * 1000, "ms")
    show("largest resident memory of the store", found.memory_bytes / 2**20, "MiB")


def postgres(fleet: bench.Fleet) -> None:
    """The store on Postgres, and Postgres alone."""
    try:
        import _copy  # noqa: PLC0415  # needs psycopg
        from postgres_server import running_postgres  # noqa: PLC0415  # and the server's wheel
    except ImportError as error:
        print(f"no Postgres here: {error}", file=sys.stderr)
        return
    unpacker = Unpacker()
    facts = [w.facts for segments in fleet for e in segments for w in unpacker.unpack(e).windows]
    rows, ready = sum(map(len, facts)), _copy.buffers(facts)
    ours, theirs = [], []
    with running_postgres(DURABLE) as server:
        for _ in range(bench.ROUNDS):
            theirs.append(_copy.load(server.url(server.create()), ready))
            with tempfile.TemporaryDirectory() as name, local_store(Path(name), server.url(server.create())) as store:
                ours.append(bench.ingested(store, fleet, rows))
    took = min(one.took_s for one in ours)
    show("on Postgres: ingest over gRPC, acknowledged", rows / took, "rows/s")
    show("the same rows by binary COPY alone", rows / min(theirs), "rows/s")
    show("on Postgres: ingest over gRPC against COPY", min(theirs) / took * 100, "%", least=45)
    show("on Postgres: processor time a row", min(one.cpu_s_per_row for one in ours) * 1e6, "µs", most=1.2)
    show("on Postgres: the same, all kernels new", min(one.first_cpu_s_per_row for one in ours) * 1e6, "µs")


def real(folder: Path) -> None:
    """Windows of real traces, as many nodes as there are, eight ranks each; on SQLite."""
    try:
        windows = [w for w in source.of_folder(folder, lambda _: None) if len(w.kernels) >= REAL_KERNELS]
    except UsageError as error:
        print(error, file=sys.stderr)
        return
    draw, now = random.Random(7), time.time_ns()
    made = templates.Source(templates.templates(windows, 8, draw), "bench", SECONDS_NS)
    fleet = [
        [made.segment(node, number, now + number * SECONDS_NS)[0] for number in range(1, bench.MINUTES + 1)]
        for node in range(len(windows))
    ]
    count = sum(e.windows for segments in fleet for e in segments)
    rows = sum(8 * len(w.kernels) * bench.MINUTES for w in windows)
    with ExitStack() as stack:
        ours = []
        for _ in range(bench.ROUNDS):
            store = stack.enter_context(local_store(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
            ours.append(bench.ingested(store, fleet, rows))
            stack.close()
    cpu = min(one.cpu_s_per_row for one in ours)
    show(f"real windows of {rows / count:.0f} kernels: processor time a row", cpu * 1e6, "µs")
    show("real windows: processor time a window", cpu * rows / count * 1e6, "µs")


def main() -> None:
    """Measure and print."""
    fleet = bench.fleet_of()
    sqlite(fleet)
    postgres(fleet)
    real(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "shared" / "traces"))


if __name__ == "__main__":
    main()
