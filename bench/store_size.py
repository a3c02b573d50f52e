"""Bytes that a fact takes on disk, with its histogram and all indexes, in SQLite and in Postgres.

Of the day of 16 nodes that ``store_queries.py`` asks (``_fleet_day.py``), or of its first hours: ``--rounds N`` of 260.
A fact is a kernel of a window (a signature on a device); all that a window costs is in it: its row, its devices, the
causes of its idle time, what keeps it single. Dimensions and sums of hours and days are told beside it, for they do
not grow with windows.

    python bench/store_size.py [--rounds N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "store"))

import _fleet_day
from postgres_server import running_postgres

from roofwatch.store import database

KEPT = Path(__file__).resolve().parent.parent / "build" / "bench"
LIMITS = {"SQLite": 55.0, "Postgres": 105.0}  # bytes a fact
RAW = (
    "windows", "kernel_blocks", "window_devices", "window_drops", "idle_causes", "collectives", "graphs", "segments",
    "agent_drops",
)  # fmt: skip
SUMS = (
    "rollups", "kernel_sums", "window_sums", "drop_sums", "device_sums", "cause_sums", "kernel_hours",
)  # fmt: skip
_POSTGRES = """
SELECT coalesce(parent.relname, c.relname), sum(pg_total_relation_size(c.oid))
FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class parent ON parent.oid = i.inhparent
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace GROUP BY 1
"""
_SQLITE = """
SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat s LEFT JOIN sqlite_schema m ON m.name = s.name
WHERE s.aggregate = 1 GROUP BY 1
"""


def told(engine: str, facts: int, sizes: Mapping[str, int]) -> bool:
    """Print what tables take; whether it is within the limit."""
    raw, sums = (sum(sizes.get(name, 0) for name in names) for names in (RAW, SUMS))
    other = sum(sizes.values()) - raw - sums
    a_fact = raw / facts
    print(
        f"{engine}: {a_fact:.1f} bytes a fact (limit {LIMITS[engine]:g}), of {facts:,} facts in {raw / 2**20:.1f} MiB"
    )
    for name in RAW:
        if size := sizes.get(name, 0):
            print(f"    {name:<16} {size / facts:7.2f} bytes a fact")
    print(f"    beside it: sums {sums / 2**20:.1f} MiB, dimensions {other / 2**20:.1f} MiB")
    return a_fact <= LIMITS[engine]


def sizes(url: str, statement: str) -> tuple[int, dict[str, int]]:
    """How many facts there are, and the bytes of each table with its indexes."""
    opened = database.open(url, migrate=False)
    with opened.read() as connection:
        facts = int(connection.exec_driver_sql("SELECT sum(rows) FROM kernel_blocks").scalar_one())
        found = {name: int(size) for name, size in connection.exec_driver_sql(statement)}
    opened.close()
    return facts, found


@contextmanager
def stores(rounds: int) -> Iterator[tuple[str, str]]:
    """The URLs of both: kept from one run to the next where they are of the whole day."""
    if rounds == _fleet_day.ROUNDS:
        with _fleet_day.postgres_day(KEPT) as server:
            yield f"sqlite:///{_fleet_day.sqlite_day(KEPT)}", server.url("day")
        return
    _fleet_day.ROUNDS = rounds
    with tempfile.TemporaryDirectory(prefix="roofwatch-size-") as folder, running_postgres() as server:
        server.run("CREATE DATABASE size")
        urls = f"sqlite:///{folder}/size.db", server.url("size")
        for url in urls:
            _fleet_day.build(url)
        yield urls


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=_fleet_day.ROUNDS, help="windows of each process (default: all)")
    with stores(parser.parse_args().rounds) as (sqlite, postgres):
        within = told("SQLite", *sizes(sqlite, _SQLITE))
        within = told("Postgres", *sizes(postgres, _POSTGRES)) and within
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
