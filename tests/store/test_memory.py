"""What a store holds does not grow with what passes through it: after some events, and after five times as many.

Memory is counted by Python and by the C library as live, not by the system as mapped: no noise of a heap's holes.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from postgres_server import Postgres
from store_builders import GEMM, hello_of, process_of, segment_of, send, stat, window_of

from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import dictionary, known, rollup, schema, ungreeted
from roofwatch.store.database import Database
from roofwatch.store.dictionary import Dictionaries, Once
from roofwatch.store.known import Known
from roofwatch.store.load import Loader
from roofwatch.store.unpack import Unpacker

MANY, REST_S = 4, 0.3
# What an event may leave: a new process leaves the numbers of its row and of its hour. One whose description is kept
# leaves 1,000 bytes in 12 blocks, one whose dictionary is kept 6,000 in 57.
LEFT = np.array([6, 500])  # blocks, bytes
NOISE = np.array([1_500, 300_000])  # of all of them together
NUMBERS = itertools.count(1)  # of segments
# A store that tells what it holds whenever a line comes.
PROGRAM = """
import sys, threading
from pathlib import Path
from held import held
from roofwatch.store.config import ServeConfig
from roofwatch.store.server import serve

def tell():
    for _ in sys.stdin:
        print(*held(), flush=True)

threading.Thread(target=tell, daemon=True).start()
listen, database, port_file = sys.argv[1:]
serve(ServeConfig(listen=listen, database=database, port_file=Path(port_file)))
"""


@dataclass
class Watched:
    """A store, and what it holds."""

    process: subprocess.Popen[str]
    address: str

    def held(self) -> np.ndarray:
        """Python's blocks, bytes of the C library: what is live once what was at work has come to rest."""
        time.sleep(REST_S)
        return np.min([self._told() for _ in range(3)], axis=0)

    def _told(self) -> np.ndarray:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return np.array(list(map(int, self.process.stdout.readline().split())))


