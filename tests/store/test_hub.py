"""Commands on their way down to agents, over real streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import fresh
import grpc
import pytest
from store_builders import hello_of

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import hub
from roofwatch.store.hub import COMMANDS
from roofwatch.store.server import Store


def command_of(name: str) -> pb.Command:
    """Take a window now."""
    return pb.Command(id=name, take_window=pb.TakeWindow(pids=[7], steps=2))


async def agent(address: str, name: str, commands: int) -> list[pb.Command]:
    """An agent that carries out so many commands and says so."""
    received: list[pb.Command] = []
    outgoing: asyncio.Queue[pb.AgentMessage | None] = asyncio.Queue()
    outgoing.put_nowait(hello_of(name, host=f"host-of-{name}"))

    async def requests() -> AsyncIterator[pb.AgentMessage]:
        while (message := await outgoing.get()) is not None:
            yield message

    async with grpc.aio.insecure_channel(address) as channel:
        async for message in rpc.IngestStub(channel).Stream(requests(), timeout=20):
            if message.WhichOneof("body") == "command":
                received.append(message.command)
                result = pb.CommandResult(id=message.command.id, pid=7, accepted=True)
                outgoing.put_nowait(pb.AgentMessage(result=result))
                if len(received) == commands:
                    outgoing.put_nowait(None)
    return received


def test_commands_reach_their_agent_and_answers_come_back(tmp_path: Path) -> None:
    """A command goes to the agent that is meant and to no other; its result can be waited for."""

    async def scenario() -> None:
        store = Store(fresh.opened(tmp_path / "store.db"))
        try:
            port = await store.start("127.0.0.1", 0)
            address = f"127.0.0.1:{port}"
            assert store.hub.push("a", command_of("too early")) is False
            agents = [asyncio.create_task(agent(address, name, n)) for name, n in (("a", 2), ("b", 1))]
            async with asyncio.timeout(10):
                while len(store.hub.agents()) < 2:  # noqa: ASYNC110 - nothing tells who comes and goes
                    await asyncio.sleep(0.01)
            assert store.hub.agents("host-of-b") == ["b"]
            pushed = [store.hub.push(name, command_of(f"{name}{i}")) for name, i in (("a", 1), ("b", 1), ("a", 2))]
            results = [await store.hub.results(name, 1, 10.0) for name in ("a1", "a2", "b1")]
            received = await asyncio.gather(*agents)
            assert pushed == [True] * 3
            assert [[c.id for c in part] for part in received] == [["a1", "a2"], ["b1"]]
            assert received[0][0] == command_of("a1")
            assert [(len(r), r[0].pid, r[0].accepted) for r in results] == [(1, 7, True)] * 3
            async with asyncio.timeout(10):
                while store.hub.agents():  # noqa: ASYNC110 - nothing tells who comes and goes
                    await asyncio.sleep(0.01)
            assert await store.hub.results("nobody answers", 1, 0.05) == []
        finally:
            await store.stop(1.0)

    asyncio.run(scenario())


def test_agent_that_does_not_keep_up_gets_no_more(tmp_path: Path) -> None:
    """Commands for one agent are bounded: the one too many is refused, not kept for ever."""

    async def scenario() -> list[bool]:
        store = Store(fresh.opened(tmp_path / "store.db"))
        try:
            store.hub.connect("a", "host")  # nobody reads what is pushed
            return [store.hub.push("a", command_of(str(i))) for i in range(COMMANDS + 2)]
        finally:
            await store.stop(1.0)

    assert asyncio.run(scenario()) == [True] * COMMANDS + [False] * 2


def test_who_takes_no_acknowledgements_is_read_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that only sends fills no memory: so many are read and no more; once it takes them, all are there."""
    monkeypatch.setattr(hub, "ACKS", 64)
    monkeypatch.setattr(logging.getLogger("roofwatch.store.service"), "disabled", True)  # a line a rejection
    identity = pb.SegmentId(agent="a" * 10_000, boot="b", sequence=1)  # told again in each acknowledgement
    junk = pb.AgentMessage(segment=pb.SegmentEnvelope(id=identity, payload=b"x"))

    async def scenario() -> tuple[int, int]:
        store = Store(fresh.opened(tmp_path / "store.db"))
        port = await store.start("127.0.0.1", 0)
        most = sent = 0
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stream = rpc.IngestStub(channel).Stream(timeout=120)
            await stream.write(hello_of("a"))
            assert (await stream.read()).WhichOneof("body") == "hello"
            connection = store.hub.of("a")
            assert connection is not None
            writing = asyncio.ensure_future(stream.write(junk))
            while (await asyncio.wait([writing], timeout=1))[0] or not connection.room.locked():
                most = max(most, connection.outbound.qsize())
                if writing.done():
                    sent, writing = sent + 1, asyncio.ensure_future(stream.write(junk))
            for _ in range(sent + 1):  # and the one that is on its way
                assert (await stream.read()).ack.status == pb.REJECTED
            await writing
            stream.cancel()
        await store.stop(1.0)
        return most, sent

    most, sent = asyncio.run(scenario())
    assert 0 < most <= 64 < sent
