"""A window from a file into a store, as the segment of an agent that exists for this file only."""

from __future__ import annotations

from typing import Any

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Window
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.client import ANSWER_S, open_channel, told

AGENT = "import"


def put(target: str, window: Window, content: str) -> bool:
    """Store a window that was read from a file. ``content`` is the hash of the file: the same file is stored once.

    ``target`` is a database URL, or the HOST:PORT of a store. Gives False when the file was stored before.

    Raises:
        UnreachableError: no store answers.
        RoofwatchError: the store rejects the window, or fails.
    """
    envelope = codec.seal(codec.segment([window]), AGENT, content, 1)
    node = window.process.node
    message = pb.AgentHello(
        protocol=codec.PROTOCOL,
        agent=AGENT,
        boot=content,
        node=pb.Node(host=node.host, boot_id=node.boot_id, labels=dict(node.labels)),
    )
    status, reason = _to_database(target, envelope, message) if "://" in target else _send(target, envelope, message)
    if status == pb.REJECTED:
        raise RoofwatchError(f"the store rejects it: {reason}")
    return bool(status == pb.STORED)


def _to_database(url: str, envelope: pb.SegmentEnvelope, said: pb.AgentHello) -> tuple[Any, str]:
    from roofwatch.model.record import Node  # noqa: PLC0415
    from roofwatch.store import database  # noqa: PLC0415 - SQLAlchemy takes a third of a second
    from roofwatch.store.ingest import Writer  # noqa: PLC0415
    from roofwatch.store.load import Hello  # noqa: PLC0415
    from roofwatch.store.unpack import Unpacker  # noqa: PLC0415

    db = database.open(url)
    try:
        unpacked = Unpacker().unpack(envelope)
        writer = Writer(db)
        node = Node(said.node.host, said.node.boot_id, dict(said.node.labels))
        writer.submit(Hello(said.agent, said.boot, said.version, node)).result()
        outcome = writer.submit(unpacked).result()
        writer.close()
    finally:
        db.close()
    return outcome.status, outcome.reason


def _send(address: str, envelope: pb.SegmentEnvelope, said: pb.AgentHello) -> tuple[Any, str]:
    import grpc  # noqa: PLC0415 - a tenth of a second

    from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc  # noqa: PLC0415

    messages = iter((pb.AgentMessage(hello=said), pb.AgentMessage(segment=envelope)))
    with open_channel(address) as channel:
        try:
            for message in rpc.IngestStub(channel).Stream(messages, timeout=ANSWER_S):
                if message.WhichOneof("body") == "ack":
                    return message.ack.status, message.ack.reason
        except grpc.RpcError as error:
            raise told(error, address) from error
    raise RoofwatchError(f"the store at {address} hung up before it acknowledged: try again")
