"""Whether a process without steps is at work: windows by time begin with its requests, not while it waits for them.

What is looked at costs the job nothing: its CPU time, and how many device graphs it has launched. A server that waits
for requests uses next to none of either; one that polls in a loop looks busy, and has windows as before.

One whose requests take less than that is not told apart from one that waits. So who has had no window for a minute
gets a *trial* where it uses any CPU time at all: a long window, for as long as next to nothing happens in it, which is
sent only if it holds an op or a device's record. A process that does nothing but poll has none in it; it is tried again
after two minutes, four, and so on up to an hour.
"""

import os
import time
from typing import Callable, NamedTuple, Optional

LOOK_S, SLOW_LOOK_S = 0.01, 0.05  # between two looks, in the first second and after it
SLOWER_AFTER_S = 1.0
BUSY_NS = 500_000  # of CPU time between two looks: a request; a timer or a poll is over before it has used so much
STIRS_NS = 20_000  # of CPU time between two looks: more than nothing, so that there may be a request in it
TRIAL_S = 5.0  # a trial's length …
TRIAL_CPU_NS = 20_000_000  # … and the CPU time after which enough was in it: some 4,000 ops
HUNGRY_S, HUNGRY_MOST_S = 60.0, 3600.0  # without a window, before a trial; twice that after an empty one
# In a trace of kineto's.
WORK = (b'"cat": "cpu_op"', b'"cat": "kernel"', b'"cat": "gpu_memcpy"', b'"cat": "gpu_memset"')
KNOWN_SHARE = 0.05  # of a core, in a window that tells how much CPU time work takes


class Look(NamedTuple):
    """The process at one moment: monotonic ns, CPU ns of all threads but the hook's, graphs launched."""

    at: int
    cpu: int
    launched: int


class Activity:
    """All methods are called on the hook's thread."""

    def __init__(self, launched: Callable[[], int]) -> None:
        self._launched = launched
        self._before: Optional[Look] = None  # the end of the last window by time
        self._begun: Optional[Look] = None
        self.trial = False  # whether what was awaited is too little to be told from waiting
        self._hungry_s = HUNGRY_S
        self._fed: Optional[float] = None  # when the last window ended, or the first was asked for

    def look(self) -> Look:
        """Now."""
        own = time.thread_time_ns()
        return Look(time.monotonic_ns(), time.process_time_ns() - own, self._launched())

    def awaited(self, seconds: float, pause: Callable[[float], bool], over: Callable[[], bool]) -> bool:
        """Wait until there is something to see; False where nothing was in ``seconds``, or when ``over()``."""
        first = before = self.look()
        self.trial = False
        if self._fed is None:
            self._fed = time.monotonic()
        while True:
            waited = (before.at - first.at) / 1e9
            if waited >= seconds or over():
                return False
            pause(LOOK_S if waited < SLOWER_AFTER_S else SLOW_LOOK_S)
            now = self.look()
            # On a machine that is overloaded a look comes late, and what only polls has used more until then.
            if busy(before, now, max(1.0, (now.at - before.at) / (SLOW_LOOK_S * 1e9))):
                return True
            if now.cpu - before.cpu >= STIRS_NS and time.monotonic() - self._fed >= self._hungry_s:
                self.trial = True
                return True
            before = now

    def begins(self) -> None:
        """A window by time opens now."""
        self._begun = self.look()

    def seen(self) -> bool:
        """Whether anything has happened since the window opened."""
        return self._begun is not None and busy(self._begun, self.look())

    def enough(self) -> bool:
        """Whether enough has happened since a trial opened."""
        now, begun = self.look(), self._begun
        return begun is None or now.cpu - begun.cpu >= TRIAL_CPU_NS or now.launched != begun.launched

    def tried_for_long(self) -> bool:
        """Whether a trial has gone on for as long as it may."""
        return self._begun is None or self.look().at - self._begun.at >= TRIAL_S * 1e9

    def tried(self, fd: int) -> bool:
        """Whether there was anything in a trial, by its trace; -1 where whoever analysed it has said so."""
        found = fd < 0 or holds_work(fd)
        self._hungry_s = HUNGRY_S if found else min(2 * self._hungry_s, HUNGRY_MOST_S)
        return found

    def ends(self) -> Optional[int]:
        """It has been cut: nanoseconds of the process at work that it stands for, None for the first."""
        now, begun, before = self.look(), self._begun, self._before
        self._before, self._begun, self._fed = now, None, time.monotonic()
        return active_ns(before, begun, now) if before is not None and begun is not None else None

    def forget(self) -> None:
        """In a forked child, whose clocks begin anew."""
        self._before = self._begun = self._fed = None
        self._hungry_s = HUNGRY_S


def busy(before: Look, now: Look, times: float = 1.0) -> bool:
    """Whether the process did something between two looks; ``times`` as much is needed."""
    return now.launched != before.launched or now.cpu - before.cpu >= BUSY_NS * times


def active_ns(before: Look, begun: Look, end: Look) -> int:
    """How long the process was at work from one window's end to the next one's.

    Between them it used as much CPU time as it would have used in so long a time of the kind that the window saw. A
    window that saw hardly any says nothing of that: then all of the time counts.
    """
    between, length = begun.at - before.at, end.at - begun.at
    used = end.cpu - begun.cpu
    if used < KNOWN_SHARE * length:
        return between + length
    return length + min(between, (begun.cpu - before.cpu) * length // used)


def holds_work(fd: int) -> bool:
    """Whether a trace of kineto's has an op or a device's record. Its position stays."""
    overlap, piece, at = max(map(len, WORK)), b"", 0
    while True:
        read = os.pread(fd, 1 << 20, at)
        piece, at = piece[-overlap:] + read, at + len(read)
        if any(word in piece for word in WORK):
            return True
        if not read:
            return False
