"""The database servers of the tests, for benchmarks: what the tests would skip for is told as what is lacking."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from _rows import ROOT, Lacking

sys.path.insert(0, str(ROOT / "tests" / "store"))

from clickhouse_server import ClickHouse, running_clickhouse
from postgres_server import Postgres, binaries, running_postgres


@contextmanager
def _lacking() -> Iterator[None]:
    try:
        yield
    except (pytest.skip.Exception, pytest.fail.Exception) as lack:
        raise Lacking(str(lack)) from None


@contextmanager
def postgres(settings: Sequence[str]) -> Iterator[Postgres]:
    """A Postgres on disk for the length of a block.

    Raises:
        Lacking: there is none here.
    """
    with _lacking(), running_postgres(settings) as server:
        yield server


@contextmanager
def kept_postgres(folder: Path, settings: Sequence[str], *, fresh: bool) -> Iterator[Postgres]:
    """The same in a folder that stays; ``fresh``: it is empty.

    Raises:
        Lacking: there is none here.
    """
    with _lacking():
        server = Postgres(binaries(), folder, settings)
        if fresh:
            server.initialize()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def clickhouse() -> Iterator[ClickHouse]:
    """A ClickHouse on disk for the length of a block.

    Raises:
        Lacking: there is none here.
    """
    with _lacking(), running_clickhouse(on_disk=True) as server:
        yield server
