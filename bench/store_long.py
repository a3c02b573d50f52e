"""How long a store of 400 days of 16 nodes takes to answer about 30 days, and about all of them, in SQLite.

Made from the fleet's day (bench/_fleet_day.py): what is summed up of its first day stands at each day before it, too,
and finer sums of those days are gone, as retention leaves it. Of kernels only sums of nodes and of the fleet are
copied, which is what these questions read. Judged by nobody: the figures are in docs/performance.md.

    python bench/store_long.py [--rounds N] [--day FILE]
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any

import _fleet_day as day
from _rows import CACHE
from store_queries import NODE, ROUNDS, Question, took

from roofwatch.store import database
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.queries.run import Queries, load
from roofwatch.store.rollup_groups import FLEET
from roofwatch.store.rollup_schema import DAY_S, ROLLED, SECOND_NS, bucket_of, kernel_sums, rollups

DAYS = 400
WITHIN_S = 600.0
DAY_NS = DAY_S * SECOND_NS
FIRST_NS = bucket_of(day.BEGIN_NS, DAY_S)
_OF_GROUPS = f"AND (process_id = {FLEET} OR process_id IN (SELECT id FROM nodes))"  # noqa: S608 - a number of ours
_COPIES = "WITH RECURSIVE copies(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM copies WHERE k < ?)"


def long_day(source: Path) -> Path:
    """The file, built if this version has not built it yet."""
    file = CACHE / f"long-{day.key()}.db"
    if not file.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob("long-*.db*"):
            old.unlink()
        draft = CACHE / "long-draft.db"
        shutil.copyfile(source, draft)
        _fill(draft)
        draft.rename(file)
    return file


def _fill(file: Path) -> None:
    """The first day again and again, each a day earlier."""
    connection = sqlite3.connect(file)
    for table in (rollups, *ROLLED):
        names = [f'"{column.name}"' for column in table.columns]
        values = ["bucket_unix_ns - k * ?" if name == '"bucket_unix_ns"' else name for name in names]
        if table is rollups:
            values = [
                "0" if name in {'"stale"', '"finer"'} else value for name, value in zip(names, values, strict=True)
            ]
        of = _OF_GROUPS if table is kernel_sums else ""
        connection.execute(
            f"{_COPIES} INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(values)} "  # noqa: S608 - our names
            f"FROM {table.name}, copies WHERE grain = ? AND bucket_unix_ns = ? {of}",
            (DAYS - 1, DAY_NS, DAY_S, FIRST_NS),
        )
    connection.commit()
    connection.execute("ANALYZE")
    connection.commit()
    connection.close()


def questions(days: int) -> dict[str, Question]:
    """Of the last days, up to the end of the first day that there was."""
    time_of: dict[str, Any] = {"since_unix_ns": FIRST_NS - (days - 1) * DAY_NS, "until_unix_ns": FIRST_NS + DAY_NS}
    one, everything = Filter(node=NODE, **time_of), Filter(**time_of)
    daily = {"every_ns": DAY_NS}
    return {
        "top 20 of one node": Question("top", one),
        "top 20 of all nodes": Question("top", everything),
        "compare of two device models": Question(
            "compare", Filter(device="h100", **time_of), other=Filter(device="910b", **time_of)
        ),
        "top by kernel of one node, every day": Question("top_by", one, options={"by": "kernel", **daily}),
        "top by kernel of all nodes, every day": Question("top_by", everything, options={"by": "kernel", **daily}),
        "top by node": Question("top_by", everything, options={"by": "node"}),
        "timeline by node": Question("timeline_node", everything),
        "diagnose of all nodes": Question("diagnose", everything, 10),
    }


def _ask(db: Database, q: Question) -> dict[str, Any]:
    """The answer, however long it takes where something else runs."""
    return Queries(db).run(q.query, q.scope, q.limit, q.other, q.options or {}, WITHIN_S)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--day", type=Path, help="a file of the fleet's day; else that of bench/store_queries.py")
    options = parser.parse_args()
    load()
    db = database.open(str(long_day(options.day or day.sqlite_day(CACHE))))
    for days in (30, DAYS):
        for name, question in questions(days).items():
            label = f"SQLite, {days} days of 16 nodes: {name}"
            took(label, partial(_ask, db, question), options.rounds, time.process_time, None)
    db.close()


if __name__ == "__main__":
    main()
