"""The writer of a store on ClickHouse: acknowledges what its journal holds, and inserts it in batches.

Two threads: one writes down what comes and acknowledges it, whatever ClickHouse does; the other makes a batch of what
waits every few seconds, and sums up and removes between batches. A full journal takes nothing more, so senders wait.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.clickhouse.flush import Flusher, Seen
from roofwatch.store.clickhouse.holding import LostError, take_over
from roofwatch.store.clickhouse.journal import Journal, open_file
from roofwatch.store.clickhouse.opening import ClickHouse
from roofwatch.store.clickhouse.taking import weight
from roofwatch.store.config import Keep
from roofwatch.store.database import telling
from roofwatch.store.load import Hello
from roofwatch.store.outcome import Outcome
from roofwatch.store.unpack import Unpacked

BATCH_S = 5.0  # the oldest of what waits is inserted after so long…
BATCH_ROWS = 30_000  # …or once there are so many kernels: ClickHouse wants few large inserts
BATCH_MOST = 300_000  # of one batch where more waits: each has a dozen inserts, whose cost is mostly their number
GROUP_ROWS = 30_000  # of one transaction of the journal
LIMIT_BYTES = 4 << 30  # of the journal: two hours of 10,000 windows a minute
FULL_S = 0.5  # between two looks at a full journal
AGAIN_S = (0.5, 10.0)  # pause after a batch that failed, and the longest
UPKEEP_S = 1.0  # between looks at what there is to sum up
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    work: Unpacked | Hello
    done: Future[Outcome] = field(default_factory=Future)


class JournalWriter:
    """As ``ingest.Writer``: submit() gives a future of what became of a segment, once that is on disk."""

    def __init__(
        self,
        journal: Journal,
        flusher: Flusher,
        tried: Callable[[str], None] | None = None,
        took: Callable[[float], None] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """``tried`` hears after each try why it failed, "" where it did not; ``took`` how long a commit took."""
        self.journal, self.flusher, self.limit_bytes = journal, flusher, LIMIT_BYTES
        self._tried, self._took = tried or (lambda _: None), took or (lambda _: None)
        self._now_ns = now_ns
        self.lost: LostError | None = None  # since another store took the database over
        self.failed = ""  # why the last batch failed, "" where it did not
        self._jobs: queue.Queue[_Job | None] = queue.Queue()  # the server's budget bounds it
        self._wake, self._stop = threading.Event(), threading.Event()
        self._waiting_rows, self._oldest_s = 0, 0.0
        self._state = threading.Lock()
        count, rows, _, oldest = journal.waiting()
        if count:
            self._note(rows, time.monotonic() - max(0.0, time.time() - (oldest or 0) / 1e9))
        self._threads = [
            threading.Thread(target=self._guarded, args=(run,), name=f"roofwatch-{name}", daemon=True)
            for name, run in (("journal", self._take), ("batches", self._flush))
        ]
        for thread in self._threads:
            thread.start()

    def keep(self, keep: Keep) -> None:
        """Keep what there is for other times, from the next upkeep on."""
        self.flusher.keep = keep

    def submit(self, work: Unpacked | Hello) -> Future[Outcome]:
        """Hand work over; the future fails with RoofwatchError when the journal did: then it must be sent again."""
        job = _Job(work)
        job.done.set_running_or_notify_cancel()
        self._jobs.put(job)
        return job.done

    @property
    def full(self) -> bool:
        """Whether nothing more is taken."""
        return self.journal.size >= self.limit_bytes

    def close(self) -> None:
        """Write down what waits, insert what ClickHouse takes at once, then stop."""
        self._stop.set()
        self._jobs.put(None)
        self._threads[0].join()
        self._wake.set()
        self._threads[1].join()
        self.journal.close()

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException:
            _log.exception("a thread of the store ended")
            raise

    def _note(self, rows: int, since_s: float) -> None:
        with self._state:
            self._oldest_s = self._oldest_s or since_s
            self._waiting_rows += rows
        if self._waiting_rows >= BATCH_ROWS:
            self._wake.set()

    def _take(self) -> None:
        running = True
        while running:
            group, running = self._group(self._jobs.get())
            while group and self.full and not self._stop.is_set():
                self._wake.set()
                self._stop.wait(FULL_S)
            if group and self.lost is not None:
                self._fail(group, self.lost)  # its senders may reach the store that has the database
            elif group and self.full:
                self._fail(group, RoofwatchError("the journal is full, and ClickHouse does not take what is in it"))
            elif group:
                self._commit(group)

    def _group(self, first: _Job | None) -> tuple[list[_Job], bool]:
        group: list[_Job] = []
        rows, job = 0, first
        while job is not None:
            group.append(job)
            rows += job.work.rows if isinstance(job.work, Unpacked) else 0
            if rows >= GROUP_ROWS:
                return group, True
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, group: list[_Job]) -> None:
        begin = time.perf_counter()
        try:
            with telling(f"sqlite:///{self.journal.file}"), self.journal.write() as connection:
                outcomes, entries = self.journal.take(connection, [job.work for job in group], self._now_ns())
        except Exception as error:  # noqa: BLE001 - whatever it is: the senders must hear of it, and send again
            told = error if isinstance(error, RoofwatchError) else RoofwatchError(f"the journal failed: {error!r}")
            self._fail(group, told)
            return
        self._took(time.perf_counter() - begin)
        rows = 0
        for job, entry in zip(group, entries, strict=True):
            if entry is not None and isinstance(job.work, Unpacked):
                rows += weight(job.work)
                self.flusher.remember(entry, job.work)
                self.journal.size += 0 if job.work.envelope is None else len(job.work.envelope.payload)
        self._note(rows, time.monotonic())
        for job, outcome in zip(group, outcomes, strict=True):
            job.done.set_result(outcome)

    def _fail(self, group: list[_Job], error: RoofwatchError) -> None:
        for job in group:
            job.done.set_exception(error)

    def _flush(self) -> None:
        pause = AGAIN_S[0]
        while True:
            self._wake.wait(self._patience())
            self._wake.clear()
            stopping = self._stop.is_set() and not self._threads[0].is_alive()
            try:
                if self._due() or stopping:
                    self._batches()
                elif not self._stop.is_set():
                    self.flusher.upkeep()
                self._said("")
                self.lost, pause = None, AGAIN_S[0]
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again, and what comes is written down
                self.lost = error if isinstance(error, LostError) else None
                self._said(str(error))
                if not self._stop.wait(pause):
                    self._wake.set()
                pause = min(2 * pause, AGAIN_S[1])
            if stopping:
                return

    def _said(self, failed: str) -> None:
        if failed and failed != self.failed:
            _log.warning("ClickHouse does not take what is acknowledged, and is asked again: %s", failed)
        self.failed = failed
        self._tried(failed)

    def _patience(self) -> float:
        if not self._oldest_s:
            return UPKEEP_S
        return min(UPKEEP_S, max(0.0, self._oldest_s + BATCH_S - time.monotonic()))

    def _due(self) -> bool:
        waits = self._oldest_s and time.monotonic() >= self._oldest_s + BATCH_S
        return bool(waits or self._waiting_rows >= BATCH_ROWS or self.failed or self.full)

    def _batches(self) -> None:
        """All that waits; what came meanwhile is the next round's, or the rounds would have no end."""
        with self._state:
            self._waiting_rows, begun = 0, self._oldest_s
            self._oldest_s = 0.0
        try:
            last = self.journal.last()
            while self.flusher.flush(BATCH_MOST, last):
                self.journal.size = self.journal.waiting()[2]
        except BaseException:
            self._oldest_s = begun or time.monotonic()
            raise


def start(
    database: ClickHouse,
    keep: Keep,
    file: Path,
    seen: Seen | None = None,
    tried: Callable[[str], None] | None = None,
    took: Callable[[float], None] | None = None,
    now_ns: Callable[[], int] = time.time_ns,
) -> JournalWriter:
    """A running writer on that journal, which is made where there is none.

    Raises:
        RoofwatchError: another store holds the journal, or has the database; ClickHouse failed.
    """
    with telling(f"sqlite:///{file}"):
        journal = open_file(file)
    try:
        with telling(database.url), database.engine.connect() as connection:
            take_over(connection, journal, database.url, now_ns())
    except BaseException:
        journal.close()
        raise
    return JournalWriter(journal, Flusher(database, journal, keep, seen), tried, took, now_ns)
