"""Counts optimizer steps and keeps when the last ones ended. What it does in a step is a microsecond."""

import time
import weakref
from typing import Any, Callable, List, Optional

from .log import failure

NEVER = 1 << 62
RING = 4096  # steps remembered; more than this many in one window and its cost is unknown
_BASE = 32  # steps before a window that say what a step costs without one
_OTHERS = 64  # calls of other optimizers without one of the first: it is no longer the one that steps


class Steps:
    """The steps of one process: a step is a call of its first optimizer.

    ``boundary(count)`` is called on the stepping thread, right after the step whose number is ``at`` or later.
    """

    def __init__(self, boundary: Callable[[int], None]) -> None:
        self.count = 0
        self.at = 1
        self.stamps: List[int] = [0] * RING
        self.boundary = boundary
        self.first: Callable[[], Any] = lambda: None
        self.others = 0  # calls of other optimizers …
        self.since = 0  # … since this step

    def hook(self, is_compiling: Callable[[], bool]) -> Callable[[Any, Any, Any], None]:
        """The optimizer post hook."""
        clock, mask, stamps = time.monotonic_ns, RING - 1, self.stamps

        def roofwatch_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            # Inside a compiled step the hook folds to nothing: no break in the job's graph, and no count.
            if is_compiling():
                return
            if self.first() is not optimizer and not self._adopt(optimizer):
                return
            count = self.count = self.count + 1
            stamps[count & mask] = clock()
            if count >= self.at:
                self.at = NEVER
                try:
                    self.boundary(count)
                except Exception as error:
                    failure("step", error)

        return roofwatch_step

    def _adopt(self, optimizer: Any) -> bool:
        if self.count != self.since:
            self.since, self.others = self.count, 0
        self.others += 1
        if self.first() is not None and self.others < _OTHERS:
            return False
        try:
            self.first = weakref.ref(optimizer)
        except TypeError:
            return False
        self.others = 0
        return True

    def restart(self) -> None:
        """Begin again from zero, as in a forked child; the next step is a boundary."""
        self.count, self.at = 0, 1

    def base_ns(self, count: int) -> Optional[int]:
        """Median duration of the steps up to step ``count``; None with fewer than five."""
        durations = self.durations(max(1, count - _BASE), count)
        return sorted(durations)[len(durations) // 2] if durations is not None and len(durations) >= 5 else None

    def durations(self, after: int, until: int) -> Optional[List[int]]:
        """Durations of steps ``after`` + 1 … ``until``; None when they are no longer (or never were) remembered."""
        if after < 1 or until > self.count or self.count - after >= RING:
            return None
        stamps, mask = self.stamps, RING - 1
        return [stamps[n & mask] - stamps[(n - 1) & mask] for n in range(after + 1, until + 1)]
