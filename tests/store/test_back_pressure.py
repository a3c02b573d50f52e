"""What lies between the wire and a database that is busy is bounded: whoever sends more waits, and nothing is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import fresh
import grpc
import pytest
from store_builders import GEMM, hello_of, process_of, segment_of, stat, stored_uids, uid_of, window_of

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import service
from roofwatch.store.budget import Budget
from roofwatch.store.server import Store

MOST = 5  # segments that may be in flight
LABELS = {f"k{i}": "".join(chr(0x4E00 + (i * 7919 + j * j) % 20_000) for j in range(500)) for i in range(12)}


def message(number: int) -> pb.AgentMessage:
    """A segment of some kilobytes, so that what gRPC itself takes ahead is few of them."""
    window = window_of(f"w{number}", [stat(GEMM, [1000])], process=process_of(labels=LABELS))
    return pb.AgentMessage(segment=segment_of([window], number))


@pytest.mark.parametrize("by", ["number", "bytes"])
def test_a_busy_database_makes_senders_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Somebody holds the database: five are read and the sender stands still; then all it sent is acknowledged."""
    size = message(1).segment.raw_bytes
    budget = Budget(limit_count=MOST) if by == "number" else Budget(limit_bytes=MOST * size + size // 2)
    monkeypatch.setattr(service, "Budget", lambda: budget)
    file = tmp_path / "store.db"

    async def scenario() -> tuple[int, int]:
        store = Store(fresh.opened(file))
        port = await store.start("127.0.0.1", 0)
        most = sent = 0
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stream = rpc.IngestStub(channel).Stream(timeout=60)
            await stream.write(hello_of())
            assert (await stream.read()).WhichOneof("body") == "hello"
            with closing(sqlite3.connect(file, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                writing = asyncio.ensure_future(stream.write(message(1)))
                while (await asyncio.wait([writing], timeout=0.5))[0]:
                    sent += 1
                    most = max(most, budget.used_count)
                    writing = asyncio.ensure_future(stream.write(message(sent + 1)))
                other.execute("ROLLBACK")
            for _ in range(sent + 1):  # and the one that waits to be written
                assert (await stream.read()).ack.status == pb.STORED
            await writing
            await stream.done_writing()
        await store.stop(1.0)
        return most, sent + 1

    most, sent = asyncio.run(scenario())
    assert most == MOST < sent
    assert (budget.used_count, budget.used_bytes) == (0, 0)
    assert sorted(stored_uids(file)) == sorted(uid_of(f"w{i + 1}") for i in range(sent))
