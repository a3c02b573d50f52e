"""The agents that are connected now: commands go down to them, their results come back."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.access import ANYBODY, NOTHING, Caller, Shown

COMMANDS = 64  # that may wait for one agent
RESULTS = 1_000  # commands whose results are kept…
RESULTS_EACH, REASON_MOST = 10_000, 1_000  # …so many of each, with reasons of so many characters


@dataclass(slots=True, eq=False)
class Connection:
    """One agent's stream. In ``outbound`` None ends it, and an error breaks it."""

    agent: str
    host: str
    outbound: asyncio.Queue[pb.StoreMessage | RoofwatchError | None] = field(default_factory=asyncio.Queue)
    commands: int = 0  # waiting in outbound
    caller: Caller = ANYBODY
    shown: Shown = NOTHING


class Hub:
    """All streams of this store; lives on the server's event loop."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._results: OrderedDict[str, list[pb.CommandResult]] = OrderedDict()
        self._changed = asyncio.Condition()

    def connect(self, agent: str, host: str) -> Connection:
        """Register a stream; a newer stream of the same agent takes its place for commands."""
        connection = self._connections[agent] = Connection(agent, host)
        return connection

    def disconnect(self, connection: Connection) -> None:
        """Forget a stream."""
        if self._connections.get(connection.agent) is connection:
            del self._connections[connection.agent]

    def agents(self, host: str | None = None) -> list[str]:
        """Names of the connected agents, of one host or of all."""
        return [c.agent for c in self._connections.values() if host is None or c.host == host]

    def push(self, agent: str, command: pb.Command) -> bool:
        """Send a command down; False when the agent is not connected or does not keep up."""
        connection = self._connections.get(agent)
        if connection is None or connection.commands >= COMMANDS:
            return False
        connection.commands += 1
        self._results.setdefault(command.id, [])
        while len(self._results) > RESULTS:
            self._results.popitem(last=False)
        connection.outbound.put_nowait(pb.StoreMessage(command=command))
        return True

    async def add_result(self, result: pb.CommandResult) -> None:
        """Keep what an agent answered."""
        async with self._changed:
            found = self._results.get(result.id)
            if found is None:
                return  # nobody asked
            if len(found) < RESULTS_EACH:
                # A message of its own: a part keeps all that came with it in memory.
                reason = result.reason[:REASON_MOST]
                found.append(pb.CommandResult(id=result.id, pid=result.pid, accepted=result.accepted, reason=reason))
            self._changed.notify_all()

    async def results(self, command: str, count: int, timeout_s: float) -> list[pb.CommandResult]:
        """What agents answered to a command, once there are ``count`` answers or the time is over."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: len(self._results.get(command, ())) >= count)
        except TimeoutError:
            pass
        return list(self._results.get(command, ()))
