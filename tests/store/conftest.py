"""Real databases, and real stores in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roofwatch.store import database
from roofwatch.store.database import Database
from roofwatch.store.ingest import Writer

sys.path.insert(0, str(Path(__file__).parent))  # store_builders; the import mode leaves the path alone

from store_builders import RunningStore, running_store


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A fresh SQLite file, open."""
    opened = database.open(str(tmp_path / "store.db"))
    yield opened
    opened.close()


@pytest.fixture
def writer(db: Database) -> Iterator[Writer]:
    """The writer of that database."""
    running = Writer(db)
    yield running
    running.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunningStore]:
    """A running store on a fresh database."""
    with running_store(tmp_path) as running:
        yield running
