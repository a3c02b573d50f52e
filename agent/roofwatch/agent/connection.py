"""One peer on the socket, with a bound on everything it may do: how long, how much, how often."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from roofwatch.hook import protocol

HELLO_WITHIN_S = 5.0
MESSAGE_WITHIN_S = 5.0  # from the first byte of a message to its last
FLOOD_MESSAGES = 100  # a job sends one message a window; this many…
FLOOD_BYTES = 16 << 20  # …or so much: all that a job's graphs were captured from is 8 MiB at most, and goes once…
FLOOD_PERIOD_S = 10.0  # …in this time is not a job


class Owner(Protocol):
    """What a connection tells."""

    def on_message(self, connection: Connection, message: dict[str, Any], fd: int | None) -> None:
        """A whole message arrived; the descriptor belongs to the callee."""

    def on_closed(self, connection: Connection, why: str) -> None:
        """The connection is gone; told once."""


class Connection:
    """A non-blocking channel driven by the event loop."""

    def __init__(self, sock: socket.socket, pid: int, uid: int, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = pid
        self.uid = uid
        self.open = True
        self._channel = protocol.agent_side(sock)
        self._owner = owner
        self._loop = loop
        self._deadline: asyncio.TimerHandle | None = loop.call_later(HELLO_WITHIN_S, self.close, "no_hello")
        self._half: asyncio.TimerHandle | None = None
        self._messages = self._received = 0
        self._period_ends = 0.0
        loop.add_reader(sock.fileno(), self._readable)

    def greeted(self) -> None:
        """The peer has said who it is: it may now be silent for as long as it likes."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send a message; a peer that does not read its few small messages is closed. False where it is gone."""
        if not self.open:
            return False
        try:
            self._channel.send(message)
        except (OSError, protocol.ProtocolError):
            self.close("unwritable")
            return False
        return True

    def close(self, why: str) -> None:
        """End the conversation; every descriptor nobody claimed is closed."""
        if not self.open:
            return
        self.open = False
        self._loop.remove_reader(self._channel.fileno())
        for timer in (self._deadline, self._half):
            if timer is not None:
                timer.cancel()
        self._channel.close()
        self._owner.on_closed(self, why)

    def _readable(self) -> None:
        try:
            messages = self._channel.receive()
        except BlockingIOError:
            return
        except protocol.Closed:
            self.close("peer")
            return
        except (OSError, protocol.ProtocolError) as error:
            self.close("not_protocol" if isinstance(error, protocol.ProtocolError) else "broken")
            return
        self._watch_half(bool(messages))
        for message, fd in messages:
            if not self.open or self._flooded():
                if fd is not None:
                    with suppress(OSError):
                        os.close(fd)
                continue
            self._owner.on_message(self, message, fd)

    def _watch_half(self, completed: bool) -> None:
        if self._half is not None and (completed or not self._channel.pending):
            self._half.cancel()
            self._half = None
        if self._half is None and self._channel.pending:
            self._half = self._loop.call_later(MESSAGE_WITHIN_S, self.close, "half_message")

    def _flooded(self) -> bool:
        now = self._loop.time()
        if now >= self._period_ends:
            self._messages, self._received, self._period_ends = 0, self._channel.received, now + FLOOD_PERIOD_S
        self._messages += 1
        if self._messages > FLOOD_MESSAGES or self._channel.received - self._received > FLOOD_BYTES:
            self.close("flood")
            return True
        return False
