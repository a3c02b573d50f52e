"""One simulated agent: it speaks the real protocol, keeps what is not acknowledged, and sends it again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version

from roofwatch.proto import channel as channels  # before grpc, which it keeps quiet

# isort: split
import grpc
import grpc.aio

from roofwatch.agent.uplink import OPTIONS, UNACKED_MOST
from roofwatch.cli.fleet.templates import Sent, Source, agent_of, host_of
from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.codec import PROTOCOL
from roofwatch.proto.trust import Material
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc

BACKOFF_S = (0.5, 5.0)
REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)  # a thousand agents are a thousand connections


@dataclass(slots=True)
class Tally:
    """What all agents of a run have seen."""

    sent: int = 0  # windows
    watched: list[Sent] = field(default_factory=list)  # those of the first ranks, in the order in which they ended
    by_node: dict[int, int] = field(default_factory=dict)  # windows acknowledged
    waits_s: list[float] = field(default_factory=list)  # of each segment, from its sealing to its acknowledgement
    stored: int = 0  # windows
    duplicate: int = 0
    rejected: int = 0
    reason: str = ""  # of the last rejection
    refused: str = ""  # why an agent may not connect
    connections: int = 0
    greeted: int = 0  # agents whose first stream stands


@dataclass(slots=True)
class _Waiting:
    envelope: pb.SegmentEnvelope
    sealed_s: float


class SimulatedAgent:
    """The agent of one node."""

    def __init__(self, node: int, source: Source, tally: Tally, material: Material) -> None:
        self._material = material
        self._node, self._source, self._tally = node, source, tally
        self._spool: OrderedDict[int, _Waiting] = OrderedDict()
        self._draw = random.Random(node)
        self._sequence = 0
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._greetings = 0

    @property
    def waiting(self) -> int:
        """Segments without an acknowledgement."""
        return len(self._spool)

    async def produce(self, until_s: float) -> None:
        """Seal a segment each interval, beginning somewhere in the first, until a moment of the monotonic clock."""
        interval_s = self._source.interval_ns / 1e9
        due = time.monotonic() + self._draw.uniform(0, interval_s)
        while due < until_s:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._sequence += 1
            sealed = time.perf_counter()
            envelope, windows = self._source.segment(self._node, self._sequence, time.time_ns())
            self._tally.sent += len(windows)
            self._tally.watched.append(windows[0])
            self._spool[self._sequence] = _Waiting(envelope, sealed)
            self._empty.clear()
            self._more.set()
            due += interval_s

    async def drained(self) -> None:
        """Wait until everything is acknowledged."""
        await self._empty.wait()

    async def run(self, address: str) -> None:
        """Keep a stream open until cancelled."""
        pause = BACKOFF_S[0]
        async with channels.open_aio(address, self._material, (*OPTIONS, *OWN_CONNECTION)) as channel:
            while True:
                greetings = self._greetings
                try:
                    await self._converse(rpc.IngestStub(channel))
                except grpc.aio.AioRpcError as error:
                    if error.code() in REFUSED:
                        self._tally.refused = error.details() or error.code().name
                except asyncio.InvalidStateError:
                    pass
                pause = BACKOFF_S[0] if self._greetings > greetings else min(BACKOFF_S[1], pause * 2)
                await asyncio.sleep(pause * self._draw.uniform(0.5, 1))

    async def _converse(self, stub: rpc.IngestStub) -> None:
        stream = stub.Stream(metadata=self._material.metadata)
        node = pb.Node(host=host_of(self._node), boot_id=f"{self._source.run}-{self._node}")
        hello = pb.AgentHello(
            protocol=PROTOCOL, agent=agent_of(self._source.run, self._node), boot=self._source.run,
            version=version("roofwatch"), node=node,
        )  # fmt: skip
        sending: asyncio.Task[None] | None = None
        try:
            await stream.write(pb.AgentMessage(hello=hello))
            while (message := await stream.read()) is not grpc.aio.EOF:
                if message.WhichOneof("body") == "hello":
                    self._tally.connections += 1
                    self._tally.greeted += not self._greetings
                    self._greetings += 1
                    sending = asyncio.create_task(self._send(stream.write))
                elif message.WhichOneof("body") == "ack":
                    self._acked(message.ack)
        finally:
            if sending is not None:
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await sending
            stream.cancel()

    async def _send(self, write: Callable[[pb.AgentMessage], Awaitable[None]]) -> None:
        on_their_way: set[int] = set()
        while True:
            self._more.clear()
            on_their_way &= self._spool.keys()
            for sequence in [s for s in self._spool if s not in on_their_way][: UNACKED_MOST - len(on_their_way)]:
                on_their_way.add(sequence)
                await write(pb.AgentMessage(segment=self._spool[sequence].envelope))
            await self._more.wait()

    def _acked(self, ack: pb.Ack) -> None:
        done = self._spool.pop(ack.id.sequence, None)
        if done is None:
            raise RoofwatchError(f"the store acknowledged segment {ack.id.sequence} twice, or one that was not sent")
        count, tally = done.envelope.windows, self._tally
        tally.waits_s.append(time.perf_counter() - done.sealed_s)
        if ack.status == pb.REJECTED:
            tally.rejected, tally.reason = tally.rejected + count, ack.reason
        else:
            tally.by_node[self._node] = tally.by_node.get(self._node, 0) + count
            if ack.status == pb.STORED:
                tally.stored += count
            else:
                tally.duplicate += count  # its first acknowledgement was lost on the way
        self._more.set()
        if not self._spool:
            self._empty.set()
