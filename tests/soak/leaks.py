"""What is left over: processes, descriptors, threads, sockets, files, shared memory; and whether memory is flat."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import psutil

LEAK = 20 << 20  # bytes an hour that count: of a store whose jobs are all new to it pairs of moments said 13
WARM_S = 60.0  # of a new process, which gets to know its surroundings, before its memory counts
TELLS_S = 240.0  # so long it takes to tell that
MOMENTS = 20  # in which memory is looked at: a segment in hand is no growth
GROSS = 4 << 20  # bytes, in a shorter time
OURS = ("roofwatch", "rw-")  # of files in a job's temporary folder; the others are the job's own


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    descriptors: tuple[str, ...]
    threads: int
    memory: int  # bytes of its own; pages of files come and go as the machine has room for them

    @staticmethod
    def of(pid: int) -> Held:
        """Read from /proc. Raises ProcessLookupError where it has ended, whether or not somebody has waited for it."""
        names = []
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.append(kind_of(str(entry.readlink())))
        told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        if "RssAnon" not in told:
            raise ProcessLookupError(f"process {pid} has ended, and has no memory any more")
        memory = sum(int(told[name].split()[0]) << 10 for name in ("RssAnon", "VmSwap"))
        return Held(tuple(sorted(names)), int(told["Threads"]), memory)


def kind_of(link: str) -> str:
    """A descriptor without numbers, so that two processes can be compared."""
    return link.partition(":[")[0] if ":[" in link else link


def grown(name: str, before: Held, after: Held, threads: int = 2, descriptors: int = 0) -> list[str]:
    """What a process holds at rest that one of its kind did not when it was new.

    A pool's threads and connections come with the first work and stay, so a few more are allowed.
    """
    found = []
    more = list(after.descriptors)
    for one in before.descriptors:
        if one in more:
            more.remove(one)
    if len(after.descriptors) - len(before.descriptors) > descriptors:
        found.append(f"{name} holds {len(more)} descriptors more than when it was new: {', '.join(more[:12])}")
    if after.threads - before.threads > threads:
        found.append(f"{name} has {after.threads} threads, {before.threads} when it was new")
    return found


def processes(known: Iterable[int] = ()) -> list[str]:
    """Descendants that are still there; those that only wait to be buried are."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid not in known:
                found.append(f"process {process.pid} is left: {' '.join(process.cmdline())[:200] or process.name()}")
    return found


def files(folder: Path, allowed: Iterable[str] = (), only: Sequence[str] = ()) -> list[str]:
    """Entries of a folder that should be empty."""
    names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    left = [n for n in names if n not in set(allowed) and (not only or n.startswith(tuple(only)))]
    return [f"{folder}/{name} is left" for name in left]


def sockets() -> list[str]:
    """Of the network namespace, where it is ours: listeners of TCP, and Unix sockets with a name."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            found.append(f"somebody listens on port {int(fields[1].split(':')[1], 16)}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7:
            found.append(f"the Unix socket {fields[7]} is open")
    return found


def segments() -> list[str]:
    """System V shared memory of the namespace."""
    listed = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return [f"shared memory {line.split()[1]} is left" for line in listed]


@dataclass(frozen=True)
class Slope:
    """A line through memory over time. Rates are bytes an hour."""

    name: str
    seconds: float
    first: int  # bytes, medians of the first and the last third
    last: int
    per_hour: float  # the middle of what pairs of moments say
    low: float  # what three of four pairs exceed

    @property
    def told_apart(self) -> bool:
        """Whether it is long enough to tell a leak from what a program takes now and then."""
        return self.seconds >= TELLS_S

    def told(self) -> str:
        """For people."""
        mib = 1 << 20
        return (
            f"{self.name}: {self.first / mib:.1f} → {self.last / mib:.1f} MiB in {self.seconds:.0f} s, "
            f"{self.per_hour / mib:+.1f} MiB an hour, three of four pairs of moments say {self.low / mib:+.1f} or more"
            + ("" if self.told_apart else f" (shorter than {TELLS_S:.0f} s: only what is gross counts)")
        )

    def grows(self) -> bool:
        """Whether it leaks; where the time is too short for that, whether it grew by more than a new program may."""
        if self.told_apart:
            return self.low > LEAK
        return self.last - self.first > max(GROSS, self.first // 20) and self.low > 0


def slope(name: str, samples: Sequence[tuple[float, int]]) -> Slope | None:
    """Of (seconds, bytes), by all pairs of medians of moments; None where there are too few to tell.

    A line by least squares takes a single step, as of what is done for the first time, for a rise all along; of pairs
    of moments at most half lie on both sides of it.
    """
    if len(samples) < 12:
        return None
    third = len(samples) // 3
    first = int(statistics.median(b for _, b in samples[:third]))
    last = int(statistics.median(b for _, b in samples[-third:]))
    seconds = samples[-1][0] - samples[0][0]
    moments: dict[int, list[int]] = defaultdict(list)
    for at, size in samples:
        moments[int((at - samples[0][0]) / seconds * MOMENTS * 0.9999)].append(size)
    points = [(number * seconds / MOMENTS, statistics.median(sizes)) for number, sizes in sorted(moments.items())]
    rates = [(b - a) / (later - at) * 3600 for (at, a), (later, b) in combinations(points, 2)]
    low, middle, _ = statistics.quantiles(rates, n=4)
    return Slope(name, seconds, first, last, middle, low)


@dataclass
class Samples:
    """What daemons held over time: name → (pid, seconds, descriptors, threads, bytes)."""

    begun: float = field(default_factory=time.monotonic)
    taken: dict[str, list[tuple[int, float, int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    warm_s: float = 0.0  # from then on memory counts…
    rest_s: float = math.inf  # …until there is nothing more to do

    def take(self, pids: Mapping[str, int]) -> None:
        """Once, of those that are up."""
        for name, pid in pids.items():
            with contextlib.suppress(OSError, psutil.Error):
                held = Held.of(pid)
                row = (pid, time.monotonic() - self.begun, len(held.descriptors), held.threads, held.memory)
                self.taken[name].append(row)

    def slopes(self) -> list[Slope]:
        """Of the memory of each daemon's last process, from when it was warm for as long as there was work."""
        found = []
        for name, rows in self.taken.items():
            last = [row for row in rows if row[0] == rows[-1][0]]
            begin = max(self.warm_s, last[0][1] + WARM_S)
            warm = [(row[1], row[4]) for row in last if begin <= row[1] < self.rest_s]
            found.append(slope(name, warm))
        return [slope for slope in found if slope is not None]
