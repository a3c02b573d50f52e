"""A store, an agent and jobs as a user starts them: real processes, real sockets, real SQLite, real windows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import in_process
import pytest

PROGRAM = (sys.executable, "-m", "roofwatch.cli.main")
# Steps of a few milliseconds: a window of two steps is short, and the process is seen to step at once.
TRAINING = """
import sys, time, torch
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(64, 256)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    time.sleep(0.005)
print("done", flush=True)
"""


def wait_for(ready: Callable[[], Any], what: str, limit_s: float = 40.0) -> Any:
    """Poll until something holds; give what it gave."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        time.sleep(0.1)
    pytest.fail(f"{what} within {limit_s} s")


class Node:
    """One machine's programs in one private folder; everything is ended at the end of the test."""

    program = PROGRAM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "agent.sock"
        with socket.socket() as probe:  # a fixed port, so that a store that comes back is found again
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"sqlite:///{folder}/store.db"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ROOFWATCH_")}
        # A test's jobs are profiled every second, which no budget of a real job would pay.
        clean |= {"ROOFWATCH_AGENT_BUDGET": "100", "ROOFWATCH_AGENT_HARD_STOP": "100"}
        self.env = {**clean, "OMP_NUM_THREADS": "1", "ROOFWATCH_SOCKET": str(self.socket)}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *command: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a program; stdout is piped, stderr goes to a file."""
        with (self.folder / f"{len(self.started)}.err").open("w") as err:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=err, text=True, env={**self.env, **(env or {})},
                start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def store(self) -> subprocess.Popen[str]:
        """A store that listens."""
        process = self.start(*PROGRAM, "store", "serve", "--listen", self.address, "--db", self.url)
        wait_for(lambda: self.ask("nodes", allowed=(0, 4)), "the store did not answer")
        return process

    def agent(self, interval: float = 1.0, **env: str) -> subprocess.Popen[str]:
        """An agent that listens."""
        settings = ("--store", self.address, "--state", str(self.folder / "state"), "--interval", str(interval))
        process = self.start(*PROGRAM, "agent", *settings, env=env)
        wait_for(self.listens, "the agent did not listen")
        return process

    def listens(self) -> bool:
        """Whether somebody accepts on the agent's socket."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def job(self, model: str, seconds: float) -> subprocess.Popen[str]:
        """A training job under ``roofwatch run`` that has begun."""
        return self.script(TRAINING, model, seconds)

    def script(self, program: str, model: str, seconds: float) -> subprocess.Popen[str]:
        """A program under ``roofwatch run`` that has said "ready"; how long it runs is its argument."""
        job = (sys.executable, "-c", program, str(seconds))
        process = self.start(*PROGRAM, "run", "--model", model, "--label", "suite=e2e", "--", *job)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    def ask(self, query: str, *arguments: str, allowed: tuple[int, ...] = (0,)) -> dict[str, Any] | None:
        """The answer of a reading command, None where it exits otherwise."""
        done = self._asked(query, "--format", "json", *arguments)
        return json.loads(done.stdout) if done.returncode in allowed else None

    def read(self, query: str, *arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
        """What a reading command writes for people."""
        done = self._asked(query, *arguments)
        assert done.returncode in allowed, done.stderr
        return done.stdout

    def _asked(self, query: str, *arguments: str) -> in_process.Done:
        # In this process: to wait for windows is to ask often, and the start of a program takes a second of the jobs'.
        return in_process.call(query, "--store", self.address, "--since", "all", *arguments, env=self.env)

    def wait_for_windows(self, number: int, limit_s: float = 40.0) -> None:
        """Until that many are in the store."""
        wait_for(lambda: len(self.windows()) >= number, f"{number} windows did not arrive", limit_s)

    def windows(self) -> list[dict[str, Any]]:
        """All windows in the store."""
        answer = self.ask("windows", "--limit", "0", allowed=(0, 4))
        return answer["rows"] if answer else []

    def end(self) -> None:
        """Kill what is left, whole groups."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout:
                process.stdout.close()


@contextmanager
def running_node() -> Iterator[Node]:
    """A machine without anything running; its folder is short, since a socket's path may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="rw-"))
    machine = Node(folder)
    try:
        yield machine
    finally:
        machine.end()
        shutil.rmtree(folder, ignore_errors=True)
