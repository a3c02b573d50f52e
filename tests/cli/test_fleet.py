"""``roofwatch store replay``: a fleet that speaks the real protocol to a real store."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from roofwatch.cli.asking import ask
from roofwatch.cli.fleet import bench, synthetic
from roofwatch.cli.fleet.agent import Tally
from roofwatch.cli.fleet.local import PROGRAM, local_store
from roofwatch.cli.fleet.replay import Freshness, Plan, _Asking, _wrong, quantile, replay
from roofwatch.cli.fleet.source import of_folder
from roofwatch.cli.fleet.templates import Sent, Source, scale, templates
from roofwatch.cli.render import fleet as render
from roofwatch.proto import codec
from roofwatch.proto.trust import Material
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.filter import Filter
from roofwatch.store.unpack import Unpacker

SECOND = 1_000_000_000
NOW = 1_900_000_000 * SECOND


def test_a_scaled_window_by_hand() -> None:
    """One bucket up is 1,065/1,024: times are scaled and rounded down, counts and what is unknown stay."""
    window = pb.Window(duration_ns=1_000_000, start_unix_ns=5, represents_ns=7, steps=2)
    window.kernels.total_ns.extend([1024, 1_000])
    window.kernels.calls.extend([3, 4])
    window.kernels.histogram_low.extend([10, 0])
    window.ledger.device_time_ns = 2_048
    window.ledger.dropped["unfinished"] = 9
    scale(window, 1)
    assert list(window.kernels.total_ns) == [1065, 1040]  # 1,000 · 1,065 / 1,024 = 1,040.04
    assert (list(window.kernels.calls), list(window.kernels.histogram_low)) == ([3, 4], [11, 1])
    assert (window.duration_ns, window.start_unix_ns, window.represents_ns) == (1_040_039, 5, 7)
    assert (window.ledger.device_time_ns, window.ledger.dropped["unfinished"], window.steps) == (2130, 9, 2)


def check_fleet(source: Source) -> None:
    """Two segments of two nodes pass the store's own checks, and are four nodes' worth of different windows."""
    unpacker, uids, processes, devices = Unpacker(), set(), set(), set()
    for node, sequence in ((0, 1), (0, 2), (5, 1)):
        envelope, sent = source.segment(node, sequence, NOW)
        unpacked = unpacker.unpack(envelope)
        for found, told in zip(unpacked.windows, sent, strict=True):
            window = found.window
            assert (window.start_unix_ns, window.start_unix_ns + window.duration_ns) == (told.start_unix_ns, NOW)
            assert window.process.node.host == f"replay-{node:05d}"
            uids.add(window.uid)
            processes.add(window.process.id)
            devices.add(found.devices)
    assert (len(uids), len(processes), len(devices)) == (24, 16, 16)


def test_drawn_windows_become_a_fleet() -> None:
    """Every variant is what an agent could have sealed; the same seed gives the same segments, another others."""
    windows = synthetic.windows(2)
    made = templates(windows, 8, random.Random(1))
    check_fleet(Source(made, "run", SECOND))
    again, other = templates(windows, 8, random.Random(1)), templates(windows, 8, random.Random(2))
    assert made == again
    assert made != other


def test_real_windows_become_a_fleet(traces: Path) -> None:
    """The same with what is in real traces, of which the damaged are left out."""
    said: list[str] = []
    windows = of_folder(traces / "kineto", said.append)
    assert len(windows) > 3
    check_fleet(Source(templates(windows, 8, random.Random(1)), "run", SECOND))


def test_freshness_by_hand() -> None:
    """Three windows; a poll sees two, the next the third: each counts once, from its end to the poll."""
    tally = Tally(
        watched=[Sent(10 * SECOND, 11 * SECOND), Sent(11 * SECOND, 12 * SECOND), Sent(9 * SECOND, 13 * SECOND)]
    )
    freshness = Freshness(tally)
    assert freshness.since_ns() == 9 * SECOND
    freshness.saw(2, 9 * SECOND, 15 * SECOND)
    assert freshness.lags_s == [4.0, 3.0]
    assert freshness.since_ns() == 9 * SECOND  # the third began first
    freshness.saw(3, 9 * SECOND, 16 * SECOND)
    assert freshness.lags_s == [4.0, 3.0, 3.0]
    assert freshness.since_ns() is None


def test_quantiles_by_hand() -> None:
    """The nearest value that so many do not exceed; nothing has none."""
    assert [quantile([4.0, 1.0, 3.0, 2.0], q) for q in (0.0, 0.5, 0.99)] == [1.0, 3.0, 4.0]
    assert quantile([], 0.5) is None


def test_bench_is_complete(tmp_path: Path) -> None:
    """Two nodes, a minute: as many rows on both sides, what SQLite's statement sums is what the store answers."""
    fleet = bench.fleet_of(2, 1)
    found = bench.run(fleet, tmp_path, rounds=1)
    assert found.rows == 2 * 8 * 300
    with closing(sqlite3.connect(tmp_path / "0" / "raw.db")) as connection:
        told = connection.execute("SELECT sum(total_ns), count(DISTINCT window_id) FROM kernel_stats").fetchone()
    answer = ask("top", Filter(), 0, store=None, db=str(tmp_path / "0" / "store.db"))
    assert (answer["coverage"]["device_time_ns"], answer["coverage"]["windows"]) == told
    assert 0 < found.share < 2
    assert min(found.node_s, found.raw_node_s, found.all_s, found.raw_all_s, found.ack_p99_s) > 0
    assert len(render.benched(found)) == 11
    assert max(map(len, render.benched(found))) <= 80


