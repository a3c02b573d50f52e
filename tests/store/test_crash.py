"""SIGKILL of the store in the middle of ingest: nothing acknowledged is lost, nothing is stored twice."""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from store_builders import (
    GEMM,
    NORM,
    RunningStore,
    count,
    hello_of,
    kernels,
    segment_of,
    start_store,
    stat,
    stored_uids,
    uid_of,
    window_of,
)

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc

KILLS = int(os.environ.get("ROOFWATCH_KILLS", "5"))


class Sender:
    """An agent with a spool: sends, forgets what is acknowledged, sends the rest again after every break."""

    def __init__(self, name: str, segments: int) -> None:
        self.name = name
        self.spool = {
            i: segment_of([self._window(i, k) for k in range(3)], i, agent=name) for i in range(1, segments + 1)
        }
        self.acked: set[int] = set()
        self.repeated = 0
        self.wrong: list[pb.Ack] = []

    def _window(self, number: int, part: int) -> object:
        kernels = [stat(GEMM, [1000 + number]), stat(NORM, [50, 60])]
        return window_of(f"{self.name}-{number}-{part}", kernels)

    def uids(self) -> set[str]:
        """Of everything it was given to send."""
        return {uid_of(f"{self.name}-{i}-{k}") for i in [*self.spool, *self.acked] for k in range(3)}

    def run(self, address: str) -> None:
        """One stream after the other until all is acknowledged."""
        while self.spool:
            try:
                with grpc.insecure_channel(address) as channel:
                    self._stream(rpc.IngestStub(channel))
            except grpc.RpcError:
                time.sleep(0.05)

    def _stream(self, stub: rpc.IngestStub) -> None:
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        waiting = dict(self.spool)

        def requests() -> Iterator[pb.AgentMessage]:
            yield hello_of(self.name)
            for envelope in waiting.values():
                yield pb.AgentMessage(segment=envelope)
                time.sleep(0.001)
            done.get()

        stream = stub.Stream(requests(), timeout=60)
        try:
            for message in stream:
                if message.WhichOneof("body") == "ack":
                    self._ack(message.ack)
                if not self.spool:
                    return
        finally:
            done.put(None)
            stream.cancel()

    def _ack(self, ack: pb.Ack) -> None:
        if ack.status == pb.DUPLICATE:
            self.repeated += 1
        elif ack.status != pb.STORED:
            self.wrong.append(ack)
        self.spool.pop(ack.id.sequence, None)
        self.acked.add(ack.id.sequence)


@pytest.mark.slow
def test_killed_store_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Three agents stream 150 segments of three windows each; the store is killed again and again at any moment."""
    store: RunningStore = start_store(tmp_path)
    senders = [Sender(f"agent-{i}", 150) for i in range(3)]
    expected = set().union(*(sender.uids() for sender in senders))
    threads = [threading.Thread(target=sender.run, args=(store.address,)) for sender in senders]
    for thread in threads:
        thread.start()
    moments = random.Random(2)
    for _ in range(KILLS):
        time.sleep(moments.uniform(0.02, 0.4))
        acked = [(sender.name, number) for sender in senders for number in list(sender.acked)]
        store.kill()
        stored = set(stored_uids(tmp_path / "store.db"))
        lost = [a for a in acked if not {uid_of(f"{a[0]}-{a[1]}-{k}") for k in range(3)} <= stored]
        assert lost == []
        store = start_store(tmp_path, store.port)
    for thread in threads:
        thread.join(60)
    code, _ = store.terminate()

    assert code == 0
    assert [sender.wrong for sender in senders] == [[], [], []]
    uids = stored_uids(tmp_path / "store.db")
    assert len(uids) == len(set(uids)) == 3 * 150 * 3
    assert set(uids) == expected
    assert count(tmp_path / "store.db", "segments") == 450
    assert kernels(tmp_path / "store.db") == 2 * 1350
    assert count(tmp_path / "store.db", "window_devices") == 1350
