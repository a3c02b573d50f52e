"""A real ClickHouse engine from a wheel, in a folder and a process of its own, reached over HTTP."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
PROGRAM = Path(__file__).with_name("clickhouse_process.py")
START_S = 180.0  # its library has 500 MB, which a cold disk takes more than a minute to read


def _end_with_parent() -> None:
    """A test run that is killed leaves no engine behind."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class ClickHouse:
    """A server; ``url(name)`` names one of its databases."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    made: int = field(default=0)

    def url(self, database: str) -> str:
        """As given to --db."""
        return f"clickhousedb://default@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, and wait until it answers; at the port it had before."""
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, str(PROGRAM), str(self.folder), str(port_file), str(self.port)]
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call of the kernel's
            )
        deadline = time.monotonic() + START_S
        while not port_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"ClickHouse does not start here: {(self.folder / 'log').read_text()[-500:]}")
            time.sleep(0.02)
        self.port = int(port_file.read_text())

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def run(self, statement: str, database: str = "default") -> list[list[str]]:
        """Past all of the store's own code."""
        address = f"http://127.0.0.1:{self.port}/?database={database}"
        request = urllib.request.Request(address, data=statement.encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - the same
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from error
        return [line.split("\t") for line in text.splitlines()]

    def create(self) -> str:
        """A database of its own; its name."""
        self.made += 1
        name = f"d{self.made}"
        self.run(f"CREATE DATABASE {name}")
        return name


ROOM_BYTES = 2 << 30
MEMORY = Path("/dev/shm")  # noqa: S108 - where a test's tables need not wait for a disk that others use, too


@contextmanager
def running_clickhouse(*, on_disk: bool = False) -> Iterator[ClickHouse]:
    """A server for the length of a block."""
    for name in ("chdb", "clickhouse_connect"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: there is no ClickHouse to test with")
    roomy = not on_disk and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    server = ClickHouse(Path(tempfile.mkdtemp(prefix="rwch-", dir=MEMORY if roomy else None)))
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(server.folder, ignore_errors=True)
