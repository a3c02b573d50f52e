"""What an agent holds does not grow with what passes through it: after some events, and after five times as many."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "watched_agent.py"
MANY, REST_S, MOST = 4, 0.3, 20
NOISE = (1_000, 150_000)  # Python's blocks, bytes of the C library, of all events together
LEFT = (2, 200)  # of each
HELLO = struct.pack("!I", 34) + b'{"type": "hello", "protocol": "?"}'
# Processes of their own, one after the other: each registers and is gone.
COMING_AND_GOING = """
import os, socket, sys
from roofwatch.hook import protocol
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(sys.argv[1])
        own = {"model": "m", "job": f"job-{os.getpid()}", "versions": {"torch": "2.13.0"}}
        channel = protocol.job_side(sock)
        channel.send({"type": "hello", "protocol": 1, "hook": "test", "pid": os.getpid(), **own})
        os._exit(channel.receive()[0][0]["type"] != "welcome")
    assert os.wait()[1] == 0
"""


class Watched:
    """An agent that tells what it holds."""

    def __init__(self, agent: Any, held: Path, wait: Callable[..., Any]) -> None:
        self.agent, self._file, self._wait = agent, held, wait

    def held(self) -> list[int]:
        """What is live once what was at work has come to rest."""
        time.sleep(REST_S)
        self._file.unlink(missing_ok=True)
        self.agent.process.send_signal(signal.SIGUSR2)
        self._wait(self._file.exists, "the agent tells what it holds")
        return list(map(int, self._file.read_text().split()))


@contextmanager
def store_that_hangs_up() -> Iterator[tuple[str, list[int]]]:
    """Its address, and who called: it takes a connection and ends it, as one behind a broken proxy would."""
    calls: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    sock, (_, port) = listening.accept()
                    calls.append(port)
                    sock.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", calls
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def watched(agents: Callable[..., Any], short: Path, wait: Callable[..., Any]) -> Callable[..., Watched]:
    """Starts an agent whose limits are 20."""

    def start(*arguments: str) -> Watched:
        env = {"HELD": str(short / "held"), "MOST": str(MOST)}
        return Watched(agents(*arguments, program=PROGRAM, env=env), short / "held", wait)

    return start


def flat(watched: Watched, event: Callable[[int], Any], few: int) -> None:
    """Nothing but noise is left of events."""
    event(few)
    before = watched.held()
    event(MANY * few)
    left = [now - then for now, then in zip(watched.held(), before, strict=True)]
    most = [noise + MANY * few * each for noise, each in zip(NOISE, LEFT, strict=True)]
    assert all(found < allowed for found, allowed in zip(left, most, strict=True)), (left, most)


def test_jobs_that_come_and_go_leave_nothing(watched, wait):
    """Accounts and last words of so many are kept, and of no more."""
    agent = watched()

    def come_and_go(count: int) -> None:
        subprocess.run([sys.executable, "-c", COMING_AND_GOING, str(agent.agent.socket), str(count)], check=True)
        wait(lambda: agent.agent.status()["processes"] == 0, "all are gone")

    flat(agent, come_and_go, 2 * MOST)


def test_what_is_turned_away_leaves_nothing(watched):
    """A hello that is none, and what is no message at all."""
    agent = watched()

    def turn_away(count: int) -> None:
        for _ in range(count):
            for said in (b"GET / HTTP/1.1\r\n\r\n", HELLO):
                with socket.socket(socket.AF_UNIX) as raw, suppress(OSError):
                    raw.connect(str(agent.agent.socket))
                    raw.sendall(said)
                    while raw.recv(4096):
                        pass

    flat(agent, turn_away, 50)
    connections = agent.agent.status()["connections"]
    assert (connections["closed_bad_hello"], "rejected_flood" in connections) == (50 * (1 + MANY), False)


def test_windows_leave_nothing(watched, job):
    """Taken, refused, damaged."""
    agent = watched()
    jobs = [job(agent.agent.socket, model="m")]

    def take(count: int) -> None:
        for i in range(count):
            request = jobs[0].receive()
            if i % 4 == 3:
                jobs[0].channel.send({"type": "refused", "request": request["request"], "reason": "busy"})
            else:
                jobs[0].answer(request, b"sentence" if i % 4 == 2 else b"ok 50")

    flat(agent, take, 8)


def test_a_store_that_hangs_up_leaves_nothing(watched, wait):
    """Connection after connection, each with a channel of its own."""
    with store_that_hangs_up() as (address, calls):
        agent = watched("--store", address)

        def hang_up(count: int) -> None:
            enough = len(calls) + count
            wait(lambda: len(calls) >= enough, "the agent calls again")

        flat(agent, hang_up, 40)
