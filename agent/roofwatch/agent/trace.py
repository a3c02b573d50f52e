"""The descriptor of a trace, checked: only a plain file of the announced size, without holes, that stays as it is.

Runs in the parse worker: even fstat may wait for whoever serves the file, and the daemon never waits for a job.
"""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from typing import Any

from roofwatch.agent import counters

BUFFER_BYTES = 1 << 16


class TraceRefused(Exception):  # noqa: N818 - a verdict on input, not a fault of ours
    """The descriptor is not a trace we read. ``reason`` is one of the counters' names."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Trace:
    """A checked trace: its descriptor, and what its file was when we looked."""

    fd: int
    mark: tuple[int, int, int]

    def unchanged(self) -> None:
        """Check again after reading.

        Raises:
            TraceRefused: the file was written to or cut meanwhile, so what was read is neither the old nor the new.
        """
        if _mark(os.fstat(self.fd)) != self.mark:
            raise TraceRefused(counters.TRACE_CHANGED, "the trace changed while it was read")


def checked(fd: int, announced: int, most: int) -> Trace:
    """Look at a descriptor that a job passed.

    Raises:
        TraceRefused: not a regular file or memfd, empty, over ``most`` bytes, not of the announced size, or with holes.
    """
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise TraceRefused(counters.TRACE_NOT_REGULAR, f"the trace is a {_kind(info.st_mode)}, not a regular file")
    if info.st_size == 0:
        raise TraceRefused(counters.TRACE_EMPTY, "the trace is empty")
    if info.st_size > most:
        raise TraceRefused(counters.TRACE_TOO_LARGE, f"the trace has {info.st_size} bytes, the limit is {most}")
    if info.st_size != announced:
        raise TraceRefused(
            counters.TRACE_CHANGED, f"the trace has {info.st_size} bytes where {announced} were announced"
        )
    if _has_hole(fd, info.st_size):
        raise TraceRefused(counters.TRACE_SPARSE, "the trace has holes")
    return Trace(fd, _mark(info))


def _mark(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns


def _has_hole(fd: int, size: int) -> bool:
    try:
        return os.lseek(fd, 0, os.SEEK_HOLE) < size
    except OSError:
        return False  # this file system cannot tell; the size limit still holds


class _ByPosition(io.RawIOBase):
    """Reads at positions of its own: the descriptor's is shared with the job, which could move it meanwhile."""

    def __init__(self, fd: int) -> None:
        self._fd, self._at = fd, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._fd, [buffer], self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._fd).st_size}[whence]
        self._at = max(0, start + offset)
        return self._at


def opened(fd: int) -> io.BufferedReader:
    """A file to read a checked trace from, whatever the job does to the descriptor's position. Closes nothing."""
    return io.BufferedReader(_ByPosition(fd), BUFFER_BYTES)


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISDIR, "folder"), (stat.S_ISCHR, "device"))
    return next((name for test, name in kinds if test(mode)), "special file")
