"""The gRPC services: streams of agents in, answers out."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import grpc

from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.model.record import Node
from roofwatch.proto.codec import PROTOCOL, WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.budget import Budget
from roofwatch.store.filter import Filter
from roofwatch.store.hub import Connection, Hub
from roofwatch.store.ingest import Writer
from roofwatch.store.load import Hello
from roofwatch.store.outcome import Outcome, rejected
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker

_log = logging.getLogger(__name__)


class IngestService(rpc.IngestServicer):  # type: ignore[misc]
    """One stream an agent: hello, then segments up, acknowledgements and commands down."""

    def __init__(self, writer: Writer, hub: Hub, draining: asyncio.Event) -> None:
        self._writer, self._hub, self._draining = writer, hub, draining
        self._budget = Budget()
        self._unpacker = Unpacker()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="roofwatch-unpack")

    async def Stream(  # noqa: N802 - gRPC's name
        self, requests: AsyncIterator[pb.AgentMessage], context: Any
    ) -> AsyncIterator[pb.StoreMessage]:
        """Serve one agent until it hangs up, or the store drains."""
        hello = await self._hello(requests, context)
        connection = self._hub.connect(hello.agent, hello.node.host)
        reader = asyncio.create_task(self._read(requests, connection))
        try:
            yield pb.StoreMessage(hello=pb.StoreHello(protocol=PROTOCOL, version=version("roofwatch")))
            async for message in _outbound(connection, reader):
                yield message
        except RoofwatchError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        finally:
            self._hub.disconnect(connection)
            reader.cancel()

    async def _hello(self, requests: AsyncIterator[pb.AgentMessage], context: Any) -> Hello:
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("body") != "hello":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "an agent says hello first")
        said = first.hello  # type: ignore[union-attr]
        if said.protocol != PROTOCOL:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the agent speaks protocol {said.protocol}, this store {PROTOCOL}: upgrade the older of the two",
            )
        if not said.agent or not said.boot or not said.node.host:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "hello without agent, boot or host")
        node = Node(said.node.host, said.node.boot_id, dict(said.node.labels))
        hello = Hello(said.agent, said.boot, said.version, node)
        taken = await self._budget.take(0)
        try:
            await asyncio.wrap_future(self._writer.submit(hello))
        except RoofwatchError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        finally:
            self._budget.put_back(taken)
        return hello

    async def _read(self, requests: AsyncIterator[pb.AgentMessage], connection: Connection) -> None:
        """Read the stream; every segment is on its way at once, and the budget bounds how many."""
        pending: set[asyncio.Task[None]] = set()
        async for message in _until(requests, self._draining):
            body = message.WhichOneof("body")
            if body == "segment":
                taken = await self._budget.take(max(message.segment.raw_bytes, len(message.segment.payload)))
                # Not a part of this task: a sender that hangs up does not take back what it sent.
                task = asyncio.create_task(self._segment(message.segment, taken, connection))
                pending.add(task)
                task.add_done_callback(pending.discard)
            elif body == "result":
                await self._hub.add_result(message.result)
        if pending:
            await asyncio.wait(pending)

    async def _segment(self, envelope: pb.SegmentEnvelope, taken: int, connection: Connection) -> None:
        try:
            outcome = await self._store(envelope)
        except RoofwatchError as error:
            connection.outbound.put_nowait(error)
            return
        finally:
            self._budget.put_back(taken)
        ack = pb.Ack(id=envelope.id, status=outcome.status, reason=outcome.reason)
        connection.outbound.put_nowait(pb.StoreMessage(ack=ack))

    async def _store(self, envelope: pb.SegmentEnvelope) -> Outcome:
        loop = asyncio.get_running_loop()
        try:
            unpacked = await loop.run_in_executor(self._pool, self._unpacker.unpack, envelope)
        except WireError as error:
            outcome = rejected(str(error))
        except MemoryError as error:
            raise RoofwatchError("the store is out of memory") from error
        except Exception as error:  # noqa: BLE001 - the reason is below
            # A fault of ours: sent again it would fail again and hold up all that comes after it.
            _log.exception("unpacking failed")
            outcome = rejected(f"the store failed on it: {error!r}")
        else:
            outcome = await asyncio.wrap_future(self._writer.submit(unpacked))
        if outcome.status == pb.REJECTED:
            _log.warning("segment %d of agent %r rejected: %s", envelope.id.sequence, envelope.id.agent, outcome.reason)
        return outcome


async def _until(requests: AsyncIterator[pb.AgentMessage], stop: asyncio.Event) -> AsyncIterator[pb.AgentMessage]:
    """The requests until the sender is done or the store drains."""
    stopped = asyncio.create_task(stop.wait())
    iterator = aiter(requests)
    try:
        while not stop.is_set():
            following = asyncio.ensure_future(anext(iterator))
            await asyncio.wait((following, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                return
            try:
                yield following.result()
            except StopAsyncIteration:
                return
    finally:
        stopped.cancel()


async def _outbound(connection: Connection, reader: asyncio.Task[None]) -> AsyncIterator[pb.StoreMessage]:
    """What goes down, until the reader has ended and everything it caused has been sent."""
    queue = connection.outbound
    while not (reader.done() and queue.empty()):
        following = asyncio.ensure_future(queue.get())
        await asyncio.wait((following, reader), return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            following.cancel()
            continue
        message = following.result()
        if isinstance(message, RoofwatchError):
            raise message
        if message.WhichOneof("body") == "command":
            connection.commands -= 1
        yield message


class QueryService(rpc.QueryServicer):  # type: ignore[misc]
    """Answers for the command line."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="roofwatch-query")

    async def Run(self, request: pb.QueryRequest, context: Any) -> pb.QueryResponse:  # noqa: N802 - gRPC's name
        """Answer one query as JSON."""
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(
                self._pool, self._queries.run, request.query, Filter.from_message(request.filter), request.limit
            )
        except UsageError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except RoofwatchError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        return pb.QueryResponse(answer=json.dumps(answer, allow_nan=False).encode())
