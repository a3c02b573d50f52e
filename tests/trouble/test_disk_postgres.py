"""Postgres' disk is full and has room again: the data's alone, and the one that holds its write-ahead log, too."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from fleet import Fleet, Place
from postgres_server import NOBODY, Postgres, binaries
from store_builders import RunningStore
from test_disk import program

Start = Callable[..., RunningStore]
ROOM = "160m"  # a fresh cluster takes 40 MB
SETTINGS = ("fsync=on", "wal_recycle=off", "min_wal_size=2MB", "max_wal_size=4MB", "restart_after_crash=on")


@contextlib.contextmanager
def small_file_system(folder: Path) -> Iterator[None]:
    """A tmpfs on a folder, where root may mount one."""
    options = f"size={ROOM},mode=755,uid={NOBODY},gid={NOBODY}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
        pytest.skip("a file system of its own needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def small_segments(server: Postgres) -> None:
    """Write-ahead log in files of 1 MB, each made anew: a full disk is met at once."""
    command = [server.programs / "pg_resetwal", "--wal-segsize=1", "-D", server.folder / "data"]
    subprocess.run(command, check=True, capture_output=True, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")


@pytest.fixture(params=["data", "data and log"])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """A Postgres on a small file system; its write-ahead log elsewhere, or on it."""
    programs, folder = binaries(), Path(tempfile.mkdtemp(prefix="rwpg-"))
    elsewhere = Path(tempfile.mkdtemp(prefix="rwpg-wal-"))
    shutil.chown(elsewhere, NOBODY, NOBODY)
    found = Postgres(programs, folder, SETTINGS)
    try:
        with small_file_system(folder):
            found.initialize()
            small_segments(found)
            if request.param == "data":
                log = found.folder / "data" / "pg_wal"
                shutil.copytree(log, elsewhere / "pg_wal")
                subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", elsewhere], check=True)
                shutil.rmtree(log)
                log.symlink_to(elsewhere / "pg_wal")
            found.start()
            try:
                yield found
            finally:
                found.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(elsewhere, ignore_errors=True)


def fill(ballast: Path) -> None:
    """All the space that is left."""
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(65_536))


def wait_for(condition: Callable[[], bool], ballast: Path, fleet: Fleet) -> None:
    """Fill what the server gives back, until something holds."""
    until = time.monotonic() + 60
    while not condition():
        fill(ballast)
        assert time.monotonic() < until, fleet.told()
        time.sleep(0.05)


def went_down(server: Postgres) -> bool:
    """Write to the log, which needs no file of data that would refuse first; whether that ended the server."""
    with contextlib.suppress(psycopg.Error):
        server.run("SELECT pg_logical_emit_message(true, 'other', repeat('x', 500000))")
    return server.process is not None and server.process.poll() is not None


@pytest.mark.slow
def test_full_disk_of_postgres(server: Postgres, tmp_path: Path, start: Start, long: bool) -> None:
    """It fills up while a fleet sends: senders and log are told, nothing acknowledged goes; with room all goes on.

    Where the log has no room either, the server itself goes down (PANIC); somebody starts it again.
    """
    place = Place(tmp_path / "none", server, server.create())
    fleet = Fleet(10, 20.0 if long else 3.0)
    store = start(place)
    ballast = server.folder / "ballast"
    goes_down = not (server.folder / "data" / "pg_wal").is_symlink()
    with fleet.sending(store.address):
        time.sleep(1.0)
        if goes_down:
            wait_for(lambda: went_down(server), ballast, fleet)
        else:
            wait_for(lambda: any("free some space" in told for told in fleet.told()), ballast, fleet)
            answer = program("top", "--store", store.address, "--since", "all")  # who asks is still answered
            assert (answer.returncode, answer.stderr) == (0, "")
        acked = fleet.acked()
        ballast.unlink()
        server.start()
        assert acked <= set(place.uids())
        assert store.process.poll() is None
    code, said = store.terminate()
    assert code == 0
    assert goes_down or "free some space" in said  # in the log, too
    fleet.check(place)
