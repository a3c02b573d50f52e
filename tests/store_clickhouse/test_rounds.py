"""Rounds of the journal have an end, and a day is never taken for another: no ClickHouse is needed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofwatch.model.record import Node
from roofwatch.store.clickhouse import upkeep
from roofwatch.store.clickhouse.journal import Journal, open_file
from roofwatch.store.days import DAY_NS
from roofwatch.store.load import Hello
from roofwatch.store.rollup_schema import HOUR_S


@pytest.fixture
def journal(tmp_path: Path):
    """An empty one."""
    made = open_file(tmp_path / "journal.db")
    yield made
    made.close()


def note(journal: Journal, times: int) -> None:
    """Write greetings down."""
    with journal.write() as kept:
        journal.take(kept, [Hello("agent", "boot", "1", Node("n"))] * times, 1)


def test_what_comes_meanwhile_is_the_next_rounds(journal: Journal) -> None:
    """Of five entries, two of which came after the round began, it takes three; then nothing is left of it."""
    note(journal, 3)
    last = journal.last()
    note(journal, 2)
    with journal.write() as kept:
        batch, entries = journal.sealed(kept, 1000, last)
        assert len(entries) == 3
        journal.done(kept, batch)
        assert journal.sealed(kept, 1000, last) is None
        assert len(journal.sealed(kept, 1000)[1]) == 2


def test_the_partition_of_imported_windows_is_no_day(journal: Journal) -> None:
    """Of pieces of 1 January 1970 and of the day after, all summed up and old, only the second is dropped."""
    with journal.write() as kept:
        columns = [row[1] for row in kept.exec_driver_sql("PRAGMA table_info(pieces)")]
        for bucket in (0, DAY_NS):
            row = {"grain": HOUR_S, "bucket_unix_ns": bucket, "finer": 1, "imported": 0, "stale": 0}
            values = [row.get(name, 1) for name in columns]
            marks = ",".join("?" * len(columns))
            kept.exec_driver_sql(f"INSERT INTO pieces VALUES ({marks})", tuple(values))  # noqa: S608 - marks
    assert upkeep._days(journal, HOUR_S, 400 * DAY_NS, finer=1) == [1]
