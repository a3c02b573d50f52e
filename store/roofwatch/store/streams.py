"""The open streams of agents, and how one ends whose agent may no longer send."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.access import Caller, Refusal, Shown, Why
from roofwatch.store.gate import Gate
from roofwatch.store.hub import Connection

REVOKED_S = 2.0  # for an agent to read that it may no longer send
CHANGED = "what this agent may do has changed: connect again"


class RevokedError(RoofwatchError):
    """What an open stream was admitted for is no longer so."""


@dataclass(slots=True)
class _Stream:
    """One that is read by ``reader`` and answered by ``handler``, gRPC's own task."""

    reader: asyncio.Task[None]
    handler: asyncio.Task[Any] | None
    ending: asyncio.TimerHandle | None = None

    def revoke(self, connection: Connection, told: str) -> None:
        """Read no more, say why, and hang up on who does not listen. What it sent before is stored."""
        self.reader.cancel()
        connection.outbound.put_nowait(RevokedError(told))
        self.ending = asyncio.get_running_loop().call_later(REVOKED_S, self._hang_up)

    def _hang_up(self) -> None:
        if self.handler is not None:
            self.handler.cancel()


class Streams:
    """All of a store, also those whose agent has a newer one; lives on the server's event loop."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._open: dict[Connection, _Stream] = {}
        self.clients = 0  # how often the CA of clients has changed

    def stands(self, caller: Caller, shown: Shown, clients: int) -> bool:
        """Whether a caller that was admitted when the CA of clients had changed so often still would be."""
        return self._gate.access.caller(shown) == caller and (clients == self.clients or shown.certificate is None)

    def add(self, connection: Connection, reader: asyncio.Task[None]) -> None:
        """A stream begins, in the task that serves it."""
        self._open[connection] = _Stream(reader, asyncio.current_task())

    def remove(self, connection: Connection) -> None:
        """It has ended."""
        stream = self._open.pop(connection)
        stream.reader.cancel()
        if stream.ending is not None:
            stream.ending.cancel()

    def recheck(self, now_unix_s: float, *, entries: bool, certificates: bool) -> None:
        """End the streams of callers that may no longer do what they were admitted for.

        Looks at the time always, at rights when the entries changed; a new CA of clients asks all of them again.
        """
        self.clients += certificates
        for connection, stream in self._open.items():
            caller, shown = connection.caller, connection.shown
            over = caller.expires_unix_s is not None and caller.expires_unix_s <= now_unix_s
            if stream.ending is not None:
                continue
            if certificates and shown.certificate is not None:
                stream.revoke(connection, "the CA of clients has changed: connect again")
            elif over or (entries and self._gate.access.caller(shown) != caller):
                self._gate.count(Refusal(Why.EXPIRED if over else Why.TOKEN, f"'{caller.name}' in an open stream"))
                stream.revoke(connection, CHANGED)
