"""The parts under test, each a real program: started, killed, stopped, and started again as a supervisor would."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PROGRAM = (sys.executable, "-m", "roofwatch.cli.main")
STARTS_WITHIN_S, STOPS_WITHIN_S = 60.0, 20.0


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(where: int | Path) -> bool:
    """Whether somebody accepts on a port of loopback, or a Unix socket."""
    family = socket.AF_INET if isinstance(where, int) else socket.AF_UNIX
    with socket.socket(family) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", where) if isinstance(where, int) else str(where)) == 0


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    """To those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [pid, *(child.pid for child in parent.children(recursive=True))]
    return []


@dataclass
class Part:
    """A daemon, and what became of it."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    where: int | Path  # where it listens
    may_fail: Callable[[], bool] = lambda: False  # whether it may end by itself just now, as on a full disk
    process: subprocess.Popen[bytes] | None = None
    down_until: float = 0.0  # nobody starts it before
    started: int = 0
    starts: list[float] = field(default_factory=list)
    unmeant: list[str] = field(default_factory=list)  # ends that nobody brought about

    @property
    def pid(self) -> int:
        """0 where it is down."""
        return self.process.pid if self.process is not None and self.process.poll() is None else 0

    def start(self) -> None:
        """Start it; it may take a while until it listens."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(self.env), cwd="/"
            )
        self.started += 1
        self.starts.append(time.monotonic())

    def ready(self) -> None:
        """Wait until it listens.

        Raises:
            RuntimeError: it does not.
        """
        until = time.monotonic() + STARTS_WITHIN_S
        while not listens(self.where):
            if not self.pid or time.monotonic() > until:
                raise RuntimeError(f"{self.name} does not start: {self.tail()}")
            time.sleep(0.05)

    def look(self) -> None:
        """As a supervisor does: start it again where it has ended and nobody holds it down."""
        if self.process is None or self.process.poll() is None:
            return
        if time.monotonic() < self.down_until:
            return
        if time.monotonic() - self.starts[-1] < 1.0:
            return  # no faster than that
        code = self.process.returncode
        if self.down_until == 0.0 and not self.may_fail():
            self.unmeant.append(f"{self.name} ended by itself with {code}: {self.tail()}")
        self.down_until = 0.0
        self.start()

    def kill(self, until: float) -> None:
        """SIGKILL to it alone: its children must see to themselves. Nobody starts it before."""
        if self.pid:
            self.down_until = max(until, time.monotonic(), 1e-9)
            signal_all([self.pid], signal.SIGKILL)
            signal_all([self.pid], signal.SIGCONT)

    def terminate(self, until: float = 0.0) -> str:
        """SIGTERM; what was wrong with how it ended."""
        if not self.pid or self.process is None:
            return ""
        self.down_until = max(until, time.monotonic())
        ready = listens(self.where)  # before, the signal finds nobody who would stop in order
        self.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        try:
            code = self.process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} did not stop within {STOPS_WITHIN_S:.0f} s of SIGTERM: {self.tail()}"
        if code not in {0, -signal.SIGKILL} and (ready or code != -signal.SIGTERM):  # chaos may kill it meanwhile
            return f"{self.name} exits with {code} {time.monotonic() - begun:.1f} s after SIGTERM: {self.tail()}"
        return ""

    def tail(self, size: int = 600) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-size:].strip().replace("\n", " | ")
        return ""
