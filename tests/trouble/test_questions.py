"""Questions on their way when the store or Postgres goes away: one sentence and exit code 3, or one more try."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from fleet import Place
from postgres_server import Postgres
from store_builders import GEMM, RunningStore, segment_of, send, stat, window_of

Start = Callable[..., RunningStore]


@pytest.fixture
def place(tmp_path: Path, postgres: Postgres, template: str) -> Place:
    """A database of Postgres, which may still recover from the test before."""
    postgres.start()
    return Place(tmp_path / "none", postgres, postgres.create(template))


@pytest.fixture
def store(place: Place, start: Start) -> RunningStore:
    """A store that holds one window."""
    running = start(place)
    [ack] = send(running.address, [segment_of([window_of("a", [stat(GEMM, [1000])])], 1)], 1)
    assert ack.ack.status == 1
    return running


@contextmanager
def asked(place: Place, *where: str) -> Iterator[subprocess.Popen[str]]:
    """``top`` of the command line, while it waits for a table that somebody locks: the block's."""
    assert place.postgres is not None
    address = place.url.replace("+psycopg", "")
    with closing(psycopg.connect(address)) as lock:
        lock.execute("LOCK TABLE processes IN ACCESS EXCLUSIVE MODE")
        command = [sys.executable, "-m", "roofwatch.cli.main", "top", "--since", "all", "--format", "json", *where]
        question = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            waits = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{place.name}' AND wait_event_type = 'Lock'"  # noqa: S608
            until = time.monotonic() + 20
            while not place.postgres.run(waits):
                assert question.poll() is None, question.communicate()
                assert time.monotonic() < until
                time.sleep(0.02)
            yield question
        finally:
            if question.poll() is None:
                question.kill()


def ended(question: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and what it said."""
    out, errors = question.communicate(timeout=30)
    return question.returncode, out, errors


def refused(question: subprocess.Popen[str]) -> str:
    """The one sentence; exit code 3."""
    code, out, errors = ended(question)
    assert (code, out) == (3, "")
    assert len(errors.strip().splitlines()) == 1, errors
    assert "Traceback" not in errors
    return errors


def end_sessions(place: Place) -> None:
    """Of the database, with the lock."""
    assert place.postgres is not None
    kill = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{place.name}'"  # noqa: S608 - ours
    place.postgres.run(f"{kill} AND pid <> pg_backend_pid()")


def test_store_is_killed_and_stays_away(place: Place, store: RunningStore) -> None:
    """Nobody answers the second try."""
    with asked(place, "--store", store.address) as question:
        store.kill()
        assert f"no store answers at {store.address}" in refused(question)


def test_store_is_killed_and_comes_again(place: Place, store: RunningStore, start: Start) -> None:
    """The second try is answered."""
    with asked(place, "--store", store.address) as question:
        store.kill()
        end_sessions(place)
        start(place, store.port)
        code, out, errors = ended(question)
    assert (code, errors) == (0, "")
    assert '"calls": 1' in out


@pytest.mark.parametrize("direct", [True, False], ids=["db", "store"])
def test_postgres_ends_the_session(place: Place, store: RunningStore, direct: bool) -> None:
    """A connection that broke while the server is there: asked once more, and answered."""
    with asked(place, *(["--db", place.url] if direct else ["--store", store.address])) as question:
        end_sessions(place)
        code, out, errors = ended(question)
    assert (code, errors) == (0, "")
    assert '"calls": 1' in out


@pytest.mark.parametrize("direct", [True, False], ids=["db", "store"])
def test_postgres_is_killed(place: Place, store: RunningStore, postgres: Postgres, direct: bool) -> None:
    """The server is away, so is the answer; afterwards the same question is answered by the same store."""
    where = ["--db", place.url] if direct else ["--store", store.address]
    try:
        with asked(place, *where) as question:
            postgres.kill()
            told = refused(question)
    finally:
        postgres.start()
    assert "is the server running" in told
    assert "s3cret" not in told
    command = [sys.executable, "-m", "roofwatch.cli.main", "top", "--since", "all", *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
