"""What goes wrong, with real stores, databases and agents. ROOFWATCH_TROUBLE=long runs the long form."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# fleet, and of the store's tests store_builders and postgres_server; the import mode leaves the path alone
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "store"))

from fleet import Place
from fresh import fresh
from postgres_server import Postgres, running_postgres
from store_builders import RunningStore, start_store

from roofwatch.store import database

LONG = os.environ.get("ROOFWATCH_TROUBLE") == "long"


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether to take the time that it takes."""
    return LONG


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A real Postgres that syncs."""
    with running_postgres(("fsync=on",)) as server:
        yield server


@pytest.fixture(scope="module")
def template(postgres: Postgres) -> str:
    """A database of it with our tables and nothing in them."""
    name = postgres.create()
    database.open(postgres.url(name)).close()
    return name


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A fresh database, on each engine."""
    if request.param == "sqlite":
        return Place(tmp_path / "store.db")
    server: Postgres = request.getfixturevalue("postgres")
    server.start()  # it may still recover from the test before
    return Place(tmp_path / "store.db", server, server.create(request.getfixturevalue("template")))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningStore]]:
    """Starts stores; none is left at the end, whatever happens."""
    started: list[RunningStore] = []

    def one(place: Place, port: int = 0) -> RunningStore:
        folder = tmp_path / f"store-{port}" if port else Path(tempfile.mkdtemp(dir=tmp_path, prefix="store-"))
        folder.mkdir(exist_ok=True)
        if place.postgres is None:
            fresh(place.file)
        started.append(start_store(folder, port, place.url))
        return started[-1]

    yield one
    for store in started:
        if store.process.poll() is None:
            store.kill()