def test_what_is_lost_is_told(tmp_path: Path) -> None:
    """A run is exactly once; had more been acknowledged than is stored, or less, its node would be named."""
    plan = Plan(nodes=2, rate=60, seconds=1.0, seed=1, run="abc")
    with local_store(tmp_path) as store:
        found = replay(synthetic.windows(1), plan, store.address, store, lambda _: None, Material())
        assert found.wrong == []
        assert found.tally.sent == found.tally.stored == 16  # one interval of a second, eight devices
        assert len(found.lags_s) == 2  # the first window of each segment
        assert 0 < max(found.tally.waits_s) < 30
        assert found.store_cpu_s is not None
        assert found.store_cpu_s > 0
        tampered = Tally(by_node={0: 9, 1: 8}, rejected=8, reason="no reason")

        async def check() -> list[str]:
            async with grpc.aio.insecure_channel(store.address) as channel:
                return await _wrong(_Asking(rpc.QueryStub(channel), ()), plan, tampered, 1)

        assert asyncio.run(check()) == [
            "1 segments were not acknowledged within 60 s",
            "8 windows were rejected, the last because: no reason",
            "replay-00000: 9 windows acknowledged, 8 stored",
        ]


def count(file: Path) -> int:
    """Windows in a database."""
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("SELECT count(*) FROM windows").fetchone()[0])


@pytest.mark.slow
def test_a_killed_store_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL of the store in the middle, and a new one on its port: the fleet sends again, each window is once."""
    serve = [
        *PROGRAM,
        "store",
        "serve",
        "--db",
        f"sqlite:///{tmp_path}/store.db",
        "--port-file",
        str(tmp_path / "port"),
    ]

    def start(port: int) -> subprocess.Popen[bytes]:
        (tmp_path / "port").unlink(missing_ok=True)
        begun = subprocess.Popen([*serve, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not (tmp_path / "port").exists():
            assert begun.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        return begun

    store = start(0)
    port = int((tmp_path / "port").read_text())
    options = (
        "--nodes",
        "4",
        "--rate",
        "200x",
        "--minutes",
        "0.05",
        "--format",
        "json",
        "--store",
        f"127.0.0.1:{port}",
    )
    fleet = subprocess.Popen([*PROGRAM, "store", "replay", "--synthetic", *options], stdout=subprocess.PIPE)
    try:
        until = time.monotonic() + 30
        while count(tmp_path / "store.db") < 16:
            assert time.monotonic() < until
            time.sleep(0.1)
        store.send_signal(signal.SIGKILL)
        store.wait()
        store = start(port)
        out, _ = fleet.communicate(timeout=60)
    finally:
        for process in (fleet, store):
            process.kill()
            process.wait()
    found = json.loads(out)["replay"]
    assert found["problems"] == []
    assert fleet.returncode == 0
    assert found["windows_acknowledged"] == found["windows_sent"] == 4 * 8 * 10  # 3 s, an interval of 0.3 s
    assert found["reconnections"] == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a FOLDER of traces, or --synthetic."),
        (["--synthetic", "x"], "a FOLDER of traces and --synthetic exclude each other: give one of the two."),
        (["no-such-folder"], "is no folder"),
        (["--synthetic", "--rate", "fast"], "is no rate like 1x or 10x"),
        (["--synthetic", "--store", "127.0.0.1:1", "--db", "x.db"], "--db is for the store that is started"),
    ],
)
def test_wrong_calls(arguments: list[str], words: str) -> None:
    """Exit 2 and a sentence."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "roofwatch.cli.main", "store", "replay", *arguments],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


def test_scaled_segments_decode_to_what_was_scaled() -> None:
    """Shares and order of kernels survive: what took longest still does, and nothing becomes a part of less."""
    (window,) = synthetic.windows(1)
    message = codec.segment([window])
    scale(message.windows[0], -3)
    (scaled,) = codec.windows(message)
    order = [k.signature.id for k in sorted(window.kernels, key=lambda k: -k.total_ns)]
    assert [k.signature.id for k in sorted(scaled.kernels, key=lambda k: -k.total_ns)][:20] == order[:20]
    assert scaled.devices[0].busy_ns <= scaled.devices[0].span_ns
    assert scaled.duration_ns == pytest.approx(window.duration_ns / 1.04**3, rel=1e-3)
    assert [k.histogram.total for k in scaled.kernels] == [k.calls for k in window.kernels]
