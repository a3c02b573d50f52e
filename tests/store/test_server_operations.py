"""What those who run a store see of it: health, metrics, reflection, and how it leaves."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from store_builders import GEMM, NORM, RunningStore, hello_of, segment_of, send, stat, stored_uids, uid_of, window_of

from roofwatch.model.record import Window
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.schema import REVISION

PROGRAM = """
import sys
from pathlib import Path
from roofwatch.model.errors import RoofwatchError
from roofwatch.store.config import ServeConfig
from roofwatch.store.server import serve
metrics, reflection, folder = sys.argv[1:]
try:
    serve(ServeConfig("127.0.0.1:0", folder + "/store.db", port_file=Path(folder, "port"), metrics=metrics,
        reflection=reflection == "yes"))
except RoofwatchError as error:
    sys.exit(f"{error}")
"""
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def small(name: str, start_unix_ns: int = 2_000_000_000_000_000_000) -> Window:
    """A window of two kernels."""
    return window_of(name, [stat(GEMM, [1000, 2000]), stat(NORM, [50])], start_unix_ns=start_unix_ns)


def begin(folder: Path, metrics: str = "127.0.0.1:0", reflection: str = "yes") -> subprocess.Popen[str]:
    """Start a store with everything on."""
    command = [sys.executable, "-c", PROGRAM, metrics, reflection, str(folder)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[RunningStore, str]]:
    """A store, and where its metrics are."""
    process = begin(tmp_path)
    assert process.stderr is not None
    listening, shown = process.stderr.readline(), process.stderr.readline()
    try:
        url = re.fullmatch(r"metrics on (http://127\.0\.0\.1:\d+/metrics)\n", shown)
        assert url is not None, (listening, shown)
        yield RunningStore(process, int((tmp_path / "port").read_text())), url[1]
    finally:
        process.kill()
        process.communicate()


def check(store: RunningStore, service: str = "") -> int:
    """The health of a service."""
    with grpc.insecure_channel(store.address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)


def scrape(url: str) -> dict[str, float]:
    """Every sample by its name with labels."""
    with urllib.request.urlopen(url, timeout=10) as page:  # noqa: S310 - our own http:// address
        lines = page.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def on_disk(folder: Path) -> int:
    """Bytes of the database and its log."""
    return sum((folder / name).stat().st_size for name in ("store.db", "store.db-wal"))


def eventually(condition: Callable[[], bool], within_s: float = 15.0) -> bool:
    """Whether it becomes true."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the database's write lock, so that commits wait."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def change(file: Path, statement: str) -> None:
    """Change the database behind the store's back."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=20)) as connection:
        connection.execute(statement)


def test_health_follows_the_database(watched: tuple[RunningStore, str], tmp_path: Path) -> None:
    """SERVING while the database answers as this version's and commits succeed, else NOT_SERVING; then again."""
    store, url = watched
    assert [check(store, name) for name in ("", "roofwatch.v1.Ingest", "roofwatch.v1.Query")] == [SERVING] * 3
    with pytest.raises(grpc.RpcError) as told:
        check(store, "no.such.Service")
    assert told.value.code() == grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]
    change(tmp_path / "store.db", "UPDATE alembic_version SET version_num = '0999'")
    assert eventually(lambda: check(store) == NOT_SERVING)
    assert scrape(url)["roofwatch_store_serving"] == 0
    change(tmp_path / "store.db", f"UPDATE alembic_version SET version_num = '{REVISION}'")  # noqa: S608
    assert eventually(lambda: check(store, "roofwatch.v1.Ingest") == SERVING)
    assert scrape(url)["roofwatch_store_serving"] == 1
    change(tmp_path / "store.db", "ALTER TABLE segments RENAME TO gone")
    with pytest.raises(grpc.RpcError) as told:
        send(store.address, [segment_of([small("a")], 1)], 1)
    assert told.value.code() == grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
    assert eventually(lambda: check(store) == NOT_SERVING, 5)
    change(tmp_path / "store.db", "ALTER TABLE gone RENAME TO segments")
    assert send(store.address, [segment_of([small("a")], 1)], 1)[0].ack.status == pb.STORED
    assert eventually(lambda: check(store) == SERVING, 5)
    found = scrape(url)
    assert found["roofwatch_store_commit_failures_total"] == 1
    assert found['roofwatch_store_segments_total{outcome="failed"}'] == 1
    assert found['roofwatch_store_segments_total{outcome="stored"}'] == 1
    assert found["roofwatch_store_queue_segments"] == found["roofwatch_store_queue_bytes"] == 0


