"""A store, agents and a job of several ranks: real processes, each rank with an agent of its own, as on nodes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import in_process
import pytest

from roofwatch.agent import status
from roofwatch.hook.launch import environment
from roofwatch.model.errors import UnreachableError

# Two ranks over gloo: what one of them does the other waits for, so their steps are counted alike.
RANK = """
import os, sys, time, torch, torch.distributed as dist
from roofwatch.hook import attach
torch.set_num_threads(1)
parent = os.getppid()
attach(model="ddp")
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x, stop = torch.ones(16, 64), torch.zeros(1)
def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    time.sleep(0.015)
for _ in range(8):
    step()
open(f"{sys.argv[1]}.{os.environ['MASTER_PORT']}.{dist.get_rank()}", "w").close()
while not stop[0]:
    step()
    stop[0] = os.path.exists(sys.argv[1]) or os.getppid() != parent
    dist.all_reduce(stop)
dist.destroy_process_group()
"""
# One process that steps, alone; while a file says so it does not, and no window that is asked for begins.
ALONE = """
import os, sys, time, torch
from roofwatch.hook import attach
torch.set_num_threads(1)
parent, stop, name = os.getppid(), sys.argv[1], sys.argv[2]
attach(model=name)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
def step():
    model(torch.ones(16, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.008)
for _ in range(8):
    step()
open(f"{stop}.{name}", "w").close()
while not os.path.exists(stop) and os.getppid() == parent:
    if os.path.exists(f"{stop}.{name}.halt"):
        time.sleep(0.05)
    else:
        step()
"""


def wait_for(ready: Callable[[], Any], what: str, limit_s: float = 30.0) -> Any:
    """Poll until something holds; give what it gave."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := ready():
            return found
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {limit_s} s")


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Site:
    """All programs of one store; everything is ended at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.stop = folder / "stop"  # jobs end where it is
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ROOFWATCH_")}
        # A test's jobs are profiled every second, which no budget of a real job would pay.
        self.env = {
            **clean,
            "OMP_NUM_THREADS": "1",
            "ROOFWATCH_AGENT_BUDGET": "100",
            "ROOFWATCH_AGENT_HARD_STOP": "100",
        }
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *command: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a program; what it says goes to a file."""
        with (self.folder / f"{len(self.started)}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=log, text=True, env={**self.env, **(env or {})},
                start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def said(self, process: subprocess.Popen[str]) -> str:
        """What a program has said so far."""
        return (self.folder / f"{self.started.index(process)}.log").read_text()

    def store(self, *arguments: str) -> subprocess.Popen[str]:
        """A store that listens."""
        where = ("--listen", self.address, "--db", f"sqlite:///{self.folder}/store.db")
        process = self.start("-m", "roofwatch.cli.main", "store", "serve", *where, *arguments)
        wait_for(lambda: "listening on" in self.said(process) or process.poll() is not None, "the store listens")
        assert process.poll() is None, self.said(process)
        return process

    def socket_of(self, node: str) -> str:
        """Where the hooks of a node register."""
        return str(self.folder / node / "agent.sock")

    def agent(self, node: str, *arguments: str, address: str = "") -> subprocess.Popen[str]:
        """The agent of a node, connected."""
        process = self.start(
            "-m", "roofwatch.agent", "--socket", self.socket_of(node), "--state", str(self.folder / node / "state"),
            "--node-name", node, "--store", address or self.address, *arguments,
        )  # fmt: skip
        wait_for(lambda: "event=store_connected" in self.said(process) or process.poll() is not None, "connected")
        assert process.poll() is None, self.said(process)
        return process

    def job(self, node: str, program: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """A process of a job on a node."""
        attached = environment({**self.env, **(env or {})}, socket=self.socket_of(node))
        return self.start("-c", program, str(self.stop), *arguments, env=attached)

    def alone(self, name: str) -> None:
        """Wait until a process of its own (``ALONE``) steps and is registered with the agent of some node."""
        wait_for(Path(f"{self.stop}.{name}").exists, f"{name} steps", 60)
        wait_for(lambda: any(name in self.models(node.name) for node in self.folder.glob("node-*")), f"{name} is there")

    def models(self, node: str) -> list[str]:
        """Of the processes on a node."""
        return [each["model"] for each in self.status(node).get("process_list", ())]

    def halt(self, name: str, *, on: bool = True) -> None:
        """Stop a process from stepping, or let it."""
        file = Path(f"{self.stop}.{name}.halt")
        file.touch() if on else file.unlink(missing_ok=True)

    def ranks(self, *nodes: str) -> str:
        """Start a job with a rank on each node; its name. ``stepping`` waits for it."""
        port = free_port()
        for rank, node in enumerate(nodes):
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": str(port)}
            self.job(node, RANK, env={**where, "RANK": str(rank), "WORLD_SIZE": str(len(nodes))})
        return f"torchrun:{port}"

    def stepping(self, job: str, nodes: Sequence[str]) -> None:
        """Wait until all ranks of a job have made some steps and are registered."""
        for rank, node in enumerate(nodes):
            wait_for(Path(f"{self.stop}.{job.rpartition(':')[2]}.{rank}").exists, f"rank {rank} steps", 60)
            wait_for(lambda node=node: "ddp" in self.models(node), f"rank {rank} is registered")

    def status(self, node: str) -> dict[str, Any]:
        """What a node's agent says of itself."""
        try:
            return status.request(self.socket_of(node))
        except UnreachableError:
            return {}

    def call(self, *arguments: str) -> in_process.Done:
        """The command line, asked for this store; in this process, since a new one takes longer than the question."""
        return in_process.call(*arguments, env={**self.env, "ROOFWATCH_STORE": self.address})

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """An answer as JSON."""
        done = self.call(*arguments, "--format", "json")
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def end(self) -> None:
        """End all that was started."""
        self.stop.touch()
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        until = time.monotonic() + 5
        for process in self.started:
            if process.poll() is None and "-c" in process.args:
                try:
                    process.wait(max(0.1, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
