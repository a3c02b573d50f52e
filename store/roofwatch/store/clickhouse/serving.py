"""The writer of a served store on ClickHouse, timed and watched."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from roofwatch.model.record import Trigger
from roofwatch.store.clickhouse.opening import ClickHouse
from roofwatch.store.clickhouse.writer import JournalWriter, start
from roofwatch.store.config import Keep, default_journal
from roofwatch.store.metrics import BROKEN_SUMS, Metrics
from roofwatch.store.unpack import UnpackedWindow


def served(db: ClickHouse, keep: Keep, metrics: Metrics, journal: Path | None) -> JournalWriter:
    """A running writer that tells the metrics, and through them health, how the journal and ClickHouse are.

    Raises:
        RoofwatchError: another store holds the journal, or has the database; ClickHouse failed.
    """

    def seen(w: UnpackedWindow) -> None:
        if w.window.trigger is not Trigger.IMPORTED:
            late = time.time_ns() - w.window.start_unix_ns - w.window.duration_ns
            metrics.freshness.observe(max(0, late) / 1e9)

    def tried(failed: str) -> None:
        metrics.failed_s = time.monotonic() if failed else -math.inf
        if failed:
            metrics.commit_failures.inc()

    metrics.fresh_when_acknowledged = False
    writer = start(db, keep, journal or default_journal(db.url), seen, tried, metrics.commit.observe)
    waiting = writer.journal.waiting
    metrics.watched(
        "journal_bytes", "Segments acknowledged that ClickHouse does not have yet", lambda: writer.journal.size
    )
    metrics.watched("journal_segments", "How many these are", lambda: waiting()[0])
    metrics.watched("journal_oldest_seconds", "Since the oldest of them was acknowledged", lambda: _age(waiting()[3]))
    metrics.watched(*BROKEN_SUMS, lambda: writer.journal.broken.count)
    metrics.watched("journal_limit_bytes", "Where nothing more is taken", lambda: writer.limit_bytes)
    return writer


def _age(oldest_unix_ns: Any) -> float:
    return 0.0 if oldest_unix_ns is None else max(0.0, time.time() - oldest_unix_ns / 1e9)
