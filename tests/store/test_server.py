"""The store as a process: what agents and clients see of it on the wire."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from store_builders import (
    GEMM,
    NORM,
    PROGRAM,
    RunningStore,
    count,
    hello_of,
    kernels,
    segment_of,
    send,
    start_store,
    stat,
    stored_uids,
    uid_of,
    window_of,
)

from roofwatch.model.record import Window
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.unreadable import Unreadable


def small(name: str) -> Window:
    """A window of two kernels."""
    return window_of(name, [stat(GEMM, [1000, 2000], roof_ns=100.0), stat(NORM, [50])])


def query(address: str, name: str, limit: int = 0) -> dict[str, object]:
    """Ask the store."""
    with grpc.insecure_channel(address) as channel:
        response = rpc.QueryStub(channel).Run(pb.QueryRequest(query=name, limit=limit), timeout=30)
    answer: dict[str, object] = json.loads(response.answer)
    return answer


def test_acknowledged_is_stored_and_visible(store: RunningStore, tmp_path: Path) -> None:
    """Segments in, an ack for each, once; repeated ones are duplicates; the query sees what was acknowledged."""
    one, two = segment_of([small("a")], 1), segment_of([small("b"), small("c")], 2)
    acks = [reply.ack for reply in send(store.address, [one, two, one], 3)]
    by_status = sorted((ack.status, ack.id.sequence) for ack in acks)
    assert by_status == [(pb.STORED, 1), (pb.STORED, 2), (pb.DUPLICATE, 1)]
    assert sorted(stored_uids(tmp_path / "store.db")) == sorted(uid_of(name) for name in "abc")
    answer = query(store.address, "top")
    assert answer["coverage"]["windows"] == 3  # type: ignore[index]
    assert [row["calls"] for row in answer["rows"]] == [6, 3]  # type: ignore[attr-defined, index]


def test_broken_segment_leaves_the_rest_alone(store: RunningStore) -> None:
    """A wrong checksum and a hostile size are rejected with the reason; the good ones on the same stream are stored."""
    flipped, hostile = segment_of([small("b")], 2), segment_of([small("c")], 3)
    flipped.crc32 ^= 1
    hostile.raw_bytes = 1 << 40
    replies = send(store.address, [segment_of([small("a")], 1), flipped, hostile, segment_of([small("d")], 4)], 4)
    acks = {reply.ack.id.sequence: reply.ack for reply in replies}
    assert [acks[i].status for i in range(1, 5)] == [pb.STORED, pb.REJECTED, pb.REJECTED, pb.STORED]
    assert "checksum" in acks[2].reason
    assert f"segment of {1 << 40} bytes: the limit is" in acks[3].reason
    code, errors = store.terminate()
    assert code == 0
    assert len([line for line in errors.splitlines() if "rejected: " in line]) == 2


@pytest.mark.parametrize(
    ("first", "code", "words"),
    [
        (pb.AgentMessage(segment=pb.SegmentEnvelope()), grpc.StatusCode.FAILED_PRECONDITION, "says hello first"),
        (pb.AgentMessage(), grpc.StatusCode.FAILED_PRECONDITION, "says hello first"),
        (
            pb.AgentMessage(hello=pb.AgentHello(protocol=9, agent="a", boot="b", node=pb.Node(host="h"))),
            grpc.StatusCode.FAILED_PRECONDITION,
            "the agent speaks protocol 9, this store 1: upgrade the older of the two",
        ),
        (
            pb.AgentMessage(hello=pb.AgentHello(protocol=1, agent="a", boot="b")),
            grpc.StatusCode.INVALID_ARGUMENT,
            "hello without agent, boot or host",
        ),
    ],
)
def test_streams_that_begin_wrongly(
    store: RunningStore, first: pb.AgentMessage, code: grpc.StatusCode, words: str
) -> None:
    """A stream without a proper hello is closed, and told why."""
    with grpc.insecure_channel(store.address) as channel, pytest.raises(grpc.RpcError) as told:
        next(rpc.IngestStub(channel).Stream(iter([first]), timeout=10))
    assert told.value.code() == code  # type: ignore[attr-defined]
    assert words in told.value.details()  # type: ignore[attr-defined]


def test_wrong_queries_are_told(store: RunningStore) -> None:
    """What the asker did wrong is INVALID_ARGUMENT with the sentence."""
    with grpc.insecure_channel(store.address) as channel:
        stub = rpc.QueryStub(channel)
        for request, words in (
            (pb.QueryRequest(query="flop"), "there is no query 'flop'"),
            (pb.QueryRequest(query="top", filter=pb.Filter(process="x")), "'x' is no process"),
        ):
            with pytest.raises(grpc.RpcError) as told:
                stub.Run(request, timeout=10)
            assert told.value.code() == grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
            assert words in told.value.details()  # type: ignore[attr-defined]


GARBAGE = b"\xff\xff\xff"  # a tag that never ends


def test_what_is_no_protobuf_is_refused(store: RunningStore, tmp_path: Path) -> None:
    """INVALID_ARGUMENT on both services, one line in the log for all, and what came before on the stream is kept."""
    hello, segment = hello_of("a").SerializeToString(), segment_of([small("a")], 1)
    stream = [hello, pb.AgentMessage(segment=segment).SerializeToString(), GARBAGE]
    received: list[bytes] = []
    with grpc.insecure_channel(store.address) as channel:
        run, talk = channel.unary_unary("/roofwatch.v1.Query/Run"), channel.stream_stream("/roofwatch.v1.Ingest/Stream")
        for call in (
            *[lambda: run(GARBAGE, timeout=10)] * 5,
            lambda: list(talk(iter([GARBAGE]), timeout=10)),
            lambda: received.extend(talk(iter(stream), timeout=10)),
        ):
            with pytest.raises(grpc.RpcError) as told:
                call()
            assert told.value.code() == grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
            assert "cannot be read" in told.value.details()  # type: ignore[attr-defined]
    assert pb.StoreMessage.FromString(received[1]).ack.status == pb.STORED
    assert stored_uids(tmp_path / "store.db") == [uid_of("a")]
    code, errors = store.terminate()
    assert code == 0
    assert len([line for line in errors.splitlines() if "cannot be read" in line]) == 1
    assert "Traceback" not in errors


def test_a_line_a_minute_about_what_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """The next line counts what was refused in between."""
    now = [0.0]
    read = Unreadable(lambda: now[0]).tolerant(pb.QueryRequest.FromString)
    for at in (0.0, 1.0, 59.0, 60.0):
        now[0] = at
        assert read(GARBAGE) is None
    assert [message.split(", the last")[0] for message in caplog.messages] == [
        "messages refused that cannot be read: 1",
        "messages refused that cannot be read: 3",
    ]


def test_many_agents_at_once(store: RunningStore, tmp_path: Path) -> None:
    """Sixteen agents with twenty segments each, all streams open together: every window is stored once."""
    failures: list[BaseException] = []

    def agent(number: int) -> None:
        name = f"agent-{number}"
        segments = [segment_of([small(f"{name}-{i}")], i, agent=name) for i in range(1, 21)]
        try:
            acks = [reply.ack for reply in send(store.address, [hello_of(name), *segments][1:], 20)]
            assert {ack.status for ack in acks} == {pb.STORED}
        except BaseException as error:  # noqa: BLE001 - carried over to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=agent, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(set(stored_uids(tmp_path / "store.db"))) == 320
    assert kernels(tmp_path / "store.db") == 640


def test_sigterm_drains(store: RunningStore, tmp_path: Path) -> None:
    """With a stream open and segments on their way, SIGTERM ends the stream in order, exit 0, and the log is empty.

    Every segment that was acknowledged is there; the agent sees the stream's end and not a broken connection.
    """
    ended, acked = [], []

    def requests() -> Iterator[pb.AgentMessage]:
        yield hello_of()
        for i in range(1, 10_000):
            if ended:
                return
            yield pb.AgentMessage(segment=segment_of([small(f"w{i}")], i))
            time.sleep(0.002)

    def agent() -> None:
        with grpc.insecure_channel(store.address) as channel:
            stream = rpc.IngestStub(channel).Stream(requests(), timeout=60)
            acked.extend(m.ack.id.sequence for m in stream if m.WhichOneof("body") == "ack")
            ended.append(stream.code())

    thread = threading.Thread(target=agent)
    thread.start()
    deadline = time.monotonic() + 20
    while count(tmp_path / "store.db", "windows") < 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    code, errors = store.terminate()
    thread.join()
    assert code == 0
    assert errors.splitlines() == [f"listening on {store.address}, database sqlite:///{tmp_path}/store.db"]
    assert ended == [grpc.StatusCode.OK]
    uids = stored_uids(tmp_path / "store.db")
    assert len(acked) >= 20
    assert {uid_of(f"w{i}") for i in acked} <= set(uids)
    assert len(uids) == len(set(uids))
    assert not (tmp_path / "store.db-wal").exists()


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a store that is expected to refuse."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=30, check=False
    )


def test_port_in_use(store: RunningStore, tmp_path: Path) -> None:
    """A second store on the same port: one sentence, exit 1, and the first goes on serving."""
    done = serve(store.address, str(tmp_path / "other.db"), str(tmp_path / "other-port"))
    assert done.returncode == 1
    sentence = "the port is in use; stop what listens there, or choose another with --listen"
    assert done.stderr.splitlines() == [f"cannot listen on {store.address}: {sentence}"]
    assert not (tmp_path / "other-port").exists()
    assert query(store.address, "nodes")["rows"] == []


def test_port_of_a_stranger(tmp_path: Path) -> None:
    """The same when something else than a store listens there."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        done = serve(f"127.0.0.1:{port}", str(tmp_path / "store.db"), str(tmp_path / "port"))
    assert done.returncode == 1
    assert "the port is in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("listen", "database", "words"),
    [
        ("127.0.0.1:0", "/proc/none/store.db", "cannot use /proc/none for the database"),
        ("127.0.0.1:0", "mysql://x/y", "this version stores in SQLite, Postgres and ClickHouse"),
        ("0.0.0.0:0", "{tmp}/store.db", "can be reached from other machines in plain text: add --insecure to allow it"),
        ("no-such-host.invalid:1", "{tmp}/store.db", "in plain text"),
        ("192.0.2.1:0", "{tmp}/store.db", "in plain text"),
        ("127.0.0.1", "{tmp}/store.db", "is not an address"),
    ],
)
def test_refusals_are_one_sentence(tmp_path: Path, listen: str, database: str, words: str) -> None:
    """What cannot be served is told on one line, without a traceback."""
    done = serve(listen, database.format(tmp=tmp_path), str(tmp_path / "port"))
    assert done.returncode != 0
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_newer_database_is_not_served(tmp_path: Path) -> None:
    """Exit 1 and one sentence; the port is never opened."""
    start_store(tmp_path).terminate()
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    connection.close()
    done = serve("127.0.0.1:0", str(tmp_path / "store.db"), str(tmp_path / "port-2"))
    assert done.returncode == 1
    assert "newer version of Roofwatch (schema 0999" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_client_that_hangs_up_is_forgotten(store: RunningStore, tmp_path: Path) -> None:
    """A sender that vanishes right after sending loses nothing and disturbs nobody."""
    for i in range(1, 6):
        channel = grpc.insecure_channel(store.address)
        stream = rpc.IngestStub(channel).Stream(
            iter([hello_of(), pb.AgentMessage(segment=segment_of([small(f"w{i}")], i))]), timeout=10
        )
        next(stream)
        stream.cancel()
        channel.close()
    acks = send(store.address, [segment_of([small("last")], 99)], 1)
    assert acks[0].ack.status == pb.STORED
    assert uid_of("last") in stored_uids(tmp_path / "store.db")
    assert store.terminate() == (0, f"listening on {store.address}, database sqlite:///{tmp_path}/store.db\n")


def test_garbage_on_the_port(store: RunningStore) -> None:
    """Bytes that are not HTTP/2 are hung up on; the store goes on."""
    with socket.create_connection(("127.0.0.1", store.port)) as stranger:
        stranger.sendall(os.urandom(4096))
        stranger.settimeout(10)
        try:
            while stranger.recv(4096):
                pass
        except ConnectionError:
            pass
    assert query(store.address, "windows")["rows"] == []
