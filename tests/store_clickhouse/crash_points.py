"""A store that dies before its first insert, and after its nth for every n; run as a program: URL JOURNAL.

Each child repeats the batch in which the one before died, takes a segment down and dies in that one's batch. Writes
what was sent as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

from rollup_builders import BEGIN_NS, DAY_NS, HOUR_NS
from store_builders import GEMM, NORM, process_of, segment_of, stat, window_of

from roofwatch.store import database
from roofwatch.store.clickhouse import batch, pieces, sums, upkeep
from roofwatch.store.clickhouse.flush import Flusher
from roofwatch.store.clickhouse.journal import open_file
from roofwatch.store.clickhouse.opening import ClickHouse
from roofwatch.store.config import Keep
from roofwatch.store.unpack import Unpacker

URL, FILE = sys.argv[1], Path(sys.argv[2])
KEEP = Keep(3600, 99 * 86_400)
DIED = 9


def segment(number: int) -> object:
    """A window of a day whose kernels are gone, and one of a day that is not over."""
    kernels = [stat(GEMM, [1000 + number]), stat(NORM, [50, 60])]
    windows = [
        window_of(f"{number}-{k}", kernels, start_unix_ns=start, process=process_of(pid=1), dropped={"x": 1})
        for k, start in enumerate((BEGIN_NS + HOUR_NS, BEGIN_NS + 3 * DAY_NS))
    ]
    return Unpacker().unpack(segment_of(windows, number + 1))


def child(number: int, dies_after: int | None, *, clear: bool = False) -> int:
    """Repeat what is left, take a segment down, and flush; the exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    db = database.open(URL, migrate=False)
    assert isinstance(db, ClickHouse)
    journal = open_file(FILE)
    flusher = Flusher(db, journal, KEEP)
    while flusher.flush(30_000):
        pass
    with journal.write() as kept:
        journal.take(kept, [segment(number)], time.time_ns())
    if dies_after is not None:
        _die(dies_after)
    flusher.tables.dimensions.rollback()  # as after a start: nothing is known to be written
    flusher.flush(30_000)
    if clear:
        with db.engine.connect() as connection:
            upkeep.prune_all(connection, journal, BEGIN_NS + 2 * DAY_NS, KEEP)
    os._exit(0)


def _die(at: int) -> None:
    lock, count = threading.Lock(), 0

    def dying(plain: Callable[..., int]) -> Callable[..., int]:
        def one(*arguments: object) -> int:
            nonlocal count
            with lock:  # kernels go beside the rest: of one insert after the other it is told which is the nth
                if count == at:
                    os._exit(DIED)
                rows = plain(*arguments)
                count += 1
                if count == at:
                    os._exit(DIED)
                return rows

        return one

    for module in (batch, pieces, sums):
        module.insert = dying(module.insert)  # type: ignore[attr-defined]
    batch.insert_blocks = dying(batch.insert_blocks)


def main() -> None:
    """All points, one after the other."""
    assert child(0, None, clear=True) == 0
    number = 0
    while True:
        number += 1
        code = child(number, number - 1)
        assert code in {0, DIED}, code
        if code == 0:
            break
    json.dump({"segments": number + 1, "deaths": number - 1}, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # a process that forked beside gRPC's threads may not end by itself


main()
