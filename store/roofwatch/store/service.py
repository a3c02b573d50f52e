"""The ingest service: streams of agents in. Answers go out by ``query_service.py``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import grpc

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Node
from roofwatch.proto.codec import PROTOCOL, WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.access import Caller, Refusal, Why
from roofwatch.store.bridge import Bridge
from roofwatch.store.budget import Budget
from roofwatch.store.checks import check_texts
from roofwatch.store.gate import Gate, calling
from roofwatch.store.hub import Connection, Hub
from roofwatch.store.ingest import Writer
from roofwatch.store.load import Hello
from roofwatch.store.metrics import Metrics
from roofwatch.store.outcome import Outcome, rejected
from roofwatch.store.proof import Proofs
from roofwatch.store.streams import CHANGED, RevokedError, Streams
from roofwatch.store.unpack import Unpacked, Unpacker
from roofwatch.store.unreadable import REASON, refuse_unreadable

HELLO_WITHIN_S = 10.0  # from the call; who says nothing holds no stream open
ANSWERS = ("processes", "outcome", "traces", "part")  # to commands
MOST_HOST = 253  # characters of a node's name that a refusal repeats
_log = logging.getLogger(__name__)


class IngestService(rpc.IngestServicer):  # type: ignore[misc]
    """One stream an agent: hello, then segments up, acknowledgements and commands down."""

    def __init__(self, writer: Writer, hub: Hub, metrics: Metrics, gate: Gate) -> None:
        self._writer, self._hub, self._metrics, self._gate = writer, hub, metrics, gate
        self._budget = Budget()
        metrics.watch(self._budget, hub)
        self._unpacker, self._proofs = Unpacker(), Proofs()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="roofwatch-unpack")
        self._bridge = Bridge()
        self._readers: set[asyncio.Task[None]] = set()
        self._streams = Streams(gate)
        self._open = 0  # streams
        self._ended = asyncio.Condition()
        self._draining = False

    async def drain(self, within_s: float) -> None:
        """Read no more from any stream; each ends once what it sent is acknowledged. Waits for that, but no longer."""
        self._draining = True
        for reader in self._readers:
            reader.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._ended:
                await self._ended.wait_for(lambda: not self._open)

    def recheck(self, now_unix_s: float, *, entries: bool, certificates: bool) -> None:
        """End the streams of callers that may no longer do what they were admitted for.

        Looks at the time always, at rights when the entries changed; a new CA of clients asks all of them again.
        """
        self._streams.recheck(now_unix_s, entries=entries, certificates=certificates)

    async def Stream(  # noqa: N802 - gRPC's name
        self, requests: AsyncIterator[pb.AgentMessage | None], context: Any
    ) -> AsyncIterator[pb.StoreMessage]:
        """Serve one agent until it hangs up, or the store drains."""
        self._open += 1
        try:
            async for message in self._serve(requests, context):
                yield message
        finally:
            self._open -= 1
            async with self._ended:
                self._ended.notify_all()

    async def _serve(
        self, requests: AsyncIterator[pb.AgentMessage | None], context: Any
    ) -> AsyncIterator[pb.StoreMessage]:
        clients = self._streams.clients
        hello = await self._hello(requests, context)
        if self._draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the store is stopping")
        caller, shown = calling()
        # Whom nobody looked at while it said hello: it was admitted by what held before. No await from here to add.
        if not self._streams.stands(caller, shown, clients):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, CHANGED)
        connection = self._hub.connect(hello.agent, hello.node.host, hello.boot)
        connection.caller, connection.shown = caller, shown
        reader = asyncio.create_task(self._read(requests, connection))
        self._streams.add(connection, reader)
        self._readers.add(reader)
        reader.add_done_callback(self._forget)
        try:
            yield pb.StoreMessage(hello=pb.StoreHello(protocol=PROTOCOL, version=version("roofwatch")))
            async for message in _outbound(connection):
                yield message
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except RevokedError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        except RoofwatchError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        finally:
            self._hub.disconnect(connection)
            self._streams.remove(connection)

    def _forget(self, reader: asyncio.Task[None]) -> None:
        self._readers.discard(reader)
        if not reader.cancelled():
            reader.exception()  # a broken connection; the stream has seen it too

    async def _hello(self, requests: AsyncIterator[pb.AgentMessage | None], context: Any) -> Hello:
        try:
            async with asyncio.timeout(HELLO_WITHIN_S):
                first = await anext(aiter(requests), pb.AgentMessage())
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {HELLO_WITHIN_S:.0f} s")
        if first is None:
            await refuse_unreadable(context)
        if first.WhichOneof("body") != "hello":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "an agent says hello first")
        said = first.hello
        if said.protocol != PROTOCOL:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the agent speaks protocol {said.protocol}, this store {PROTOCOL}: upgrade the older of the two",
            )
        if not said.agent or not said.boot or not said.node.host:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "hello without agent, boot or host")
        labels = dict(said.node.labels)
        try:
            check_texts(
                said.agent, said.boot, said.version, said.node.host, said.node.boot_id, *labels, *labels.values()
            )
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"hello with {error}")
        caller, _ = calling()
        if not caller.may_write(said.node.host):
            await self._gate.refuse(_stranger(caller, said.node.host), context)
        node = Node(said.node.host, said.node.boot_id, labels)
        hello = Hello(said.agent, said.boot, said.version, node)
        taken = await self._budget.take(0)
        try:
            await asyncio.wrap_future(self._writer.submit(hello))
        except RoofwatchError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        finally:
            self._budget.put_back(taken)
        return hello

    async def _read(self, requests: AsyncIterator[pb.AgentMessage | None], connection: Connection) -> None:
        """Read the stream; every segment is on its way at once, and the budget bounds how many.

        An agent that does not take its acknowledgements is read no more once ``ACKS`` of them wait for it.
        """
        pending: set[asyncio.Task[None]] = set()
        unreadable: WireError | None = None
        try:
            async for message in requests:
                if message is None:
                    unreadable = WireError(REASON)
                    break
                body = message.WhichOneof("body")
                if body == "segment":
                    await connection.room.acquire()
                    taken = await self._budget.take(max(message.segment.raw_bytes, len(message.segment.payload)))
                    # Not a part of this task: a sender that hangs up does not take back what it sent.
                    task = asyncio.create_task(self._segment(message.segment, taken, connection))
                    pending.add(task)
                    task.add_done_callback(pending.discard)
                elif body == "result":
                    await self._hub.add_result(message.result)
                    self._hub.heard(connection, message.result.id, message)
                elif body in ANSWERS:
                    self._hub.heard(connection, getattr(message, body).id, message)
        finally:
            if pending:
                await asyncio.wait(pending)
            connection.outbound.put_nowait(unreadable)

    async def _segment(self, envelope: pb.SegmentEnvelope, taken: int, connection: Connection) -> None:
        try:
            outcome = await self._store(envelope, connection)
        except RoofwatchError as error:
            connection.outbound.put_nowait(error)
            return
        finally:
            self._budget.put_back(taken)
        ack = pb.Ack(id=envelope.id, status=outcome.status, reason=outcome.reason)
        connection.outbound.put_nowait(pb.StoreMessage(ack=ack))

    async def _store(self, envelope: pb.SegmentEnvelope, connection: Connection) -> Outcome:
        unpacked: Unpacked | None = None
        try:
            unpacked = await self._bridge.result(self._pool.submit(self._unpacker.unpack, envelope))
        except WireError as error:
            outcome = rejected(str(error))
        except MemoryError as error:
            raise RoofwatchError("the store is out of memory") from error
        except Exception as error:  # noqa: BLE001 - the reason is below
            # A fault of ours: sent again it would fail again and hold up all that comes after it.
            _log.exception("unpacking failed")
            outcome = rejected(f"the store failed on it: {error!r}")
        else:
            foreign = _foreign(unpacked, connection, self._proofs)
            if foreign is not None:
                self._gate.count(foreign)
            outcome = rejected(foreign.told) if foreign is not None else await self._commit(unpacked)
        self._metrics.received(unpacked, outcome)
        if outcome.status == pb.REJECTED:
            _log.warning("segment %d of agent %r rejected: %s", envelope.id.sequence, envelope.id.agent, outcome.reason)
        return outcome

    async def _commit(self, unpacked: Unpacked) -> Outcome:
        try:
            return await self._bridge.result(self._writer.submit(unpacked))
        except RoofwatchError:
            self._metrics.received(unpacked, None)
            raise


def _stranger(caller: Caller, host: str) -> Refusal:
    return Refusal(Why.NODE, f"'{caller.name}' may not send records of node '{host[:MOST_HOST]}'")


def _foreign(unpacked: Unpacked, connection: Connection, proofs: Proofs) -> Refusal | None:
    """Why a segment is not its sender's to send: a record of another node, of another agent, or a roof made up."""
    caller = connection.caller
    if caller.nodes is None:
        return None
    if unpacked.agent != connection.agent:
        return Refusal(Why.NODE, f"'{caller.name}' may not send segments of another agent")
    hosts = {w.window.process.node.host for w in unpacked.windows}
    hosts |= {state.process.node.host for _, state in unpacked.states}
    for host in sorted(hosts):
        if not caller.may_write(host):
            return _stranger(caller, host)
    doubt = proofs.doubt(unpacked)
    return None if doubt is None else Refusal(Why.ROOF, doubt)


async def _outbound(connection: Connection) -> AsyncIterator[pb.StoreMessage]:
    """What goes down, until the end of the stream."""
    while (message := await connection.outbound.get()) is not None:
        if isinstance(message, RoofwatchError):
            raise message
        if message.WhichOneof("body") == "command":
            connection.commands -= 1
        yield message
        if message.WhichOneof("body") == "ack":
            connection.room.release()
