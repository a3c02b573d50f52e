"""Shared fixtures."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from roofwatch.model.record import Window
from roofwatch.store.database import Database
from roofwatch.store.ingest import Writer
from roofwatch.store.unpack import Unpacker

# fresh, in_process, store_builders; last, since folders have modules of their own; the import mode leaves it alone
sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent / "store"))

import fresh
import in_process

ROOT = Path(__file__).resolve().parent.parent
Roofwatch = Callable[..., in_process.Done]

# A shell's background jobs begin with SIGINT ignored, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


STARTS_CLICKHOUSE_S = 300  # its start alone may take three minutes (clickhouse_server.START_S)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test is the first to ask for ClickHouse waits for its start."""
    for item in items:
        if "clickhouse" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(STARTS_CLICKHOUSE_S))


def pytest_collection_finish() -> None:
    """What was collected stays until the end: Python's collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real profiler output; tests that use it skip where it is absent, unless it is required."""
    folder = Path(os.environ.get("ROOFWATCH_TRACES", ROOT.parent / "shared" / "traces"))
    if not folder.is_dir():
        message = f"no real traces at {folder}: set ROOFWATCH_TRACES to the folder that holds them"
        if os.environ.get("ROOFWATCH_TRACES_REQUIRED"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture
def roofwatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Roofwatch:
    """Run the program in this process, in an empty folder and away from any store or agent of this machine."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object, env: Mapping[str, str] | None = None) -> in_process.Done:
        return in_process.call(*arguments, env=in_process.environment(tmp_path) | dict(env or {}))

    return call


@pytest.fixture
def started(tmp_path: Path) -> Roofwatch:
    """The same in a process of its own, for what a process is changed by: other threads, another program."""

    def call(
        *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 60, **more: Any
    ) -> in_process.Done:
        return subprocess.run(
            [sys.executable, "-m", "roofwatch.cli.main", *arguments],
            capture_output=True, text=True, timeout=timeout, check=False, cwd=tmp_path,
            env=in_process.environment(tmp_path) | dict(env or {}), **more,
        )  # fmt: skip

    return call


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A fresh SQLite file, open."""
    opened = fresh.opened(tmp_path / "store.db")
    yield opened
    opened.close()


@pytest.fixture
def keep(db: Database) -> Iterator[Callable[[list[Window]], None]]:
    """Puts windows into that database, over the wire's own form."""
    from store_builders import segment_of  # noqa: PLC0415  # grpc, for few

    running = Writer(db)
    sequence = 0

    def put(windows: list[Window]) -> None:
        nonlocal sequence
        sequence += 1
        outcome = running.submit(Unpacker().unpack(segment_of(windows, sequence))).result(timeout=30)
        assert outcome.reason == ""

    yield put
    running.close()