def test_metrics_count_what_came(watched: tuple[RunningStore, str], tmp_path: Path) -> None:
    """Segments, windows and rows by outcome, freshness, answers by question; nothing that a sender named is a label."""
    store, url = watched
    ended = time.time_ns() - 3_000_000_000 - 1_000_000  # three seconds ago, as a window lasts 1 ms
    one, two = segment_of([small("a", ended)], 1), segment_of([small("b", ended), small("c", ended)], 2)
    broken = segment_of([small("d")], 3)
    broken.crc32 ^= 1
    assert len(send(store.address, [one, two, one, broken], 4)) == 4
    with grpc.insecure_channel(store.address) as channel:
        stub = rpc.QueryStub(channel)
        stub.Run(pb.QueryRequest(query="top"), timeout=10)
        for wrong in (pb.QueryRequest(query="nvjet"), pb.QueryRequest(query="top", filter=pb.Filter(process="x"))):
            with pytest.raises(grpc.RpcError):
                stub.Run(wrong, timeout=10)
    found = scrape(url)
    expected = {
        'segments_total{outcome="stored"}': 2, 'segments_total{outcome="duplicate"}': 1,
        'segments_total{outcome="rejected"}': 1, 'windows_total{outcome="stored"}': 3,
        'windows_total{outcome="duplicate"}': 1, 'windows_total{outcome="rejected"}': 0,
        'rows_total{outcome="stored"}': 6, "freshness_seconds_count": 3, 'freshness_seconds_bucket{le="2.5"}': 0,
        'query_seconds_count{query="top"}': 2, 'query_failures_total{query="top"}': 1,
        'query_failures_total{query="unknown"}': 1, "stale_hours": 0, "upkeep_lag_seconds": 0,
    }  # fmt: skip
    assert {name: found[f"roofwatch_store_{name}"] for name in expected} == expected
    assert 9 <= found["roofwatch_store_freshness_seconds_sum"] < 30
    assert found["roofwatch_store_commit_seconds_count"] >= 1
    assert eventually(lambda: scrape(url)["roofwatch_store_database_bytes"] == on_disk(tmp_path), 10)
    assert not [name for name in found if "nvjet" in name or "gpu-07" in name or "agent-a" in name]


def test_connected_agents_and_hours_behind(watched: tuple[RunningStore, str]) -> None:
    """A stream is counted while it is open; an hour that is over and not summed up counts until upkeep comes."""
    store, url = watched
    ago = 3 * 3_600_000_000_000
    with grpc.insecure_channel(store.address) as channel:
        done = threading.Event()

        def requests() -> Iterator[pb.AgentMessage]:
            yield hello_of()
            yield pb.AgentMessage(segment=segment_of([small("old", time.time_ns() - ago)], 1))
            done.wait(20)

        stream = rpc.IngestStub(channel).Stream(requests(), timeout=30)
        assert [next(stream).WhichOneof("body") for _ in range(2)] == ["hello", "ack"]
        assert scrape(url)["roofwatch_store_connected_agents"] == 1
        assert eventually(lambda: scrape(url)["roofwatch_store_stale_hours"] == 1, 10)
        # The hour in which a moment three hours ago lies ended two to three hours ago.
        assert 2 * 3600 <= scrape(url)["roofwatch_store_upkeep_lag_seconds"] <= 3 * 3600 + 30
        done.set()
        list(stream)
    assert eventually(lambda: scrape(url)["roofwatch_store_connected_agents"] == 0, 5)


