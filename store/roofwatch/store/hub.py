"""The agents that are connected now: commands go down to them, their results come back."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.access import ANYBODY, NOTHING, Caller, Shown

COMMANDS = 64  # that may wait for one agent
ACKS = 1024  # segments of one agent that are read and whose acknowledgements it has not taken yet
ANSWERS, ANSWERS_BYTES = 4096, 16 << 20  # to one question that nobody has read yet
RESULTS = 1_000  # commands whose results are kept…
RESULTS_EACH, REASON_MOST = 10_000, 1_000  # …so many of each, with reasons of so many characters


class Talk:
    """Commands under one number, to several agents, and their answers; only those who were asked are heard."""

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.asked: set[str] = set()  # agents
        self.left_out = 0  # answers beyond what is kept until somebody reads
        self._answers: asyncio.Queue[tuple[str, pb.AgentMessage]] = asyncio.Queue()
        self._held = 0  # bytes of them

    def heard(self, agent: str, message: pb.AgentMessage) -> None:
        """Keep an answer."""
        if agent not in self.asked:
            return
        size = message.ByteSize()
        if self._answers.qsize() >= ANSWERS or self._held + size > ANSWERS_BYTES:
            self.left_out += 1
            return
        self._held += size
        self._answers.put_nowait((agent, message))

    async def next(self, within_s: float) -> tuple[str, pb.AgentMessage] | None:
        """The next answer and whose it is; None where none comes in time."""
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                agent, message = await self._answers.get()
        except TimeoutError:
            return None
        self._held -= message.ByteSize()
        return agent, message


@dataclass(slots=True, eq=False)
class Connection:
    """One agent's stream. In ``outbound`` None ends it, and an error breaks it."""

    agent: str
    host: str
    boot: str = ""
    outbound: asyncio.Queue[pb.StoreMessage | RoofwatchError | None] = field(default_factory=asyncio.Queue)
    commands: int = 0  # waiting in outbound
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ACKS))  # for acknowledgements
    caller: Caller = ANYBODY
    shown: Shown = NOTHING


class Hub:
    """All streams of this store; lives on the server's event loop."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._results: OrderedDict[str, list[pb.CommandResult]] = OrderedDict()
        self._changed = asyncio.Condition()
        self._talks: dict[str, Talk] = {}

    def connect(self, agent: str, host: str, boot: str = "") -> Connection:
        """Register a stream; a newer stream of the same agent takes its place for commands."""
        connection = self._connections[agent] = Connection(agent, host, boot)
        return connection

    def disconnect(self, connection: Connection) -> None:
        """Forget a stream."""
        if self._connections.get(connection.agent) is connection:
            del self._connections[connection.agent]

    def agents(self, host: str | None = None) -> list[str]:
        """Names of the connected agents, of one host or of all."""
        return [c.agent for c in self._connections.values() if host is None or c.host == host]

    def connected(self, host: str | None = None) -> list[Connection]:
        """The streams commands go down, of one host or of all."""
        return [c for c in self._connections.values() if host is None or c.host == host]

    def of(self, agent: str) -> Connection | None:
        """The stream of an agent; None while it is away."""
        return self._connections.get(agent)

    def push(self, agent: str, command: pb.Command) -> bool:
        """Send a command down and keep what is answered; False as ``send``."""
        if not self.send(agent, command):
            return False
        self._results.setdefault(command.id, [])
        while len(self._results) > RESULTS:
            self._results.popitem(last=False)
        return True

    def send(self, agent: str, command: pb.Command) -> bool:
        """Send a command down; False when the agent is not connected or does not keep up."""
        connection = self._connections.get(agent)
        if connection is None or connection.commands >= COMMANDS:
            return False
        connection.commands += 1
        connection.outbound.put_nowait(pb.StoreMessage(command=command))
        return True

    @contextmanager
    def talk(self) -> Iterator[Talk]:
        """A number for commands, and what agents answer to it."""
        talk = Talk(uuid.uuid4().hex)
        self._talks[talk.id] = talk
        try:
            yield talk
        finally:
            del self._talks[talk.id]

    def heard(self, connection: Connection, identity: str, message: pb.AgentMessage) -> None:
        """An agent answers; where nobody asked, nothing happens."""
        talk = self._talks.get(identity)
        if talk is not None:
            talk.heard(connection.agent, message)

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
