"""What a store believes of agents that answer, and how much of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import grpc
import old_peers
import pytest
from capture_site import Site

from roofwatch.cli import controlling
from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import control, database
from roofwatch.store.hub import ANSWERS, ANSWERS_BYTES, COMMANDS, Connection, Hub
from roofwatch.store.whose import Whose

FOREIGN = f"{7:016x}"


def outcome(identity: str, detail: str = "") -> pb.AgentMessage:
    """What an agent says of a process."""
    told = pb.WindowOutcome(id=identity, process=FOREIGN, outcome=pb.TAKEN, detail=detail)
    return pb.AgentMessage(outcome=told)


def test_only_who_was_asked_is_heard_and_not_without_end() -> None:
    """An agent that nobody asked, a number that nobody gave, and more than is kept: by count and by bytes."""

    async def main() -> None:
        hub = Hub()
        asked, other = hub.connect("a", "host-a", "1"), hub.connect("b", "host-b", "1")
        with hub.talk() as talk:
            talk.asked.add("a")
            hub.heard(other, talk.id, outcome(talk.id))
            hub.heard(asked, "another number", outcome(talk.id))
            assert await talk.next(0.01) is None
            for _ in range(ANSWERS + 5):
                hub.heard(asked, talk.id, outcome(talk.id))
            assert talk.left_out == 5
            for _ in range(ANSWERS):
                assert (await talk.next(1.0) or ("",))[0] == "a"
            large = outcome(talk.id, "x" * (ANSWERS_BYTES // 4))
            for _ in range(10):
                hub.heard(asked, talk.id, large)
            assert talk.left_out == 5 + 7
        hub.heard(asked, talk.id, outcome(talk.id))  # it is over: nothing happens

    asyncio.run(main())


def test_an_agent_speaks_of_its_own_processes_only(site: Site) -> None:
    """Two agents have a rank each and are asked; one answers for the other's: it is not believed. Texts are cut."""

    def rank(number: int, command: pb.Command) -> pb.AgentMessage | None:
        if command.WhichOneof("body") != "find_processes":
            return outcome(command.id) if number else None
        mine = pb.FoundProcess(
            process=f"{7 + number:016x}",
            job="j",
            model="m" * 5000,
            rank=number,
            world_size=2,
            steps=-1,
            step_ns=-1,
            windows=1,
        )
        return pb.AgentMessage(processes=pb.ProcessList(id=command.id, processes=[mine]))

    honest, meddling = (old_peers.agent(site.address, f"node-{n}", partial(rank, n)) for n in range(2))
    with honest, meddling:
        answer = site.json("capture", "--job", "j", "--all-ranks", "--timeout", "1s", code=1)
    assert [(row["node"], row["outcome"], row["reason"], row["window"]) for row in answer["rows"]] == [
        ("node-0", "timed_out", "no_answer", None), ("node-1", "timed_out", "no_answer", None),
    ]  # fmt: skip
    assert [len(row["model"]) for row in answer["rows"]] == [300, 300]


def lone(number: int) -> pb.FoundProcess:
    """A process of no job."""
    return pb.FoundProcess(
        process=f"{number:016x}", pid=number, model="lone", rank=-1, world_size=-1, steps=-1, step_ns=-1
    )


def told(command: pb.Command, processes: list[pb.FoundProcess], outcome: pb.Outcome | None) -> list[pb.AgentMessage]:
    """An agent's answers: these processes, and this of each that it is asked for."""
    if command.WhichOneof("body") == "find_processes":
        return [pb.AgentMessage(processes=pb.ProcessList(id=command.id, processes=processes))]
    mine = command.take_window.processes if outcome is not None else ()
    return [pb.AgentMessage(outcome=pb.WindowOutcome(id=command.id, process=p, outcome=outcome)) for p in mine]


def test_two_processes_of_one_id_are_two(site: Site) -> None:
    """An agent claims the id of another node's process, and that a window of it was taken."""
    honest = old_peers.agent(site.address, "node-0", lambda c: next(iter(told(c, [lone(7)], None)), None))
    meddling = old_peers.agent(site.address, "node-1", lambda c: next(iter(told(c, [lone(7)] * 2, pb.TAKEN)), None))
    with honest, meddling:
        answer = site.json("capture", "--model", "lone", "--timeout", "1s", code=1)
    assert [(row["node"], row["outcome"]) for row in answer["rows"]] == [("node-0", "timed_out"), ("node-1", "taken")]


def test_an_agent_of_more_jobs_than_wait_for_it_gets_them_all(site: Site) -> None:
    """Each process alone is an order of its own, and 64 wait for an agent at most."""
    many = [lone(100 + number) for number in range(150)]
    with old_peers.agent(site.address, "node-0", lambda c: next(iter(told(c, many, pb.TAKEN)), None)):
        answer = site.json("capture", "--model", "lone", "--timeout", "5s")
    assert [row["outcome"] for row in answer["rows"]] == ["taken"] * 150


