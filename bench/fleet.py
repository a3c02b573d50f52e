"""A fleet against one store on Postgres with fsync, for growing numbers of agents: the table of docs/store.md.

    python bench/fleet.py --agents 125,250,500,1000 --minutes 0.5
    python bench/fleet.py --agents 1000 --minutes 5

Each agent has eight devices with windows of 300 kernels; at 1.25x it sends ten windows a minute. The Postgres
is the one that the tests use, on disk and synced. It takes the whole machine for minutes, so ``make bench`` runs it
only where it is named. "visible" is when ``top`` counts a window, asked once a second. Acknowledgements, visibility
and, of the most agents in three minutes or more, memory have limits. Exit code 3: a window is lost, double or rejected.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _servers
import numpy as np
import psutil
from _rows import BROKEN, or_skipped, row, say
from postgres_server import Postgres

from roofwatch.cli.fleet import source
from roofwatch.cli.fleet.local import Local, local_store
from roofwatch.cli.fleet.replay import Replayed, replay
from roofwatch.cli.fleet.trial import plan
from roofwatch.proto.trust import Material

MIB = 1 << 20
SETTINGS = ("fsync=on", "synchronous_commit=on", "shared_buffers=256MB", "autovacuum=on", "max_wal_size=1GB")
EVERY_S, SHOWN_S = 1.0, 30.0  # between two looks at memory; between two that are printed
WARM_S = 60.0  # the store remembers signatures and processes meanwhile: the slope is of what comes after
ACK_S, VISIBLE_S = 2.0, 15.0  # at most: acknowledgement, p99; visible to `top`, p95
# By how much of its memory the store may grow in a run's second half. It gets to know processes and signatures in the
# first two minutes (docs/store.md): of a run of three that still is some 5 %, of longer ones nothing.
GROWTH_PERCENT, GROWTH_MINUTES = 10.0, 3.0


@dataclass
class Watched:
    """What store and server took, looked at while a run goes on."""

    times_s: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    def slope(self) -> float | None:
        """Bytes a minute after the first, by least squares; None where there is too little."""
        times, sizes = np.array(self.times_s), np.array(self.resident, float)
        after = times >= min(WARM_S, times[-1] / 2) if len(times) else np.zeros(0, bool)
        return float(np.polyfit(times[after], sizes[after], 1)[0] * 60) if int(after.sum()) >= 10 else None

    def growth_percent(self) -> float | None:
        """Growth over the second half, by least squares, of the memory at its begin; None where there is too little."""
        times, sizes = np.array(self.times_s), np.array(self.resident, float)
        second = times >= times[-1] / 2 if len(times) else np.zeros(0, bool)
        if int(second.sum()) < 10:
            return None
        slope, begin = np.polyfit(times[second] - times[second][0], sizes[second], 1)
        return float(100 * slope * (times[-1] - times[second][0]) / begin)

    def shown(self) -> str:
        """Memory every 30 s."""
        kept = [size for i, size in enumerate(self.resident) if i % int(SHOWN_S / EVERY_S) == 0]
        return " ".join(f"{size / MIB:.0f}" for size in [*kept, *self.resident[-1:]])


@contextmanager
def watching(local: Local) -> Iterator[Watched]:
    """Look at the store's memory once a second."""
    found, over = Watched(), threading.Event()

    def look() -> None:
        begin = time.monotonic()
        while not over.wait(EVERY_S):
            found.times_s.append(time.monotonic() - begin)
            found.resident.append(local.resident_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        over.set()
        looking.join()


class Server:
    """Processor time of a Postgres: of its processes that are there, and of those that ended."""

    def __init__(self, postgres: Postgres) -> None:
        assert postgres.process is not None
        self._parent = psutil.Process(postgres.process.pid)

    def cpu_s(self) -> float:
        """User and system."""
        own = self._parent.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system  # those that ended
        for child in self._parent.children(recursive=True):
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return float(total)


def waits(name: str, found: Mapping[str, Any]) -> None:
    """Rows of acknowledgement and visibility; with none, the limit does not hold."""
    for what, key, label, most in (
        ("acknowledgement", "ack_p50_s", "p50", None),
        ("acknowledgement", "ack_p99_s", "p99", ACK_S),
        ("visible to `top`", "freshness_p50_s", "p50", None),
        ("visible to `top`", "freshness_p95_s", "p95", VISIBLE_S),
    ):
        problem = "nothing was measured" if found[key] is None and most else ""
        row(f"{name}: {what}, {label}", found[key] or 0.0, "s", at_most=most, problem=problem)


def memory(name: str, watched: Watched, *, judged: bool) -> None:
    """Rows of the store's memory; ``judged``: its growth has a limit."""
    row(f"{name}: largest memory of the store", max(watched.resident, default=0) / MIB, "MiB")
    if (slope := watched.slope()) is not None:
        row(f"{name}: growth of memory after the first minute", slope / MIB, "MiB a minute")
    if judged and (growth := watched.growth_percent()) is not None:
        row(f"{name}: growth of memory over the second half", growth, "%", at_most=GROWTH_PERCENT)
    say(f"{name}: memory of the store each 30 s, MiB: {watched.shown()}")


def rows(result: Replayed, server_s: float, size: int, watched: Watched, *, judged: bool = False) -> bool:
    """Print the rows of a run; whether each window was stored exactly once. ``judged``: as of ``memory``."""
    found, sent = result.as_json(), result.tally.sent
    acked, name = max(1, found["windows_acknowledged"]), f"fleet of {found['agents']:,} agents"
    row(f"{name}: windows acknowledged a minute", found["windows_per_minute"], sent=sent)
    waits(name, found)
    row(f"{name}: processor time of the store a window", (result.store_cpu_s or 0) / acked * 1e3, "ms")
    row(f"{name}: processor time of Postgres a window", server_s / acked * 1e3, "ms")
    row(f"{name}: bytes a window", size / acked, "B")
    memory(name, watched, judged=judged)
    wrong = found["problems"] or ([] if sent else ["no window was sent: --minutes or --rate is too little"])
    kept = row(f"{name}: what was not stored exactly once", len(wrong), at_most=0, problem="; ".join(wrong[:3]))
    return kept.ok is True


def measured(postgres: Postgres, agents: int, minutes: float, rate: float, *, most: bool) -> bool:
    """One run, on a database of its own; whether each window was stored exactly once. ``most``: of agents."""
    name = postgres.create()
    windows = source.drawn(1)
    with (
        tempfile.TemporaryDirectory(prefix="roofwatch-fleet-") as folder,
        local_store(Path(folder), postgres.url(name)) as local,
    ):
        empty, server = size_of(postgres, name), Server(postgres)
        before = server.cpu_s()
        with watching(local) as watched:
            result = replay(windows, plan(agents, rate, minutes * 60, 1), local.address, local, say, Material())
        took = server.cpu_s() - before
        size = size_of(postgres, name) - empty
    postgres.run(f"DROP DATABASE {name}")
    return rows(result, took, size, watched, judged=most and minutes >= GROWTH_MINUTES)


def size_of(postgres: Postgres, name: str) -> int:
    """Bytes of a database."""
    return int(postgres.run(f"SELECT pg_database_size('{name}')")[0][0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the rows as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="125,250,500,1000", help="numbers with commas between")
    parser.add_argument("--minutes", type=float, default=0.5, help="how long each sends")
    parser.add_argument("--rate", type=float, default=1.25, help="windows a device and minute")
    given = parser.parse_args(arguments)
    numbers, good = [int(count) for count in given.agents.split(",")], True
    with or_skipped("fleet on Postgres"), _servers.postgres(SETTINGS) as postgres:
        for agents in numbers:
            good &= measured(postgres, agents, given.minutes, given.rate, most=agents == max(numbers))
    return 0 if good else BROKEN


if __name__ == "__main__":
    sys.exit(main())
