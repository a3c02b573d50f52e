"""A disk that is full and has room again, a folder that only reads, a clock that jumps, a reader that stays."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from fleet import Fleet, Place
from store_builders import GEMM, RunningStore, segment_of, send, stat, window_of

from roofwatch.store import database, sqlite_engine
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker

Start = Callable[..., RunningStore]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "tmpfs", folder], check=False)
    if done.returncode:
        pytest.skip("a file system of its own needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line."""
    command = [sys.executable, "-m", "roofwatch.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_full_disk(disk: Path, start: Start, long: bool) -> None:
    """The disk fills up while a fleet sends: it is told so; there is room again: all goes on, and all is there."""
    place = Place(disk / "store.db")
    fleet = Fleet(10, 20.0 if long else 4.0)
    store = start(place)
    ballast = disk / "ballast"
    with fleet.sending(store.address):
        time.sleep(1.0)
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(4096))
        until = time.monotonic() + 15
        while not any("free some space" in told for told in fleet.told()):
            assert time.monotonic() < until, fleet.told()
            time.sleep(0.05)
        acked = fleet.acked()
        answer = program("top", "--store", store.address, "--since", "all")  # who asks is still answered
        assert (answer.returncode, answer.stderr) == (0, "")
        assert acked <= set(place.uids())
        ballast.unlink()
    code, said = store.terminate()
    assert code == 0
    assert "free some space" in said  # in the log, too
    fleet.check(place)


def test_limit_of_a_file(tmp_path: Path, start: Start) -> None:
    """The same without root: a file may not grow, then it may."""
    place = Place(tmp_path / "store.db")
    fleet = Fleet(4, 2.0)
    store = start(place)
    prlimit = ["prlimit", "--pid", str(store.process.pid)]
    with fleet.sending(store.address):
        time.sleep(0.8)
        most = max(Path(f"{place.file}{end}").stat().st_size for end in ("", "-wal"))
        subprocess.run([*prlimit, f"--fsize={most}:unlimited"], check=True)
        until = time.monotonic() + 15
        while not any("failed" in told for told in fleet.told()):
            assert time.monotonic() < until, fleet.told()
            time.sleep(0.05)
        subprocess.run([*prlimit, "--fsize=unlimited:unlimited"], check=True)
    assert store.terminate()[0] == 0
    fleet.check(place)


def test_folder_that_only_reads(disk: Path, start: Start) -> None:
    """A store does not start there and says why; its database is read, whether it was closed or its store killed."""
    place = Place(disk / "store.db")
    store = start(place)
    send(store.address, [segment_of([window_of("a", [stat(GEMM, [1000])])], 1)], 1)
    top = ("top", "--db", place.url, "--since", "all", "--format", "json")
    store.kill()  # its log is there, and beside it what readers share
    for _ in range(2):
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        refused = program("store", "serve", "--db", place.url, "--listen", "127.0.0.1:0")
        assert refused.returncode == 1
        assert "make the file and its folder writable" in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
        found = program(*top)
        assert (found.returncode, found.stderr) == (0, "")
        assert '"total_ns": 1000' in found.stdout
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert start(place).terminate()[0] == 0  # closed in order: nothing beside the file
    assert [path.name for path in disk.iterdir()] == ["store.db"]


def test_written_while_it_was_read_as_one_that_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is taken not to change does: the answer is not given."""
    file = tmp_path / "store.db"
    opened = database.open(str(file))
    opened.close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    still = database.open(str(file), migrate=False)
    assert still.still is not None
    assert Queries(still).run("nodes", Filter())["rows"] == []
    monkeypatch.undo()
    other = database.open(str(file))
    with pytest.raises(database.RoofwatchError, match="was written to while it was read: ask again"):
        Queries(still).run("nodes", Filter())
    for each in (still, other):
        each.close()


@pytest.mark.slow
def test_readers_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers overlap at any moment: ingest goes on, and the log does not grow without bound."""
    monkeypatch.setattr(sqlite_engine, "WAL_LIMIT_BYTES", 1 << 20)
    monkeypatch.setattr(sqlite_engine, "WAL_LONG_BYTES", 2 << 20)
    monkeypatch.setattr(sqlite_engine, "CUT_AGAIN_S", 0.1)
    file, over = tmp_path / "store.db", threading.Event()
    opened = database.open(str(file))
    writer, unpacker = Writer(opened), Unpacker()

    def reads(first_s: float) -> None:
        time.sleep(first_s)
        while not over.is_set():
            opened.gate.wait(30)
            with opened.read() as connection:
                connection.exec_driver_sql("SELECT count(*) FROM windows").fetchall()
                time.sleep(0.4)

    readers = [threading.Thread(target=reads, args=(i * 0.13,)) for i in range(3)]
    for reader in readers:
        reader.start()
    sizes = []
    kernels = [stat(GEMM, [1000])]
    for i in range(1, 201):
        windows = [window_of(f"{i}-{k}", kernels, dropped={f"reason {j}": 1 for j in range(60)}) for k in range(8)]
        writer.submit(unpacker.unpack(segment_of(windows, i))).result(5)
        sizes.append(Path(f"{file}-wal").stat().st_size)
        time.sleep(0.01)
    over.set()
    for reader in readers:
        reader.join()
    writer.close()
    opened.close()
    grown = sum(b - a for a, b in pairwise(sizes) if b > a)
    assert grown > 7 << 20  # of what it would have
    assert max(sizes) < 10 << 20, sizes[::20]


def test_an_answer_that_takes_too_long(tmp_path: Path) -> None:
    """It is ended, in a sentence, and its reader is gone."""
    opened = database.open(str(tmp_path / "store.db"))
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    begin = time.monotonic()
    with pytest.raises(database.RoofwatchError, match="takes too long; ask for a shorter time"), opened.read(0.2) as c:
        c.exec_driver_sql(endless)
    assert time.monotonic() - begin < 5
    with opened.read() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    opened.close()


def test_a_reader_of_another_program(tmp_path: Path, start: Start, long: bool) -> None:
    """Somebody's shell holds a transaction: ingest goes on as before, and once it has gone the log is cut."""
    place = Place(tmp_path / "store.db")
    fleet = Fleet(4, 120.0 if long else 2.0)
    store = start(place)
    with contextlib.closing(sqlite3.connect(place.file, isolation_level=None)) as shell:
        shell.execute("BEGIN")
        assert shell.execute("SELECT count(*) FROM windows").fetchone() == (0,)
        with fleet.sending(store.address):
            pass
        assert shell.execute("SELECT count(*) FROM windows").fetchone() == (0,)
    assert max(fleet.tally.waits_s) < 2
    assert store.terminate()[0] == 0
    fleet.check(place)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["store.db"]
