"""What is left over: processes, descriptors, threads, sockets, files, shared memory; and whether memory is flat."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

OURS = ("roofwatch", "rw-")  # of files in a job's temporary folder; the others are the job's own


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    descriptors: tuple[str, ...]
    threads: int
    rss: int

    @staticmethod
    def of(pid: int) -> Held:
        """Read from /proc."""
        names = []
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.append(kind_of(str(entry.readlink())))
        process = psutil.Process(pid)
        return Held(tuple(sorted(names)), process.num_threads(), process.memory_info().rss)


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
    """A line through memory over time."""

    name: str
    seconds: float
    first: int  # bytes, medians of the first and the last third
    last: int
    per_hour: float  # bytes
    error: float  # standard error of it

    def told(self) -> str:
        """For people."""
        mib = 1 << 20
        return (
            f"{self.name}: {self.first / mib:.1f} → {self.last / mib:.1f} MiB in {self.seconds:.0f} s, "
            f"{self.per_hour / mib:+.1f} ± {2 * self.error / mib:.1f} MiB an hour"
        )

    def grows(self) -> bool:
        """Whether it grew by more than noise: over 5 % and 4 MiB, on a line that is not flat within twice its error."""
        grown_by = self.last - self.first
        return grown_by > max(4 << 20, self.first // 20) and self.per_hour - 2 * self.error > 0


def slope(name: str, samples: Sequence[tuple[float, int]]) -> Slope | None:
    """Least squares over (seconds, bytes); None where there are too few to tell."""
    if len(samples) < 12:
        return None
    third = len(samples) // 3
    first = int(statistics.median(b for _, b in samples[:third]))
    last = int(statistics.median(b for _, b in samples[-third:]))
    xs, ys = [t for t, _ in samples], [float(b) for _, b in samples]
    mean = statistics.fmean(xs)
    spread = sum((x - mean) ** 2 for x in xs)
    line = statistics.linear_regression(xs, ys)
    rest = sum((y - line.intercept - line.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    error = (rest / (len(xs) - 2) / spread) ** 0.5
    return Slope(name, xs[-1] - xs[0], first, last, line.slope * 3600, error * 3600)
