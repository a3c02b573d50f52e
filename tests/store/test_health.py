"""What the monitor looks up in a database, on each engine."""

from __future__ import annotations

import time

from store_builders import GEMM, segment_of, stat, window_of

from roofwatch.store.database import Database
from roofwatch.store.health import _figures, _revision
from roofwatch.store.ingest import Writer
from roofwatch.store.schema import REVISION
from roofwatch.store.unpack import Unpacker

HOUR_NS = 3_600_000_000_000


def test_size_revision_and_hours_behind(db: Database, writer: Writer) -> None:
    """An hour of a process that is over is behind by its end's age; one that has just ended is not yet."""
    now = (time.time_ns() // HOUR_NS) * HOUR_NS + HOUR_NS // 2
    assert _revision(db) == REVISION
    size, count, lag = _figures(db, now)
    assert size is not None
    assert size > 50_000
    assert (count, lag) == (0, 0.0)
    moment = now - 3 * HOUR_NS  # in an hour that ended 2.5 hours before now
    windows = [window_of(name, [stat(GEMM, [1000])], start_unix_ns=moment) for name in "ab"]
    writer.submit(Unpacker().unpack(segment_of(windows, 1))).result(30)
    assert _figures(db, now)[1:] == (1, 2.5 * 3600)
    assert _figures(db, moment + HOUR_NS // 2 + 299 * 1_000_000_000)[1:] == (
        0,
        0.0,
    )  # segments may still be on their way
