"""Whether a process without steps is at work: windows by time begin with its requests, not while it waits for them.

What is looked at costs the job nothing: its CPU time, and how many device graphs it has launched. A server that waits
for requests uses next to none of either; one that polls in a loop looks busy, and has windows as before.
"""

import time
from typing import Callable, NamedTuple, Optional

LOOK_S, SLOW_LOOK_S = 0.01, 0.05  # between two looks, in the first second and after it
SLOWER_AFTER_S = 1.0
BUSY_NS = 500_000  # of CPU time between two looks: a request; a timer or a poll is over before it has used so much
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

    def look(self) -> Look:
        """Now."""
        own = time.thread_time_ns()
        return Look(time.monotonic_ns(), time.process_time_ns() - own, self._launched())

    def awaited(self, seconds: float, pause: Callable[[float], bool], over: Callable[[], bool]) -> bool:
        """Wait until there is something to see; False where nothing was in ``seconds``, or when ``over()``."""
        first = before = self.look()
        while True:
            waited = (before.at - first.at) / 1e9
            if waited >= seconds or over():
                return False
            pause(LOOK_S if waited < SLOWER_AFTER_S else SLOW_LOOK_S)
            now = self.look()
            if busy(before, now):
                return True
            before = now

    def begins(self) -> None:
        """A window by time opens now."""
        self._begun = self.look()

    def seen(self) -> bool:
        """Whether anything has happened since the window opened."""
        return self._begun is not None and busy(self._begun, self.look())

    def ends(self) -> Optional[int]:
        """It has been cut: nanoseconds of the process at work that it stands for, None for the first."""
        now, begun, before = self.look(), self._begun, self._before
        self._before, self._begun = now, None
        return active_ns(before, begun, now) if before is not None and begun is not None else None

    def forget(self) -> None:
        """In a forked child, whose clocks begin anew."""
        self._before = self._begun = None


def busy(before: Look, now: Look) -> bool:
    """Whether the process did something between two looks."""
    return now.launched != before.launched or now.cpu - before.cpu >= BUSY_NS


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
