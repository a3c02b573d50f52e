"""Bytes that a fact takes on disk, with its histogram and all indexes, in SQLite and in Postgres.

Of the day of 16 nodes that ``store_queries.py`` asks (``_fleet_day.py``), or of its first hours: ``--rounds N`` of 260.
A fact is a kernel of a window (a signature on a device); all that a window costs is in it: its row, its devices, the
causes of its idle time, what keeps it single. Dimensions and sums of hours and days are told beside it, for they do
not grow with windows.

    python bench/store_size.py [--rounds N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping

import _fleet_day
import _servers
from _rows import CACHE, or_skipped, row, say

from roofwatch.store import database

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


def told(engine: str, facts: int, sizes: Mapping[str, int]) -> None:
    """A row of what tables take for a fact; which tables, and what stands beside, in words."""
    raw, sums = (sum(sizes.get(name, 0) for name in names) for names in (RAW, SUMS))
    other = sum(sizes.values()) - raw - sums
    label = f"{engine}: bytes a raw fact with histogram and indexes, of {facts:,}"
    row(label, raw / facts, "B", at_most=LIMITS[engine])
    for name in RAW:
        if size := sizes.get(name, 0):
            say(f"    {name:<16} {size / facts:7.2f} bytes a fact")
    say(f"    beside it: sums {sums / 2**20:.1f} MiB, dimensions {other / 2**20:.1f} MiB")


def sizes(url: str, statement: str) -> tuple[int, dict[str, int]]:
    """How many facts there are, and the bytes of each table with its indexes."""
    opened = database.open(url, migrate=False)
    with opened.read() as connection:
        facts = int(connection.exec_driver_sql("SELECT sum(rows) FROM kernel_blocks").scalar_one())
        found = {name: int(size) for name, size in connection.exec_driver_sql(statement)}
    opened.close()
    return facts, found


def sqlite(*, whole: bool) -> None:
    """Of the kept store of the whole day, or of one that is built for this."""
    if whole:
        told("SQLite", *sizes(f"sqlite:///{_fleet_day.sqlite_day(CACHE)}", _SQLITE))
        return
    with tempfile.TemporaryDirectory(prefix="roofwatch-size-") as folder:
        url = f"sqlite:///{folder}/size.db"
        _fleet_day.build(url)
        told("SQLite", *sizes(url, _SQLITE))


def postgres(*, whole: bool) -> None:
    """The same.

    Raises:
        Lacking: there is none here.
    """
    if whole:
        with _fleet_day.postgres_day(CACHE) as server:
            told("Postgres", *sizes(server.url("day"), _POSTGRES))
        return
    with _servers.postgres(("shared_buffers=128MB",)) as server:
        url = server.url(server.create())
        _fleet_day.build(url)
        told("Postgres", *sizes(url, _POSTGRES))


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds = _fleet_day.ROUNDS
    parser.add_argument("--rounds", type=int, default=rounds, help=f"windows of each process (default: all, {rounds})")
    _fleet_day.ROUNDS = parser.parse_args().rounds
    whole = rounds == _fleet_day.ROUNDS
    sqlite(whole=whole)
    with or_skipped("Postgres: bytes a raw fact"):
        postgres(whole=whole)


if __name__ == "__main__":
    main()
