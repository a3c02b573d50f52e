"""A store that an older version wrote, window by window: what it holds is answered as it was, from windows and sums.

``store_0006.sql`` is what the program wrote before kernels were blocks and hours had sums: five windows of two
processes, their kernels' calls as below.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from roofwatch.store import database, retention
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries

HOUR_NS = 3600 * 10**9
BEGIN_NS = 1_800_000_000_000_000_000 // (24 * HOUR_NS) * 24 * HOUR_NS
FOR_EVER = Keep(10**9, 10**9, 10**9)


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Database]:
    """The store, brought to today's schema by opening it."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.executescript(Path(__file__).with_name("store_0006.sql").read_text("utf-8"))
    opened = database.open(str(tmp_path / "store.db"))
    yield opened
    opened.close()


@pytest.mark.parametrize("summed", [False, True])
def test_what_an_older_version_stored_is_answered(older: Database, summed: bool) -> None:
    """Five windows: one stands for ten times its span; an hour's last nanosecond; a batch; another device; nothing."""
    if summed:
        retention.prune_all(older, BEGIN_NS + 1000 * HOUR_NS, FOR_EVER)
    found = Queries(older).run("top", Filter())
    rows = {(row["kernel"], row["device"]): row for row in found["rows"]}
    gemm = rows["nvjet_tst_128x256", "NVIDIA H100 80GB HBM3"]
    # calls of 1000 + 3000 ns (weight 10), 5000 ns, 1000 + 3000 ns
    names = ("calls", "total_ns", "est_ns", "min_ns", "max_ns")
    assert [gemm[name] for name in names] == [5, 13_000, 49_000, 1000, 5000]
    assert gemm["roof_fraction"] == pytest.approx(5 * 500.0 / 13_000)
    assert abs(gemm["p50_ns"] - 3000) < 0.02 * 3000  # a bucket's width
    assert (rows["layer_norm", "NVIDIA H100 80GB HBM3"]["est_ns"], len(rows)) == (700, 3)
    norm = rows["layer_norm", "AMD Instinct MI300X"]
    assert [norm[name] for name in names] == [2, 70, 70, 30, 40]
    cover = found["coverage"]
    assert (cover["windows"], cover["device_time_ns"], cover["dropped"]) == (5, 13_140, {"unfinished": 2})
    assert cover["source"] == ("daily" if summed else "raw")
    # busy: 4070 of 10⁶ ns ten times, then 5000, 4000, 70 and 0 of 10⁶ ns each
    assert found["summary"]["est_busy_ns"] == 49_770
    assert found["summary"]["causes"]["host"]["est_ns"] == 9000
    told = Queries(older).run("padding", Filter())
    assert told["utilisation"] == {"linear": 10 / 16, "quadratic": 52 / 128}


def test_a_part_of_an_hour_of_an_older_store(older: Database) -> None:
    """Its windows are kept, so a filter may cut an hour: the window of its last nanosecond alone."""
    retention.prune_all(older, BEGIN_NS + 1000 * HOUR_NS, FOR_EVER)
    found = Queries(older).run("top", Filter(BEGIN_NS + HOUR_NS // 2, BEGIN_NS + HOUR_NS))
    assert [(row["calls"], row["total_ns"]) for row in found["rows"]] == [(1, 5000)]
    assert found["coverage"]["left_out"] == []
