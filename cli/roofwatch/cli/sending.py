"""Windows on their way into a store or a database, from the command line."""

from __future__ import annotations

import queue
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

from roofwatch.cli import asking, folders, wire
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Node, Window
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import database
from roofwatch.store.config import DEFAULT_ADDRESS
from roofwatch.store.ingest import Writer
from roofwatch.store.load import Hello
from roofwatch.store.unpack import Unpacker

AGENT = "import"

Send = Callable[[Window], bool]  # gives whether it was new


@contextmanager
def target(*, store: str | None, db: str | None, node: str) -> Iterator[Send]:
    """Where windows go: each call returns once its window is on disk.

    Raises:
        UnreachableError: no store answers.
        RoofwatchError: the store or the database refused.
    """
    with (
        _database(str(db), node) if asking.uses_database(store, db) else _store(store or DEFAULT_ADDRESS, node) as send
    ):
        yield send


def sealed(window: Window, node: str) -> pb.SegmentEnvelope:
    """One window as a segment whose number is its content's hash: the same content is the same segment."""
    draft = codec.seal(codec.segment([window]), AGENT, node, 0)
    draft.id.sequence = int(window.uid[:8], 16) << 31 | zlib.crc32(draft.payload) >> 1
    return draft


def _verdict(status: pb.AckStatus, reason: str) -> bool:
    if status == pb.REJECTED:
        raise RoofwatchError(f"the store refuses it: {reason}")
    return status == pb.STORED


@contextmanager
def _database(url: str, node: str) -> Iterator[Send]:
    folders.check_database(url)
    opened = database.open(url)
    writer, unpacker = Writer(opened, alone=True), Unpacker()

    def send(window: Window) -> bool:
        outcome = writer.submit(unpacker.unpack(sealed(window, node))).result()
        return _verdict(outcome.status, outcome.reason)

    try:
        writer.submit(Hello(AGENT, node, version("roofwatch"), Node(node))).result()
        yield send
    finally:
        writer.close()
        opened.close()


@contextmanager
def _store(address: str, node: str) -> Iterator[Send]:
    outgoing: queue.SimpleQueue[pb.AgentMessage | None] = queue.SimpleQueue()
    greeting = pb.AgentHello(protocol=codec.PROTOCOL, agent=AGENT, boot=node, version=version("roofwatch"))
    greeting.node.host = node
    outgoing.put(pb.AgentMessage(hello=greeting))
    with wire.channel(address) as channel:
        replies = rpc.IngestStub(channel).Stream(iter(outgoing.get, None))

        def send(window: Window) -> bool:
            envelope = sealed(window, node)
            outgoing.put(pb.AgentMessage(segment=envelope))
            for reply in replies:
                if reply.WhichOneof("body") == "ack" and reply.ack.id == envelope.id:
                    return _verdict(reply.ack.status, reply.ack.reason)
            raise RoofwatchError(f"the store at {address} hung up before it said what became of the window")

        try:
            next(replies)
            yield send
        finally:
            outgoing.put(None)
