"""Wait until no thread of this process can still be inside a profiler callback that began before now.

A callback is a few microseconds of CPU time between two ops. A thread is past it when it has run for NEED_NS since, or
when it sleeps, without having run, after all others are past it (so that nobody can hold a lock it waits for).
"""

import ctypes
import os
import threading
import time
from typing import Callable, Dict, Optional, Set, Tuple

NEED_NS = 1_000_000  # hundreds of times the longest callback seen
TICK_S = 0.005
MOST_S = 5.0  # then the window's memory is kept and the process is given up


def threads() -> Set[int]:
    """Ids of the threads of this process. Raises OSError where /proc is hidden."""
    return {int(name) for name in os.listdir("/proc/self/task")}


def cpu_ns(tid: int) -> Optional[int]:
    """CPU time of a thread to the nanosecond, None when it has ended.

    The clock that ``pthread_getcpuclockid`` gives; /proc/*/schedstat lags by a scheduler tick for a running thread.
    """
    try:
        return time.clock_gettime_ns((~tid << 3) | 6)
    except OSError:
        return None


# With the GIL held: of 32 busy Python threads each gets its turn whenever open() or read() gives the GIL away.
_libc = ctypes.PyDLL(None)
_buffer = ctypes.create_string_buffer(512)


def state(tid: int) -> str:
    """One letter as in ps: R runs or wants to, S sleeps, D waits for a page or a disk; empty when it has ended."""
    fd = _libc.open(b"/proc/self/task/%d/stat" % tid, os.O_RDONLY | os.O_CLOEXEC)
    if fd < 0:
        return ""
    size = _libc.read(fd, _buffer, 511)
    _libc.close(fd)
    fields = _buffer.raw[: max(size, 0)].rpartition(b")")[2].split(None, 1)
    return fields[0].decode() if fields else ""


def quiesce(stop: Callable[[], bool], most: float = MOST_S) -> bool:
    """True when every other thread is past any callback it was in; False after ``most`` seconds or when ``stop()``."""
    me = threading.get_native_id()
    first = {tid: cpu_ns(tid) for tid in threads() if tid != me}
    waiting = set(first)
    before: Dict[int, Tuple[Optional[int], str]] = {}
    end = time.monotonic() + most
    clear = False
    while not stop() and time.monotonic() < end:
        time.sleep(TICK_S)
        cpu = {tid: cpu_ns(tid) for tid in waiting}
        waiting = {tid for tid in waiting if not _ran(first[tid], cpu[tid])}
        now = {tid: (cpu[tid], state(tid)) for tid in waiting}
        still = {tid for tid in waiting if now[tid][1] == "S" and before.get(tid) == now[tid]}
        if waiting == still:
            if clear:
                return True
            clear = True
        else:
            clear = False
        before = now
    return False


def _ran(first: Optional[int], cpu: Optional[int]) -> bool:
    return first is None or cpu is None or cpu - first >= NEED_NS


def asleep(who: Set[int], most: float) -> bool:
    """True when these threads (those that live) slept at four looks in a row; False after ``most`` seconds."""
    end = time.monotonic() + most
    seen: Dict[int, Tuple[Optional[int], str]] = {}
    looks = 0
    while time.monotonic() < end:
        now = {tid: (cpu_ns(tid), state(tid)) for tid in who & threads()}
        looks = looks + 1 if now == seen and all(letter == "S" for _, letter in now.values()) else 0
        if looks >= 3:
            return True
        seen = now
        time.sleep(TICK_S)
    return False
