"""A store of our own: in a process of its own, on a free loopback port and a database of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from roofwatch.model.errors import RoofwatchError

START_S, STOP_S = 30.0, 20.0
PROGRAM = (sys.executable, "-P", "-m", "roofwatch.cli.main")  # -P: a module in the user's folder is not ours


def environment() -> dict[str, str]:
    """The user's environment without settings for a roofwatch of the user's own, of variables or of a file."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROOFWATCH_")}
    return {**env, "ROOFWATCH_CONFIG": ""}


@dataclass(frozen=True, slots=True)
class Local:
    """A running store."""

    address: str
    pid: int

    def cpu_s(self) -> float:
        """Processor time so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Memory now."""
        return self._memory("VmRSS")

    def largest_bytes(self) -> int:
        """The most memory it ever had."""
        return self._memory("VmHWM")

    def _memory(self, key: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


@contextmanager
def local_store(folder: Path, db: str | None = None) -> Iterator[Local]:
    """A store for the length of a block; ``db`` is a database URL, by default a file in the folder.

    Raises:
        RoofwatchError: it does not start; its own words say why.
    """
    port, log = folder / "port", folder / "store.log"
    url = db or f"sqlite:///{folder / 'store.db'}"
    command = (*PROGRAM, "store", "serve", "--db", url, "--listen", "127.0.0.1:0", "--port-file", str(port))
    with log.open("wb") as said:
        process = subprocess.Popen(command, stderr=said, stdin=subprocess.DEVNULL, env=environment())  # noqa: S603
    try:
        until = time.monotonic() + START_S
        while not port.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise RoofwatchError(f"the store did not start: {log.read_text().strip() or 'it said nothing'}")
            time.sleep(0.02)
        yield Local(f"127.0.0.1:{port.read_text().strip()}", process.pid)
    finally:
        port.unlink(missing_ok=True)
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
