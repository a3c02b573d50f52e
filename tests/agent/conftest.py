"""A real agent in a process of its own, raw jobs that speak the hook's protocol to it, and a small store."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from roofwatch.agent import status
from roofwatch.hook import protocol
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

sys.path.append(str(Path(__file__).parent))  # scheduling; the import mode leaves the path alone

PROGRAMS = Path(__file__).parent / "programs"
STAND_IN = PROGRAMS / "agent_with_stand_in.py"


def until(condition: Callable[[], Any], what: str, within: float = 15.0) -> Any:
    """Wait for a condition, fail with what was waited for."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    pytest.fail(f"not within {within} s: {what}")


def memfd(content: bytes) -> int:
    """A memfd that holds the bytes."""
    fd = os.memfd_create("trace")
    os.write(fd, content)
    return fd


class Job:
    """A process that registers, as the hook would; it answers only what a test tells it to."""

    def __init__(self, path: Path, **hello: Any) -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(10)
        sock.connect(str(path))
        self.channel = protocol.job_side(sock)
        self._messages: list[dict[str, Any]] = []
        if hello.pop("greet", True):
            self.channel.send({"type": "hello", "protocol": 1, "hook": "test", "pid": os.getpid(), **hello})
            assert self.receive()["type"] == "welcome"

    def receive(self, within: float = 10.0) -> dict[str, Any]:
        """The next message; raises Closed at the end, TimeoutError where none comes."""
        self.channel.sock.settimeout(within)
        while not self._messages:
            self._messages += [message for message, _ in self.channel.receive()]
        return self._messages.pop(0)

    def answer(self, request: dict[str, Any], trace: bytes = b"ok 2000", fd: int | None = None, **changes: Any) -> None:
        """Send a window for a request."""
        message = {
            "type": "window",
            "request": request["request"],
            "format": "kineto-json",
            "start_unix_ns": time.time_ns(),
            "duration_ns": 50_000_000,
            "steps": request["steps"],
            "shapes": request["shapes"],
            "size": len(trace),
            "cost": None,
            "padding": None,
            "steps_seen": 10,
            **changes,
        }
        own = memfd(trace) if fd is None else fd
        self.channel.send(message, own)
        os.close(own)

    def closed(self, within: float = 10.0) -> bool:
        """Whether the agent hangs up; what it says before is thrown away."""
        try:
            while True:
                self.receive(within)
        except (protocol.Closed, ConnectionError):
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        """Hang up."""
        self.channel.close()


# A test's jobs are profiled every second, which no budget of a real job would pay.
GENEROUS = {"ROOFWATCH_AGENT_BUDGET": "100", "ROOFWATCH_AGENT_HARD_STOP": "100"}


class AgentProcess:
    """A running agent."""

    def __init__(
        self, folder: Path, *arguments: str, program: Path | None = STAND_IN, env: dict[str, str] | None = None
    ):
        self.folder = folder
        self.socket = folder / "run" / "agent.sock"
        self.state = folder / "state"
        self.log = folder / f"log{time.monotonic_ns()}"
        start = [str(program)] if program else ["-m", "roofwatch.agent"]
        with self.log.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *start, "--socket", str(self.socket), "--state", str(self.state), *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**GENEROUS, **os.environ, **(env or {})},
            )

    def ready(self) -> AgentProcess:
        """Wait until it listens."""
        until(lambda: "listening" in self.log.read_text() or self.process.poll() is not None, "agent listens")
        assert self.process.poll() is None, self.log.read_text()
        return self

    def status(self) -> dict[str, Any]:
        """What it says about itself."""
        return status.request(str(self.socket))

    def segments(self) -> list[pb.Segment]:
        """What is in its spool, once it has stopped."""
        database = sqlite3.connect(self.state / "spool.db")
        blobs = database.execute("SELECT envelope FROM segment ORDER BY row").fetchall()
        database.close()
        return [codec.unseal(pb.SegmentEnvelope.FromString(blob)) for (blob,) in blobs]

    def stop(self, within: float = 10.0) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    del tmp_path  # its path may be too long for a sockaddr
    folder = Path(tempfile.mkdtemp(prefix="rw-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def agents(short: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Starts agents in one folder; none outlives the test."""
    started: list[AgentProcess] = []

    def start(*arguments: str, ready: bool = True, **more: Any) -> AgentProcess:
        agent = AgentProcess(short, *arguments, **more)
        started.append(agent)
        return agent.ready() if ready else agent

    yield start
    for agent in started:
        if agent.process.poll() is None:
            agent.kill()
        assert agent.process.stdout is not None
        agent.process.stdout.close()


class StoreProcess:
    """The small store in programs/: commits what it gets to a folder, acks after that."""

    def __init__(self, folder: Path, port: int, *arguments: str) -> None:
        self.folder = folder
        self.port = port
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "small_store.py"), str(folder), str(port), *arguments],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def received(self) -> list[pb.SegmentEnvelope]:
        """Every envelope that was committed, in order of arrival, repetitions included."""
        files = sorted(self.folder.glob("*.segment"), key=lambda path: int(path.stem))
        return [pb.SegmentEnvelope.FromString(path.read_bytes()) for path in files]

    def windows(self) -> list[str]:
        """The uids of all windows in the distinct segments."""
        distinct = {(e.id.agent, e.id.boot, e.id.sequence): e for e in self.received()}
        return [w.uid for e in distinct.values() for w in codec.windows(codec.unseal(e))]

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Callable[..., StoreProcess]]:
    """Starts small stores on one port and one folder; none outlives the test."""
    folder = tmp_path / "store"
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started: list[StoreProcess] = []

    def start(*arguments: str) -> StoreProcess:
        store = StoreProcess(folder, port, *arguments)
        started.append(store)
        return store

    yield start
    for store in started:
        store.kill()


def descriptors() -> set[str]:
    """Open descriptors of this process, that of the listing left out."""
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


async def soon(condition: Callable[[], Any], within: float = 5.0) -> None:
    """Wait for a condition beside the loop under test."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - what is waited for knows nothing of this test
            await asyncio.sleep(0.005)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """``soon``."""
    return soon


@pytest.fixture
def run_loop() -> Callable[..., Any]:
    """Runs a coroutine and checks that it leaves no task, child or descriptor behind."""

    def run(main: Callable[[], Any]) -> Any:
        before, children = descriptors(), set(psutil.Process().children())

        async def checked() -> Any:
            result = await main()
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()
            return result

        result = asyncio.run(checked())
        assert not set(psutil.Process().children()) - children  # a Postgres of other tests may be there all the time
        left = descriptors() - before
        assert not left
        return result

    return run


@pytest.fixture
def job() -> Iterator[Callable[..., Job]]:
    """Starts raw jobs; each hangs up at the end."""
    started: list[Job] = []

    def start(path: Path, **hello: Any) -> Job:
        started.append(Job(path, **hello))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def wait() -> Callable[..., Any]:
    """``until``."""
    return until
