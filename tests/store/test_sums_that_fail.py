"""Figures that no sum holds, and blocks that are damaged: they hold up neither ingest nor the sums of others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import fresh
import pytest
from sqlalchemy import text
from store_builders import GEMM, process_of, segment_of, stat, uid_of, window_of

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Padding, Window
from roofwatch.store import given_up, retention, rollup
from roofwatch.store.config import Keep
from roofwatch.store.filter import Filter
from roofwatch.store.given_up import GivenUp
from roofwatch.store.ingest import Writer
from roofwatch.store.outcome import STORED
from roofwatch.store.queries import Queries
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.unpack import Unpacker

HOUR_NS = 3600 * 10**9
BEGIN_NS = 1_800_000_000_000_000_000 // (24 * HOUR_NS) * 24 * HOUR_NS


class Ingest:
    """One writer, as long as a store runs."""

    def __init__(self, folder: Path) -> None:
        self.database = fresh.opened(folder / "s.db")
        self.writer = Writer(self.database)
        self.sequence = 0

    def put(self, *windows: Window) -> None:
        """Store one segment."""
        self.sequence += 1
        assert self.writer.submit(Unpacker().unpack(segment_of(list(windows), self.sequence))).result() == STORED


def at(name: str, hour: int, pid: int = 100) -> Window:
    """A window of one kernel, in an hour."""
    return window_of(
        name, [stat(GEMM, [1000])], start_unix_ns=BEGIN_NS + hour * HOUR_NS + 1, process=process_of(pid=pid)
    )


def test_lengths_that_are_nonsense_stop_nobody(tmp_path: Path) -> None:
    """Four windows whose padding adds up to more than 64 bits: what comes later is stored, and all is answered."""
    ingest = Ingest(tmp_path)
    huge = Padding(1, 1, 1, (1 << 62) - 1, (1 << 62) - 1)
    ingest.put(*(dataclasses.replace(at(f"huge {i}", 0), padding=huge) for i in range(4)))
    ingest.put(at("later", 2))
    ingest.put(at("of another process", 2, pid=5))
    ingest.writer.close()
    queries = Queries(ingest.database)
    found = queries.run("nodes", Filter())
    with raw_only():
        assert queries.run("nodes", Filter())["rows"] == found["rows"]
    assert found["rows"][0]["windows"] == 6
    told = queries.run("padding", Filter())
    assert told["utilisation"] == {"linear": 1.0, "quadratic": 1.0}


def test_a_damaged_block_holds_up_only_its_own_hour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One window's block is damaged: other hours and processes are summed up and removed, and it is told once."""
    ingest = Ingest(tmp_path)
    ingest.put(at("damaged", 0), at("whole", 0, pid=5))
    with ingest.database.write() as connection:
        number = "SELECT id FROM windows WHERE uid = :uid"
        uid = {"uid": bytes.fromhex(uid_of("damaged"))}
        connection.execute(text(f"UPDATE kernel_blocks SET facts = x'0011' WHERE window_id = ({number})"), uid)  # noqa: S608
    for hour in (1, 2):
        ingest.put(at(f"a {hour}", hour), at(f"b {hour}", hour, pid=5))
    ingest.writer.close()
    assert len(caplog.messages) == 1
    done = retention.prune_all(ingest.database, BEGIN_NS + 100 * HOUR_NS, Keep())
    assert done.hours_of_kernels == 5  # of six
    queries = Queries(ingest.database)
    assert queries.run("top", Filter(process="5"))["rows"][0]["calls"] == 3
    with pytest.raises(RoofwatchError, match="damaged"):
        queries.run("top", Filter())


def test_of_many_that_fail_few_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More hours are damaged than are remembered: sums of others are made all the same, up to the newest, and end.

    A late window of what is not summed up any more is in every answer; a store that starts sums it up.
    """
    monkeypatch.setattr(given_up, "MOST", 4)
    ingest, hours, damaged = Ingest(tmp_path), range(14), 9
    uids = {f"uid{hour}": bytes.fromhex(uid_of(f"bad {hour}")) for hour in range(damaged)}
    for name, pid in (("bad", 100), ("good", 200)):  # a process an hour: none comes to the next
        ingest.put(*(at(f"{name} {hour}", hour, pid=pid + hour) for hour in hours))
    with ingest.database.write() as connection:
        number = f"SELECT id FROM windows WHERE uid IN ({', '.join(f':{name}' for name in uids)})"  # noqa: S608 - names
        connection.execute(text(f"UPDATE kernel_blocks SET facts = x'0011' WHERE window_id IN ({number})"), uids)  # noqa: S608

    def swept(broken: GivenUp) -> list[int]:
        """Until nothing is due; the hours that are stale then."""
        with ingest.database.write() as connection:
            while rollup.sweep(connection, BEGIN_NS + 40 * HOUR_NS, broken):
                assert len(broken) <= 4
            stale = "SELECT bucket_unix_ns FROM rollups WHERE stale AND grain = 3600 ORDER BY 1"
            return [(at_ns - BEGIN_NS) // HOUR_NS for (at_ns,) in connection.execute(text(stale))]

    ingest.writer.close()
    broken = GivenUp()
    assert swept(broken) == list(range(damaged))
    assert broken.count == damaged
    ingest.writer = Writer(ingest.database)
    ingest.put(at("late", 0, pid=200))
    ingest.writer.close()
    assert swept(broken) == [0, *range(damaged)]
    assert Queries(ingest.database).run("top", Filter(process="200"))["rows"][0]["calls"] == 2
    assert swept(GivenUp()) == list(range(damaged))
