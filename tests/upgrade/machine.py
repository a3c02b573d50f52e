"""Programs of two versions on one machine: a store, an agent, jobs, and the commands that ask."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Requests until standard input closes. No optimizer: beside a busy machine the agent takes slower steps for a residue
# of its windows, and leaves such a job alone.
SERVING = """
import sys, threading, time, torch
torch.set_num_threads(1)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256))
x = torch.randn(1024, 256)  # some milliseconds: what computes less is taken for idle
with torch.inference_mode():
    while not over.is_set():
        model(x)
        time.sleep(0.01)
print("done", flush=True)
"""


@dataclass(frozen=True)
class Version:
    """An installed version."""

    name: str
    python: Path

    @property
    def program(self) -> tuple[str, ...]:
        """Its command line."""
        return (str(self.python), "-m", "roofwatch.cli.main")


def wait_for(ready: Callable[[], Any], what: str, limit_s: float = 40.0) -> Any:
    """Poll until something holds; give what it gave."""
    end = time.monotonic() + limit_s
    while not (found := ready()):
        assert time.monotonic() < end, f"{what} within {limit_s} s"
        time.sleep(0.1)
    return found


@dataclass
class Machine:
    """Programs in one private folder."""

    folder: Path
    url: str = ""
    port: int = 0
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = self.url or f"sqlite:///{self.folder}/store.db"

    @property
    def address(self) -> str:
        """Of the store."""
        return f"127.0.0.1:{self.port}"

    @property
    def socket(self) -> Path:
        """Of the agent."""
        return self.folder / "agent.sock"

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A program; stderr goes to a file."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROOFWATCH_", "PYTHONPATH"))}
        clean["ROOFWATCH_HOOK_CLOSE"] = "native"  # the jobs have a second thread
        with (self.folder / f"{len(self.started)}.err").open("w") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self.folder,
                env={**clean, "OMP_NUM_THREADS": "1", "ROOFWATCH_SOCKET": str(self.socket)}, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def errors(self, process: subprocess.Popen[str]) -> str:
        """What it wrote to stderr."""
        return (self.folder / f"{self.started.index(process)}.err").read_text()

    def store(self, version: Version) -> subprocess.Popen[str]:
        """A store that listens."""
        process = self.start(*version.program, "store", "serve", "--listen", self.address, "--db", self.url)
        wait_for(lambda: self._listens() or process.poll() is not None, "the store listens")
        assert process.poll() is None, self.errors(process)
        return process

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def agent(self, version: Version) -> subprocess.Popen[str]:
        """An agent that listens; what it has not sent it takes over from the one before."""
        process = self.start(
            *version.program, "agent", "--store", self.address, "--state", str(self.folder / "state"),
            "--interval", "1", "--budget", "100", "--hard-stop", "100",
        )  # fmt: skip
        wait_for(lambda: "event=listening" in self.errors(process) or process.poll() is not None, "the agent listens")
        assert process.poll() is None, self.errors(process)
        return process

    def job(self, version: Version) -> subprocess.Popen[str]:
        """A job with this version's hook; its model is named after it."""
        job = (str(version.python), "-c", SERVING)
        return self.start(*version.program, "run", "--model", version.name, "--", *job)

    def stop(self, process: subprocess.Popen[str]) -> str:
        """SIGTERM; it ends in order. What it wrote to stderr."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, self.errors(process)
        return self.errors(process)

    def ask(self, version: Version, *arguments: str) -> dict[str, Any]:
        """The answer of a reading command of that version; 4 is an answer of nothing."""
        command = [*version.program, *arguments, "--store", self.address, "--since", "all", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode in {0, 4}, done.stderr
        return json.loads(done.stdout)

    def _read(self, statement: str) -> list[Any]:
        """Of the store's database, past all of its own code."""
        if self.url.startswith("postgresql"):
            import psycopg  # noqa: PLC0415  # skipped where it is not there

            with psycopg.connect(self.url.replace("+psycopg", "")) as connection:
                return connection.execute(statement).fetchall()
        with closing(sqlite3.connect(self.folder / "store.db")) as file:
            return file.execute(statement).fetchall()

    def stored(self) -> Counter[str]:
        """Windows by model."""
        asked = "SELECT p.model, count(*) FROM windows w JOIN processes p ON p.id = w.process_id GROUP BY 1"
        return Counter(dict(self._read(asked)))

    def uids(self) -> list[str]:
        """Of all windows, as often as they are there."""
        return [uid.hex() for (uid,) in self._read("SELECT uid FROM windows")]

    def schema(self) -> str:
        """Of the database."""
        return str(self._read("SELECT version_num FROM alembic_version")[0][0])

    def spooled(self) -> int:
        """Windows that wait in the agent's spool."""
        with closing(sqlite3.connect(self.folder / "state" / "spool.db")) as spool:
            return int(spool.execute("SELECT coalesce(sum(windows), 0) FROM segment").fetchone()[0])

    def end(self) -> None:
        """Kill what is left, whole groups."""
        for process in self.started:  # shown where a test fails
            print(f"{process.args[-8:]}: {process.poll()}\n{self.errors(process)}")
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
