"""Peers as they were before windows could be asked for through the store, and one that does not tell the truth."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc

Answers = Callable[[pb.Command], pb.AgentMessage | None]
WINDOW = bytes(range(16))


def unknown(command: pb.Command) -> pb.AgentMessage:
    """What an agent says to a command that it does not know."""
    return pb.AgentMessage(result=pb.CommandResult(id=command.id, accepted=False, reason="unknown command"))


def liar(command: pb.Command) -> pb.AgentMessage | None:
    """An agent that says it keeps a trace, and gives other bytes."""
    kind = command.WhichOneof("body")
    if kind == "find_traces":
        told = pb.KeptTrace(window=WINDOW, format="kineto-json", size=1000, sha256=hashlib.sha256(bytes(1000)).digest())
        mine = [told] if WINDOW.hex().startswith(command.find_traces.window) else []
        return pb.AgentMessage(traces=pb.TraceList(id=command.id, traces=mine))
    if kind == "read_trace":
        part = pb.TracePart(id=command.id, offset=command.read_trace.offset, data=b"x" * 500)
        return pb.AgentMessage(part=part)
    return pb.AgentMessage(processes=pb.ProcessList(id=command.id))


FALSE = b"no trace at all"


def forger(windows: Sequence[bytes]) -> Answers:
    """An agent that tells of false traces of these windows, with their own hash."""

    def answer(command: pb.Command) -> pb.AgentMessage:
        if command.WhichOneof("body") == "read_trace":
            offset = command.read_trace.offset
            return pb.AgentMessage(part=pb.TracePart(id=command.id, offset=offset, data=FALSE[offset:]))
        if command.WhichOneof("body") != "find_traces":
            return liar(command)
        digest, begin = hashlib.sha256(FALSE).digest(), command.find_traces.window
        traces = [pb.KeptTrace(window=w, size=len(FALSE), sha256=digest) for w in windows if w.hex().startswith(begin)]
        return pb.AgentMessage(traces=pb.TraceList(id=command.id, traces=traces))

    return answer


@contextmanager
def agent(address: str, node: str, answers: Answers) -> Iterator[None]:
    """An agent's stream, which answers commands as told; over when the block is."""
    outgoing: queue.SimpleQueue[pb.AgentMessage | None] = queue.SimpleQueue()
    hello = pb.AgentHello(
        protocol=codec.PROTOCOL, agent=f"of {node}", boot="1", version="0.0.9", node=pb.Node(host=node, boot_id="b")
    )
    outgoing.put(pb.AgentMessage(hello=hello))
    with grpc.insecure_channel(address) as channel:
        stream = rpc.IngestStub(channel).Stream(iter(outgoing.get, None))
        assert next(stream).HasField("hello")

        def obey() -> None:
            try:
                for message in stream:
                    if message.HasField("command") and (answer := answers(message.command)) is not None:
                        outgoing.put(answer)
            except grpc.RpcError:
                return

        thread = threading.Thread(target=obey)
        thread.start()
        try:
            yield
        finally:
            stream.cancel()
            outgoing.put(None)
            thread.join(10)


class _OldQuery(rpc.QueryServicer):
    def Run(self, request: pb.QueryRequest, context: Any) -> pb.QueryResponse:  # noqa: N802
        del request, context
        return pb.QueryResponse(answer=b"{}")


@contextmanager
def store() -> Iterator[str]:
    """A store without the service of captures; its address."""
    server = grpc.server(ThreadPoolExecutor(2))
    rpc.add_QueryServicer_to_server(_OldQuery(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait(10)