def test_what_an_agent_has_taken_of_its_orders_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One does not read what waits for it: of 70 orders it got 64; those are told as they end, six were never sent."""
    monkeypatch.setattr(control, "SEND_WITHIN_S", 0.2)
    hub = Hub()
    service = control.ControlService(hub, Whose(database.open(str(tmp_path / "store.db"))))
    many = [lone(100 + number) for number in range(70)]

    async def slow(connection: Connection) -> None:
        find = (await connection.outbound.get()).command
        connection.commands -= 1
        for message in told(find, many, None):
            hub.heard(connection, find.id, message)
        await asyncio.sleep(0.5)
        while not connection.outbound.empty():
            order = connection.outbound.get_nowait().command
            for message in told(order, many, pb.TAKEN):
                hub.heard(connection, order.id, message)

    async def main() -> list[pb.WindowOutcome]:
        reading = asyncio.create_task(slow(hub.connect("a", "host", "1")))
        request = pb.CaptureRequest(which=pb.FindProcesses(model="lone"), steps=1, within_ms=5000)
        events = [event async for event in service.Capture(request, None)]
        await reading
        return [event.outcome for event in events if event.HasField("outcome")]

    found = {told.process: (told.outcome, told.reason) for told in asyncio.run(main())}
    names = [process.process for process in many]
    assert {found[name] for name in names[:COMMANDS]} == {(pb.TAKEN, "")}
    assert {found[name] for name in names[COMMANDS:]} == {(pb.REFUSED, "agent_busy")}


def test_agents_that_leave_out_more_than_can_be_counted(site: Site) -> None:
    """Two say that they keep four billion more than they list: that is as many as are told, and the list comes."""

    def boast(command: pb.Command) -> pb.AgentMessage:
        return pb.AgentMessage(traces=pb.TraceList(id=command.id, left_out=(1 << 32) - 1))

    with old_peers.agent(site.address, "node-0", boast), old_peers.agent(site.address, "node-1", boast):
        done = site.call("trace", "list")
    assert (done.returncode, "4294967295 more are kept than agents list" in done.stderr) == (4, True), done.stderr


def test_what_goes_to_every_agent_is_short(site: Site) -> None:
    """Who may ask cannot have megabytes sent to each node of a fleet."""
    huge = pb.CaptureRequest(which=pb.FindProcesses(job="j" * 5000), steps=1, within_ms=1000)
    with grpc.insecure_channel(site.address) as channel:
        stub = rpc.ControlStub(channel)
        for call, asked, told in (
            (stub.GetTrace, pb.GetTraceRequest(window=bytes(17)), "a window's id has 16 bytes, not 17"),
            (stub.Capture, huge, "which processes has 5003 bytes, and at most 4096"),
        ):
            with pytest.raises(grpc.RpcError, match=told) as refused:
                list(call(asked, timeout=10))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_store_that_stops_waits_for_no_window(site: Site) -> None:
    """The last test here: while an agent that was asked is silent the store is told to stop, and says so."""
    asked = threading.Event()

    def silent(command: pb.Command) -> pb.AgentMessage | None:
        if command.WhichOneof("body") == "find_processes":
            mine = pb.FoundProcess(process=FOREIGN, pid=1, job="j", rank=-1, world_size=-1, steps=-1, step_ns=-1)
            return pb.AgentMessage(processes=pb.ProcessList(id=command.id, processes=[mine]))
        asked.set()
        return None

    words = (sys.executable, "-m", "roofwatch.cli.main", "capture", "--job", "j", "--store", site.address)
    with old_peers.agent(site.address, "node", silent):
        with subprocess.Popen(words, env=site.env, stderr=subprocess.PIPE, text=True) as capture:
            assert asked.wait(30)
            site.started[0].terminate()
            _, told = capture.communicate(timeout=30)
        assert site.started[0].wait(30) == 0
    assert capture.returncode == 3
    assert told == "roofwatch: the store is stopping: what was asked of agents goes on, and nobody waits for it.\n"


def test_a_store_that_sends_without_end_fills_no_disk() -> None:
    """Of a trace of ten bytes, sent for ever four at a time, eight are written."""
    four = pb.TraceChunk(data=b"four")
    written: list[bytes] = []
    chunks = chain([pb.TraceChunk(head=pb.KeptTrace(size=10))], repeat(four))
    with pytest.raises(RoofwatchError, match="came damaged"):
        controlling._written(chunks, written.append, lambda *_: None)
    assert written == [b"four", b"four"]
