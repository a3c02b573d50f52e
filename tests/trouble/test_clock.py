"""Clocks that jump, of agents and of the store, by hours and years, both ways: nothing is lost, the rest is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, Place
from store_builders import GEMM, RunningStore, process_of, segment_of, send, stat, window_of

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import database
from roofwatch.store.config import Keep
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.retention import Upkeep
from roofwatch.store.unpack import Unpacker

Start = Callable[..., RunningStore]
HOUR_NS, YEAR_NS = 3600 * 10**9, 365 * 86_400 * 10**9
JUMPS_NS = (0, 3 * HOUR_NS, -5 * HOUR_NS, 3 * YEAR_NS, -20 * YEAR_NS, 0)
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def test_clock_of_an_agent(place: Place, start: Start) -> None:
    """It jumps between its windows: all are stored, those of now are asked for as ever, and none is taken for old."""
    store = start(place)
    now = time.time_ns()
    windows = [
        window_of(f"{i}", [stat(GEMM, [1000])], start_unix_ns=now + jump, process=process_of(pid=i % 2))
        for i, jump in enumerate(JUMPS_NS)
    ]
    sent = [segment_of([window], i) for i, window in enumerate(windows, 1)]
    found = send(store.address, list(sent), len(sent))
    assert [message.ack.status for message in found] == [pb.STORED] * len(sent)
    assert store.terminate()[0] == 0
    opened = database.open(place.url)

    def told(scope: Filter) -> tuple[int, int]:
        answer = Queries(opened).run("top", scope)
        return answer["coverage"]["windows"], sum(row["total_ns"] for row in answer["rows"])

    recent = Filter(since_unix_ns=now - HOUR_NS, until_unix_ns=now + HOUR_NS)
    assert told(Filter()) == (6, 6000)
    assert told(recent) == (2, 2000)
    upkeep = Upkeep(opened, Keep(), now_ns=lambda: now + 2 * HOUR_NS)
    for _ in range(20):  # what is 20 years old goes; one 3 years ahead makes nothing else old
        upkeep.due_s = 0
        upkeep.run()
    assert upkeep.failed == ""
    assert told(recent) == (2, 2000)
    assert told(Filter(since_unix_ns=now - 6 * HOUR_NS)) == (5, 5000)
    opened.close()


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed")
def test_clock_of_the_store(
    place: Place, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    """It is set ahead and back while a fleet sends; all is stored once, and the store's own work removes nothing."""
    if place.postgres is not None and not long:
        pytest.skip("in the long form")
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    for name, value in {
        "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fleet = Fleet(4, 6.0 if long else 5.0)
    store = start(place)
    with fleet.sending(store.address):
        for jump in ("+2y", "-10y", "+3h", "-3h", "+0"):
            clock.write_text(f"{jump}\n")
            time.sleep(0.1)
            before, until = len(fleet.tally.waits_s), time.monotonic() + 5
            while len(fleet.tally.waits_s) < before + 4 and time.monotonic() < until:
                time.sleep(0.02)
    assert store.terminate()[0] == 0
    monkeypatch.undo()
    years = {row[0] // YEAR_NS for row in place.ask("SELECT received_unix_ns FROM segments")}
    assert len(years) >= 2  # it did jump
    fleet.check(place)


def test_clock_of_a_machine_with_both(tmp_path: Path) -> None:
    """Agent and store share a clock that jumps two years ahead: nothing goes at once that was there before."""
    now, steady = [time.time_ns()], [0.0]
    opened = database.open(str(tmp_path / "store.db"))
    writer = Writer(opened)
    upkeep = Upkeep(opened, Keep(), now_ns=lambda: now[0], clock=lambda: steady[0])

    def store(name: str, number: int) -> None:
        window = window_of(name, [stat(GEMM, [1000])], start_unix_ns=now[0])
        assert writer.submit(Unpacker().unpack(segment_of([window], number))).result(10).status == pb.STORED

    def keep_up() -> tuple[int, dict[str, int]]:
        for _ in range(20):
            steady[0] += 60
            now[0] += 60 * 10**9
            upkeep.run()
        answer = Queries(opened).run("top", Filter())
        return sum(row["total_ns"] for row in answer["rows"]), answer["coverage"]["sources"]

    store("a", 1)
    now[0] += 2 * YEAR_NS
    store("b", 2)
    assert keep_up()[0] == 2000
    assert [row[0] for row in Place(tmp_path / "store.db").ask("SELECT count(*) FROM kernel_blocks")] == [2]
    steady[0] += 90_000  # it stands so for more than a day: believed
    now[0] += 90_000 * 10**9
    keep_up()
    assert [row[0] for row in Place(tmp_path / "store.db").ask("SELECT count(*) FROM kernel_blocks")] == [1]
    writer.close()
    opened.close()
