"""Two programs that write one SQLite file, as a store and ``roofwatch import --db`` do: they take turns."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fresh
from sqlalchemy import func, insert, select

from roofwatch.store.database import Database
from roofwatch.store.schema import segments

EACH = 15


def written(db: Database, agent: int, together: threading.Barrier) -> list[int]:
    """Transactions that read, then write: begun as readers' SQLite refuses them at once. Gives what each read."""
    read = []
    for sequence in range(EACH):
        together.wait(20)
        with db.write() as connection:
            read.append(connection.scalar(select(func.count()).select_from(segments)) or 0)
            time.sleep(0.002)  # by now the other one is here, too
            row = {"agent_id": agent, "sequence": sequence, "crc32": 1, "windows": 1, "received_unix_ns": 1}
            connection.execute(insert(segments).values(row))
    return read


def test_who_reads_before_it_writes_waits_for_the_other(tmp_path: Path) -> None:
    """Neither is refused, and neither goes by what it read before the other wrote: each counts one row more."""
    file = tmp_path / "store.db"
    two, together = [fresh.opened(file), fresh.opened(file)], threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(written, db, agent, together) for agent, db in enumerate(two)]
        read = [one.result(60) for one in waiting]
    assert sorted(read[0] + read[1]) == list(range(2 * EACH))
    for db in two:
        db.close()
