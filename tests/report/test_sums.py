"""A report from sums of hours and days is the report from the windows; where windows are gone it is still told."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fresh
import pytest
from report_scene import window as scene
from rollup_builders import BEGIN_NS, DAY_NS, DAYS, HOUR_NS, processes, scope, window
from store_builders import segment_of

from roofwatch.model.record import Window
from roofwatch.store import rollup, schema
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.unpack import Unpacker

END_NS = BEGIN_NS + (DAYS + 1) * DAY_NS


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A fresh database."""
    opened = fresh.opened(tmp_path / "store.db")
    yield opened
    opened.close()


def keep(db: Database, windows: list[Window]) -> None:
    """Store windows, and sum up all that is over."""
    writer = Writer(db)
    assert writer.submit(Unpacker().unpack(segment_of(windows, 1))).result(60).reason == ""
    writer.close()
    with db.write() as connection:
        while rollup.sweep(connection, END_NS):
            pass


def report(db: Database, f: Filter) -> dict[str, Any]:
    """The answer, without where it came from."""
    found = json.loads(json.dumps(Queries(db).run("report", f, 3)))
    for name in ("source", "sources", "rows_source"):
        found["coverage"].pop(name)
    return found  # type: ignore[no-any-return]


def test_sums_tell_what_windows_tell(db: Database) -> None:
    """Random windows over days, random filters: equal to the last digit, stretch by stretch."""
    draw = random.Random(5)
    of = processes(draw)
    keep(db, [window(draw, f"w{i}", draw.choice(of)) for i in range(80)])
    long = 0
    for _ in range(8):
        f = scope(draw)

        found = report(db, f)

        with raw_only():
            assert found == report(db, f), f
        long += len(found["moments"]["rows"]) > 1
    assert long > 2


def test_where_windows_are_gone(db: Database) -> None:
    """Of days whose windows are no longer kept, hours and days tell when the devices waited; nothing is lost."""
    days = [scene(f"w{i}", BEGIN_NS + i * 6 * HOUR_NS) for i in range(8)]  # two days, every six hours
    keep(db, days)
    with db.write() as connection:  # as retention does: the first day's windows, then its hours
        first = schema.windows.c.start_unix_ns < BEGIN_NS + DAY_NS
        for table in (schema.window_devices, schema.idle_causes, schema.window_drops):
            of = schema.windows.select().where(first).with_only_columns(schema.windows.c.id)
            connection.execute(table.delete().where(table.c.window_id.in_(of)))
        connection.execute(schema.windows.delete().where(first))
        r = schema.rollups
        gone = r.c.bucket_unix_ns < BEGIN_NS + DAY_NS
        connection.execute(r.update().where(gone, r.c.grain == 3600).values(finer=False))

    told = report(db, Filter())

    assert told["coverage"]["windows"] == 8
    moments = told["moments"]
    assert moments["bucket_ns"] >= HOUR_NS
    assert sum(row["windows"] for row in moments["rows"]) == 8
    assert [row["launch_bound_share"] for row in moments["rows"]] == pytest.approx([0.4] * len(moments["rows"]))
    assert told["subject"]["first_unix_ns"] == BEGIN_NS
    assert told["subject"]["nodes"] == ["gpu-07"]
