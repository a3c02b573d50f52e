"""Batches of the journal into ClickHouse, each once: sealed before its first try, and repeated as it was until done."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofwatch.store.clickhouse import holding, pieces, sums, upkeep
from roofwatch.store.clickhouse.batch import PART_ROWS, Batch, Tables, parts_of
from roofwatch.store.clickhouse.journal import Entry, Journal, envelope_of, hello_of
from roofwatch.store.clickhouse.opening import ClickHouse
from roofwatch.store.clickhouse.taking import weight
from roofwatch.store.config import Keep
from roofwatch.store.database import telling
from roofwatch.store.load import Hello
from roofwatch.store.retention import Believed
from roofwatch.store.rollup_schema import SECOND_NS
from roofwatch.store.unpack import Unpacked, UnpackedWindow, Unpacker

REMEMBERED_ROWS = 300_000  # of segments in memory until their batch (60 MB); others are unpacked once more
STALE_MOST = 100_000  # pieces that are known to be told; more are told again
Seen = Callable[[UnpackedWindow], None]


@dataclass(slots=True)
class Flusher:
    """What stands between journal and database; used by one thread, but for remember()."""

    database: ClickHouse
    journal: Journal
    keep: Keep
    seen: Seen | None = None  # told of each window that can be asked for now
    now_ns: Callable[[], int] = time.time_ns
    tables: Tables = field(default_factory=Tables)
    unpacker: Unpacker = field(default_factory=Unpacker)
    cleared_s: float = 0.0
    believed: Believed = field(init=False)
    _known: OrderedDict[int, Unpacked] = field(default_factory=OrderedDict)
    _rows: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """The clock is believed as it is at the start."""
        self.believed = Believed(self.now_ns() - int(time.monotonic() * SECOND_NS))

    def remember(self, entry: int, work: Unpacked) -> None:
        """A segment that was just written down."""
        size = weight(work)
        with self._lock:
            if self._rows + size <= REMEMBERED_ROWS:
                self._known[entry] = work
                self._rows += size

    def flush(self, rows: int, last: int | None = None) -> bool:
        """Insert the oldest batch, of entries up to ``last``; False where nothing waited.

        Raises:
            RoofwatchError: ClickHouse did not take it; it stays in the journal.
        """
        with self.journal.write() as kept:
            found = self.journal.sealed(kept, rows, last)
            version = self.journal.next(kept, "version")
        if found is None:
            return False
        number, entries = found
        batch, told, late = self._batch(number, entries)
        with telling(self.database.url), self.database.engine.connect() as connection:
            self.tables.version = version
            self.tables.write_before(connection, batch)
            pieces.publish(connection, told, version)
            holding.renew(connection, self.journal, self.now_ns())  # by these a batch is seen
            self.tables.write_windows(connection, batch)
            for key, own in late.items():
                sums.add(connection, self.journal, number, key, own)
        with self.journal.write() as kept:
            self.journal.done(kept, number)
        self._done(entries, batch, [(grain, bucket, process) for grain, bucket, process, *_ in told])
        return True

    def _batch(self, number: int, entries: Sequence[Entry]) -> tuple[Batch, list[tuple[Any, ...]], pieces.Late]:
        """What is to be inserted, pieces that lack windows from then on, and windows of which sums alone are kept."""
        work = [self._work(entry) for entry in entries]
        older = any(entry.older for entry in entries)
        parts = parts_of(work, [entry.numbers for entry in entries], sys.maxsize if older else PART_ROWS)
        with telling(self.database.url), self.database.engine.connect() as connection:
            holding.renew(connection, self.journal, self.now_ns())
            had = holding.known_before(connection, self.journal, [one for part in parts for one in part])
        parts = [[(own, w) for own, w in part if own not in had] for part in parts]
        received = [entry.received_unix_ns for entry in entries]
        with self.journal.write() as kept:
            stale, late = pieces.mark(kept, [one for part in parts for one in part], self.journal.stale)
            told = pieces.states(kept, stale)
        # A window whose day is gone has no hour: it is late once.
        gone = frozenset(own for of in late.values() for own, _ in of)
        return Batch(self._token(number, entries), list(zip(work, received, strict=True)), parts, gone), told, late

    def _done(self, entries: Sequence[Entry], batch: Batch, stale: Sequence[pieces.Key]) -> None:
        """A batch can be asked for."""
        if len(self.journal.stale) > STALE_MOST:
            self.journal.stale.clear()
        self.journal.stale.update(stale)
        self._forget(entries)
        if self.seen is not None:
            for _, w in batch.windows:
                self.seen(w)

    def upkeep(self) -> None:
        """A bounded piece of what there is to sum up, and now and then to remove.

        Raises:
            RoofwatchError: ClickHouse failed; it is to be tried again.
        """
        with telling(self.database.url), self.database.engine.connect() as connection:

            def sure() -> None:
                holding.renew(connection, self.journal, self.now_ns())

            sums.sweep(connection, self.journal, self.now_ns(), sure=sure)
            if time.monotonic() >= self.cleared_s:
                sure()
                now_ns = self.believed.time_ns(self.now_ns(), time.monotonic())
                upkeep.clear(connection, self.journal, upkeep.reference(self.journal, now_ns), self.keep)
                self.cleared_s = time.monotonic() + upkeep.EVERY_S

    def _work(self, entry: Entry) -> Unpacked | Hello:
        with self._lock:
            known = self._known.get(entry.id)
        if known is not None:
            return known
        payload = self.journal.payload(entry.id)
        if not entry.numbers and payload[:1] == b"[":
            return hello_of(payload)
        return self.unpacker.unpack(envelope_of(payload))

    def _forget(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            for entry in entries:
                known = self._known.pop(entry.id, None)
                self._rows -= weight(known) if known else 0

    def _token(self, number: int, entries: Sequence[Entry]) -> str:
        """The same for the same segments of the same journal, and never for others."""
        told = ":".join([self.journal.name, str(number), *(str(entry.id) for entry in entries)])
        return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
