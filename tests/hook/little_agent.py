"""An agent of a hundred lines for the hook's tests and benchmarks: real socket, real protocol, windows on demand."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections import deque
from pathlib import Path
from typing import Any, Self

from roofwatch.hook import protocol


class Connection:
    """One registered process, after its hello."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self.channel = protocol.agent_side(sock)
        self.pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self._messages: deque[tuple[dict[str, Any], int | None]] = deque()
        self._requests = 0
        self.hello, _ = self.receive(timeout)
        assert self.hello["type"] == protocol.HELLO
        self.send({"type": protocol.WELCOME, "protocol": protocol.PROTOCOL, "agent": "test"})

    def send(self, message: dict[str, Any]) -> None:
        """Send any message."""
        self.channel.send(message)

    def receive(self, timeout: float) -> tuple[dict[str, Any], int | None]:
        """The next message and its descriptor. Raises TimeoutError, protocol.Closed."""
        end = time.monotonic() + timeout
        while not self._messages:
            if not select.select([self.channel], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"nothing from pid {self.pid} in {timeout} s")
            self._messages.extend(self.channel.receive())
        return self._messages.popleft()

    def ask(self, **request: Any) -> int:
        """Ask for a window; the number of the request."""
        self._requests += 1
        defaults = {
            "trigger": "requested",
            "steps": 2,
            "duration_ms": 20,
            "max_ms": 2000,
            "shapes": True,
            "cost_known": True,
        }
        self.send({"type": protocol.TAKE_WINDOW, "request": self._requests, **defaults, **request})
        return self._requests

    def take(self, timeout: float = 60.0, **request: Any) -> tuple[dict[str, Any], bytes]:
        """Ask for a window and read it: the answer, and the trace (empty when refused)."""
        number = self.ask(**request)
        answer, fd = self.receive(timeout)
        assert answer["request"] == number
        return answer, read_all(fd)

    def stepping(self) -> Self:
        """This, once the process has stepped: where torch takes seconds to import, it says hello before it does."""
        while not self.take(steps=1, shapes=False, timeout_ms=500)[0].get("steps_seen"):
            pass
        return self

    def close(self) -> None:
        """Go away, as a killed agent does."""
        self.channel.close()


class LittleAgent:
    """Listens on a socket in ``folder``; ``with`` closes everything."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "agent.sock")
        self.connections: list[Connection] = []
        self.listen()

    def listen(self) -> None:
        """Begin to listen, again after ``stop``."""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.bind(self.path)
        self._sock.listen(64)

    def accept(self, timeout: float = 60.0) -> Connection:
        """The next process that says hello. Raises TimeoutError."""
        self._sock.settimeout(timeout)
        connection = Connection(self._sock.accept()[0], timeout)
        self.connections.append(connection)
        return connection

    def stop(self) -> None:
        """Close every connection and the socket."""
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        self._sock.close()
        Path(self.path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def read_all(fd: int | None) -> bytes:
    """Everything behind a descriptor, which is closed."""
    if fd is None:
        return b""
    with os.fdopen(fd, "rb") as file:
        return file.read()


def events(trace: bytes) -> list[dict[str, Any]]:
    """The complete events of a trace."""
    found: list[dict[str, Any]] = [event for event in json.loads(trace)["traceEvents"] if event.get("ph") == "X"]
    return found
