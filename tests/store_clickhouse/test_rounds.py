"""Rounds of the journal have an end, and a day is never taken for another: no ClickHouse is needed for that."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from roofwatch.model.errors import RoofwatchError
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


def test_a_batch_of_a_store_before_this_version(tmp_path: Path) -> None:
    """Its number was written into each entry; it stays as it was sealed, and what came later is the next."""
    journal = open_file(tmp_path / "journal.db")
    note(journal, 3)
    with journal.write() as kept:
        for text in (
            "DROP TABLE sealed",
            "CREATE INDEX entries_batch ON entries (batch)",
            "UPDATE entries SET batch = 7 WHERE id <= 2",
            "INSERT INTO meta VALUES ('batch', 7)",
            "DELETE FROM meta WHERE key = 'format'",
        ):
            kept.exec_driver_sql(text)
    journal.close()
    for _ in range(2):
        open_file(tmp_path / "journal.db").close()
    journal = open_file(tmp_path / "journal.db")
    for _ in range(2):
        with journal.write() as kept:
            number, entries = journal.sealed(kept, 1)
            assert (number, [entry.older for entry in entries]) == (7, [True, True])
    with journal.write() as kept:
        journal.done(kept, 7)
        number, entries = journal.sealed(kept, 1)
        assert (number, [(entry.id, entry.older) for entry in entries]) == (8, [(3, False)])
        journal.done(kept, 8)
        assert journal.sealed(kept, 1) is None
        assert kept.exec_driver_sql("SELECT count(*) FROM sealed").scalar() == 0
        assert not kept.exec_driver_sql("SELECT name FROM sqlite_master WHERE name = 'entries_batch'").first()
    assert journal.waiting()[0] == 0
    journal.close()


def test_a_journal_of_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    """Refused in a sentence, not changed, and not held."""
    file = tmp_path / "journal.db"
    open_file(file).close()
    with closing(sqlite3.connect(file)) as kept, kept:
        kept.execute("UPDATE meta SET value = 9000 WHERE key = 'format'")
        kept.execute("DROP TABLE sealed")
    for _ in range(2):
        with pytest.raises(RoofwatchError, match=r"by a newer version of Roofwatch \(format 9000, this .*: upgrade"):
            open_file(file)
    with closing(sqlite3.connect(file)) as kept:
        assert kept.execute("SELECT count(*) FROM sqlite_master WHERE name = 'sealed'").fetchone() == (0,)
        assert kept.execute("SELECT value FROM meta WHERE key = 'format'").fetchone() == (9000,)


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