@pytest.fixture(scope="module")
def store(postgres: Postgres, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One on Postgres."""
    name, file = postgres.create(template), tmp_path_factory.mktemp("memory") / "port"
    command = [sys.executable, "-c", PROGRAM, "127.0.0.1:0", postgres.url(name), str(file)]
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        until = time.monotonic() + 30
        while not file.exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        yield Watched(process, f"127.0.0.1:{file.read_text().strip()}")
        process.terminate()
    postgres.drop(name)


Event = Callable[[Watched, Postgres, int, int], None]


def _window(name: str, **more: object) -> pb.SegmentEnvelope:
    """A segment of one window, whose process began a moment ago."""
    own = process_of(job=f"job-{name}", versions={"torch": "2.13.0", "python": "3.11"}, **more)
    return segment_of([window_of(name, [stat(GEMM, [10])], process=own)], next(NUMBERS), boot=name)


def jobs(store: Watched, _: Postgres, first: int, count: int) -> None:
    """Jobs that come, are seen once and go: a process of its own, so a dictionary of its own."""
    segments = [_window(f"job {i}", pid=i) for i in range(first, first + count)]
    assert all(reply.ack.status == pb.STORED for reply in send(store.address, [*segments], count))


def reconnections(store: Watched, _: Postgres, first: int, count: int) -> None:
    """Agents that start anew, say hello, send one segment and are gone."""
    for i in range(first, first + count):
        (reply,) = send(store.address, [hello_of(boot=f"boot {i}"), _window(f"again {i}")], 1)
        assert reply.ack.status == pb.STORED


def refusals(store: Watched, _: Postgres, first: int, count: int) -> None:
    """Segments that are damaged, each otherwise; streams without a hello; services that nobody has, watched."""
    segments = [_window(f"damaged {i}", pid=i) for i in range(first, first + count)]
    for one in segments:
        one.crc32 ^= 1
    assert all(reply.ack.status == pb.REJECTED for reply in send(store.address, [*segments], count))
    with grpc.insecure_channel(store.address) as channel:
        for i in range(first, first + count):
            with pytest.raises(grpc.RpcError):
                next(rpc.IngestStub(channel).Stream(iter([pb.AgentMessage()]), timeout=30))
            watching = HealthStub(channel).Watch(HealthCheckRequest(service=f"service {i}"), timeout=30)
            assert next(watching).status == HealthCheckResponse.SERVICE_UNKNOWN
            watching.cancel()


def aborts(store: Watched, postgres: Postgres, first: int, count: int) -> None:
    """The database hangs up, in a transaction or between two: the store connects again and stores all the same."""
    for i in range(first, first + count):
        postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'roofwatch'")
        (reply,) = send(store.address, [_window(f"aborted {i}")], 1)
        assert reply.ack.status == pb.STORED


@pytest.mark.parametrize(("event", "few"), [(jobs, 100), (reconnections, 30), (refusals, 40), (aborts, 10)])
def test_what_passes_through_leaves_nothing(store: Watched, postgres: Postgres, event: Event, few: int) -> None:
    """As much after five times as many events as after the first of them, but for the rows that a database has, too."""
    event(store, postgres, 0, few)
    before = store.held()
    event(store, postgres, few, MANY * few)
    left = store.held() - before
    assert (left < NOISE + MANY * few * LEFT).all(), (event.__name__, left.tolist())


def _dictionary(name: str) -> bytes:
    """Of one process and one kernel."""
    message = codec.segment([window_of(name, [stat(GEMM, [10])], process=process_of(job=name))])
    return message.dictionary.SerializeToString()


def test_a_dictionary_is_kept_from_its_second_time_on_and_as_long_as_it_is_used() -> None:
    """Those that come once leave nothing; those that come again go an hour after they came last, the others stay."""
    now = [0.0]
    kept = Dictionaries(lambda: now[0])
    for i in range(50):
        kept.resolved(_dictionary(f"once {i}"))
    assert len(kept) == 0
    for name in ("a", "b", "a", "b"):
        kept.resolved(_dictionary(name))
    assert len(kept) == 2
    now[0] = dictionary.UNUSED_S - 1
    found = kept.resolved(_dictionary("a"))
    now[0] += 2
    kept.resolved(_dictionary("other"))
    assert len(kept) == 1
    assert kept.resolved(_dictionary("a")) is found
    assert kept._cells == found.cells


def test_marks_of_what_came_once_take_no_more_room() -> None:
    """A newer one takes the place of an older: what is forgotten is taken as new, never the other way round."""
    once = Once(16)
    digests = [hashlib.sha256(bytes([i])).digest() for i in range(100)]
    assert [once.again(digest) for digest in digests] == [False] * 100
    assert len(once._marks) == 16
    again = [once.again(digest) for digest in digests[-1:]]
    assert again == [True]


def test_rows_that_are_known_are_of_two_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for stays however many come; what is not asked for is forgotten, and written again."""
    monkeypatch.setattr(known, "MAX_KNOWN", 10)
    rows, table = Known(), schema.processes
    for i in range(100):
        assert rows.fresh(table, i, "told")
        rows.fresh(table, 0, "told")
        rows.commit()
    assert rows.fresh(table, 0, "told") is False
    assert rows.fresh(table, 0, "told otherwise")
    assert rows.fresh(table, 1, "told")
    assert sum(len(of[table.name]) for of in (rows.rows, rows.older)) <= 22
    rows.rollback()
    assert rows.fresh(table, 0, "told") is False


def test_hours_and_boots_that_are_known_are_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of processes and of agents that come and go."""
    monkeypatch.setattr(rollup, "KNOWN_MOST", 10)
    monkeypatch.setattr(ungreeted, "KNOWN_MOST", 10)
    loader, unpacker = Loader(now_ns=time.time_ns), Unpacker()
    for i in range(30):
        with db.write() as connection:
            loader.load(connection, [unpacker.unpack(_window(f"bounded {i}", pid=i))])
        loader.commit()
    assert max(map(len, (loader.newest, loader.waiting, loader.boots))) <= 12
