"""A primary dies and its standby takes over: a store whose URL names both goes on, nothing acknowledged is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import NOBODY, PASSWORD, USER, Postgres, _as_nobody, running_postgres
from sqlalchemy import func, select
from store_builders import GEMM, segment_of, stat, window_of

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import database, schema
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacked, Unpacker

BEGIN_NS = 1_800_000_000_000_000_000


def until(found: str, server: Postgres, statement: str) -> None:
    """Wait until a statement gives a text."""
    deadline = time.monotonic() + 30
    while server.run(statement) != [(found,)]:
        assert time.monotonic() < deadline, server.run(statement)
        time.sleep(0.05)


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """A primary, and a hot standby that has confirmed what a commit confirms (streaming replication)."""
    with running_postgres() as primary:
        standby = Postgres(primary.programs, Path(tempfile.mkdtemp(prefix="rwpg-")))
        if os.geteuid() == 0:
            os.chown(standby.folder, NOBODY, NOBODY)
        base = [primary.programs / "pg_basebackup", "-h", primary.folder, "-U", USER, "-D", standby.folder / "data"]
        command = [*base, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        environment = {**os.environ, "PGPASSWORD": PASSWORD, "LD_LIBRARY_PATH": ""}
        try:
            subprocess.run(command, check=True, capture_output=True, cwd="/", env=environment, **_as_nobody())
            standby.start()
            until("streaming", primary, "SELECT state FROM pg_stat_replication")
            primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.run("SELECT pg_reload_conf()")
            until("sync", primary, "SELECT sync_state FROM pg_stat_replication")
            yield primary, standby
        finally:
            standby.stop()
            shutil.rmtree(standby.folder, ignore_errors=True)


def segment(number: int) -> Unpacked:
    """Three windows."""
    windows = [
        window_of(f"{number}-{k}", [stat(GEMM, [1000])], start_unix_ns=BEGIN_NS + 3 * number + k) for k in range(3)
    ]
    return Unpacker().unpack(segment_of(windows, number))


def test_a_standby_takes_over(pair: tuple[Postgres, Postgres]) -> None:
    """The primary is killed between segments and the standby promoted: each segment is stored once, and answered."""
    primary, standby = pair
    primary.run("CREATE DATABASE roofwatch")
    own = primary.url("roofwatch").partition("?")[0]
    opened = database.open(f"{own}?host={primary.folder},{standby.folder}&target_session_attrs=read-write")
    writer = Writer(opened)
    assert [writer.submit(segment(i)).result(30).status for i in range(1, 11)] == [pb.STORED] * 10
    primary.kill()
    waiting = [writer.submit(segment(i)) for i in range(9, 21)]
    time.sleep(0.5)
    assert not any(future.done() for future in waiting)  # nobody writes yet: not refused, not acknowledged
    standby.run("SELECT pg_promote()")
    assert [future.result(60).status for future in waiting] == [pb.DUPLICATE] * 2 + [pb.STORED] * 10
    writer.close()
    with opened.read() as connection:
        for table, rows in ((schema.segments, 20), (schema.windows, 60), (schema.kernel_blocks, 60)):
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == rows
    assert [row["total_ns"] for row in Queries(opened).run("top", Filter())["rows"]] == [60_000]
    opened.close()
