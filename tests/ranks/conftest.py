"""A real store on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roofwatch.model.record import Window
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries

sys.path.insert(0, str(Path(__file__).parent))  # rank_scenes; the import mode leaves the path alone

import fresh
from rank_scenes import submit

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Put windows into a fresh SQLite store and ask it about its ranks."""
    opened = fresh.opened(tmp_path / "store.db")
    writer = Writer(opened)

    def asked(windows: list[Window], scope: Filter | None = None, limit: int = 0) -> dict[str, Any]:
        submit(writer, windows)
        return Queries(opened).run("ranks", scope or Filter(), limit)

    yield asked
    writer.close()
    opened.close()
