"""The one writer: groups what waits, commits it, and only then says what became of each segment."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.config import Keep
from roofwatch.store.database import Database, telling
from roofwatch.store.load import Hello, Loader
from roofwatch.store.outcome import Outcome, rejected
from roofwatch.store.retention import Upkeep
from roofwatch.store.unpack import Unpacked

GROUP_ROWS = 30_000  # of one transaction: large enough that its fsync is nothing, small enough to ack within 0.1 s
GROUP_WINDOWS = 2_000  # the same of windows that have few kernels, or none
AGAIN_S = 30.0  # so long a group waits for a database server that restarts, before its senders are told…
PAUSE_S = 0.2  # …with so long between two tries
IDLE_S = 30.0  # without work for so long: give back the log's space
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    work: Unpacked | Hello
    done: Future[Outcome] = field(default_factory=Future)


class Writer:
    """Stores segments on a thread of its own; close() stores what still waits.

    ``alone``: who submits tells of failures, so that the log need not.
    """

    def __init__(self, database: Database, keep: Keep | None = None, *, alone: bool = False) -> None:
        self._database = database
        self._alone = alone
        self._upkeep = Upkeep(database, keep or Keep())
        self._loader = Loader(now_ns=time.time_ns)
        self._keep_log = database.log_keeper()
        self._failed = ""  # what was said of the last commit that failed, if none succeeded since
        self._tidy_s = time.monotonic() + IDLE_S
        self._jobs: queue.Queue[_Job | None] = queue.Queue()  # the server's budget bounds it
        self._thread = threading.Thread(target=self._run, name="roofwatch-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Unpacked | Hello) -> Future[Outcome]:
        """Hand work over.

        The future gives what became of it once that is on disk, or RoofwatchError when the database failed: then
        nothing is known of it, and it must be sent again.
        """
        job = _Job(work)
        job.done.set_running_or_notify_cancel()  # from here on nobody can cancel it
        self._jobs.put(job)
        return job.done

    def keep(self, keep: Keep) -> None:
        """Keep what there is for other times, from the next upkeep on."""
        self._upkeep.keep = keep

    def broken_sums(self) -> int:
        """How many sums could not be made or added to: a block that they are made of is damaged."""
        of = (self._loader.broken, self._upkeep.broken)
        return len(of[0] | of[1]) + sum(one.forgotten for one in of)

    def close(self) -> None:
        """Store what waits, then stop. Nothing may be submitted any more."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        running = True
        while running:
            try:
                first = self._jobs.get(timeout=min(IDLE_S, self._upkeep.wait_s() + 0.01))
            except queue.Empty:
                self._upkeep.run()
                self._idle()
                continue
            group, running = self._group(first)
            first = None
            if group:
                self._commit(group)
                group.clear()  # the next one may be long in coming, and this one large
                with contextlib.suppress(Exception):  # the only writer must not end by tidying up; a commit will tell
                    self._keep_log()
                self._tidy_s = time.monotonic() + IDLE_S
            if running:
                self._upkeep.run()

    def _group(self, first: _Job | None) -> tuple[list[_Job], bool]:
        """What waits now, up to a limit; a commit takes long enough for the next group to gather."""
        group: list[_Job] = []
        rows, windows, job = 0, 0, first
        while job is not None:
            group.append(job)
            if isinstance(job.work, Unpacked):
                rows, windows = rows + job.work.rows, windows + len(job.work.windows)
            if rows >= GROUP_ROWS or windows >= GROUP_WINDOWS:
                return group, True
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, group: list[_Job]) -> None:
        try:
            outcomes = self._store(group)
        except (IntegrityError, DataError, OverflowError, ValueError) as error:
            # Checked segments cannot get here; should one, the others must not suffer for it.
            if len(group) > 1:
                for job in group:
                    self._commit([job])
            else:
                group[0].done.set_result(rejected(f"the database refuses it: {error}"))
            return
        except Exception as error:  # noqa: BLE001 - whatever it is: the senders must hear of it, and the next group is tried
            failure = error if isinstance(error, RoofwatchError) else RoofwatchError(f"the store failed: {error!r}")
            if str(failure) != self._failed and not self._alone:
                self._failed = str(failure)
                _log.warning("a commit failed, and its senders will send again: %s", failure)
            for job in group:
                job.done.set_exception(failure)
            return
        self._failed = ""
        for job, outcome in zip(group, outcomes, strict=True):
            job.done.set_result(outcome)

    def _store(self, group: list[_Job]) -> list[Outcome]:
        """Once more where the connection broke: what a commit that was not heard of stored is then a repetition."""
        until = time.monotonic() + AGAIN_S
        while True:
            try:
                return self._transaction(group)
            except (IntegrityError, DataError):
                raise
            except (DBAPIError, OSError) as error:
                if not self._database.lost(error) or time.monotonic() > until:
                    with telling(self._database.url):
                        raise
            time.sleep(PAUSE_S)

    def _transaction(self, group: list[_Job]) -> list[Outcome]:
        try:
            with self._database.write() as connection:
                outcomes = self._loader.load(connection, [job.work for job in group])
        except BaseException:
            self._loader.rollback()
            raise
        self._loader.commit()
        return outcomes

    def _idle(self) -> None:
        if time.monotonic() < self._tidy_s:
            return
        self._tidy_s = time.monotonic() + IDLE_S
        with contextlib.suppress(Exception):  # whatever is wrong, the next commit will tell
            self._database.truncate_log()
