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

from clickhouse_server import ClickHouse, running_clickhouse
from fresh import fresh
from postgres_server import Postgres, running_postgres
from store_builders import RunningStore, running_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real Postgres, started once."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouse]:
    """A real ClickHouse engine, started once."""
    with running_clickhouse() as server:
        yield server


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """The name of a Postgres database with our tables and nothing in them: a copy takes 50 ms, a new one 500."""
    name = postgres.create()
    database.open(postgres.url(name)).close()
    return name


@pytest.fixture
def postgres_name(postgres: Postgres, template: str) -> Iterator[str]:
    """A fresh database of the Postgres server."""
    made = postgres.create(template)
    yield made
    postgres.drop(made)


@pytest.fixture
def on_postgres(postgres: Postgres, postgres_name: str) -> Iterator[Database]:
    """It, open."""
    opened = database.open(postgres.url(postgres_name))
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh SQLite file, a fresh Postgres database: what uses it runs on each."""
    if request.param == "sqlite":
        yield fresh(tmp_path / "store.db")
        return
    yield request.getfixturevalue("postgres").url(request.getfixturevalue("postgres_name"))


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    """A fresh database, open."""
    opened = database.open(url)
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
