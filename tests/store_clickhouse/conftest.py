"""A real ClickHouse engine, and the windows of the store's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))  # builders and servers; the import mode leaves it alone

from clickhouse_server import ClickHouse, running_clickhouse


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouse]:
    """A real ClickHouse engine, started once."""
    with running_clickhouse() as server:
        yield server