def test_what_is_in_flight_is_committed_and_health_speaks_first(
    watched: tuple[RunningStore, str], tmp_path: Path
) -> None:
    """SIGTERM while twenty segments wait for a locked database.

    Health says so at once and goes on answering; then every segment is stored and told, and nobody who watches health
    holds the store up.
    """
    store, url = watched
    told: list[str] = []
    hello, done = threading.Event(), threading.Event()

    def requests() -> Iterator[pb.AgentMessage]:
        yield hello_of()
        hello.wait(20)
        for i in range(1, 21):
            yield pb.AgentMessage(segment=segment_of([small(f"w{i}")], i))
        done.wait(30)

    def agent() -> None:
        with grpc.insecure_channel(store.address) as channel:
            stream = rpc.IngestStub(channel).Stream(requests(), timeout=30)
            stored = [m.ack.id.sequence for m in stream if m.ack.status == pb.STORED]
            told.append(f"{sorted(stored)} {stream.code()}")

    def watcher() -> None:
        with grpc.insecure_channel(store.address) as channel:
            stream = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)
            told.extend(f"health {m.status}" for m in stream)

    threads = [threading.Thread(target=watcher), threading.Thread(target=agent)]
    threads[0].start()
    assert eventually(lambda: bool(told), 5)
    threads[1].start()
    assert eventually(lambda: scrape(url)["roofwatch_store_connected_agents"] == 1, 5)
    with locked(tmp_path / "store.db"):
        hello.set()
        assert eventually(lambda: scrape(url)["roofwatch_store_queue_segments"] == 20, 5)
        store.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: len(told) == 2, 2)
        assert check(store) == NOT_SERVING
        unlocked = time.monotonic()
    for thread in threads:
        thread.join(20)
    done.set()
    assert store.process.wait(20) == 0
    assert time.monotonic() - unlocked < 4  # the grace is 5 s
    assert told == [f"health {SERVING}", f"health {NOT_SERVING}", f"{list(range(1, 21))} StatusCode.OK"]
    assert sorted(stored_uids(tmp_path / "store.db")) == sorted(uid_of(f"w{i}") for i in range(1, 21))


def test_second_sigterm_is_quick(watched: tuple[RunningStore, str], tmp_path: Path) -> None:
    """Asked twice it leaves at once, with exit 1 and nothing half stored, whatever it waits for."""
    store, url = watched
    with locked(tmp_path / "store.db"):
        with grpc.insecure_channel(store.address) as channel:
            stream = rpc.IngestStub(channel).Stream(iter([hello_of()]), timeout=30)
            assert eventually(lambda: scrape(url)["roofwatch_store_queue_segments"] == 1, 5)
            stream.cancel()
        store.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert store.process.poll() is None
        asked = time.monotonic()
        store.process.send_signal(signal.SIGTERM)
        assert store.process.wait(10) == 1
        assert time.monotonic() - asked < 2
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_reflection_only_on_request(watched: tuple[RunningStore, str], store: RunningStore) -> None:
    """With --reflection the services are listed, without it the service is not there."""
    request = [reflection_pb2.ServerReflectionRequest(list_services="")]
    with grpc.insecure_channel(watched[0].address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        (answer,) = stub.ServerReflectionInfo(iter(request), timeout=10)
    assert {s.name for s in answer.list_services_response.service} == {
        "roofwatch.v1.Control", "roofwatch.v1.Ingest", "roofwatch.v1.Query", "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }  # fmt: skip
    with grpc.insecure_channel(store.address) as channel, pytest.raises(grpc.RpcError) as told:
        list(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(request), timeout=10))
    assert told.value.code() == grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]
    assert check(store) == SERVING  # health needs no option


def test_garbage_to_health_makes_no_traceback(store: RunningStore) -> None:
    """What cannot be read asks for the health of the whole."""
    with grpc.insecure_channel(store.address) as channel:
        answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"\xff\xff\xff", timeout=10)
    assert health_pb2.HealthCheckResponse.FromString(answer).status == SERVING
    code, errors = store.terminate()
    assert code == 0
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ("0.0.0.0:0", "can be read from other machines: add --insecure to allow it"),
        ("127.0.0.1", "is not an address"),
        ("192.0.2.1:9431", "can be read from other machines"),
    ],
)
def test_metrics_that_are_refused(tmp_path: Path, metrics: str, words: str) -> None:
    """One sentence, and no store."""
    process = begin(tmp_path, metrics)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert words in errors
    assert len(errors.splitlines()) == 1


def test_metrics_port_in_use(watched: tuple[RunningStore, str], tmp_path: Path) -> None:
    """One sentence that names the option."""
    (tmp_path / "other").mkdir()
    process = begin(tmp_path / "other", watched[1].removeprefix("http://").removesuffix("/metrics"))
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert re.fullmatch(r"cannot listen on 127\.0\.0\.1:\d+ for metrics: .*; choose another with --metrics\n", errors)
