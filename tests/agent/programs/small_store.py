"""A store of a hundred lines: each segment becomes a file, synced, and is acked after that.

Arguments: folder, port, then ``delay=S`` (before each ack), ``die=N`` (after committing N segments, before their acks),
``reject`` (all), ``silent`` (no ack ever), ``command=TEXT`` (a protobuf Command in text form, sent after the greeting).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import text_format

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc


class Store(roofwatch_pb2_grpc.IngestServicer):
    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        self.folder = folder
        self.options = options
        self.here = 0
        self.known = {self._key(pb.SegmentEnvelope.FromString(p.read_bytes())) for p in folder.glob("*.segment")}
        self.count = len(list(folder.glob("*.segment")))

    @staticmethod
    def _key(envelope: pb.SegmentEnvelope) -> bytes:
        return envelope.id.SerializeToString(deterministic=True)

    async def Stream(self, requests: AsyncIterator[pb.AgentMessage], context: Any) -> AsyncIterator[pb.StoreMessage]:  # noqa: N802, ARG002
        async for message in requests:
            kind = message.WhichOneof("body")
            if kind == "hello":
                (self.folder / "hello").write_bytes(message.hello.SerializeToString())
                yield pb.StoreMessage(hello=pb.StoreHello(protocol=1, version="small"))
                if "command" in self.options:
                    yield pb.StoreMessage(command=text_format.Parse(self.options["command"], pb.Command()))
            elif kind == "result":
                with (self.folder / "results").open("a") as out:
                    out.write(text_format.MessageToString(message.result, as_one_line=True) + "\n")
            elif kind == "segment":
                ack = await self._commit(message.segment)
                if ack is not None:
                    yield pb.StoreMessage(ack=ack)

    async def _commit(self, envelope: pb.SegmentEnvelope) -> pb.Ack | None:
        if "reject" in self.options:
            return pb.Ack(id=envelope.id, status=pb.REJECTED, reason="a test")
        status = pb.DUPLICATE if self._key(envelope) in self.known else pb.STORED
        self.known.add(self._key(envelope))
        self.count += 1
        path = self.folder / f"{self.count}.part"
        with path.open("wb") as out:
            out.write(envelope.SerializeToString())
            out.flush()
            os.fsync(out.fileno())
        path.rename(path.with_suffix(".segment"))
        self.here += 1
        if self.here >= int(self.options.get("die", sys.maxsize)):
            os._exit(9)
        await asyncio.sleep(float(self.options.get("delay", 0)))
        return None if "silent" in self.options else pb.Ack(id=envelope.id, status=status)


async def main() -> None:
    """Serve until killed."""
    folder, port, *words = sys.argv[1:]
    server = grpc.aio.server()
    store = Store(Path(folder), {word.partition("=")[0]: word.partition("=")[2] for word in words})
    roofwatch_pb2_grpc.add_IngestServicer_to_server(store, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
