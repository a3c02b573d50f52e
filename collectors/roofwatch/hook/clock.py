"""Whether the machine's clock was set while a window was open.

Profilers time by the processor's own counter, and stretch that to what the machine's clock says at a window's begin and
end. Set in between by 40 s, a window of one second has kernels that seem to take forty times as long, or less than no
time.
"""

import time
from typing import Tuple

SLACK_NS = 1_000_000  # nothing is read at one moment
SLEWED = 500  # one part of so many: an adjusted clock, which is no mistake, runs faster or slower by at most 1 in 2,000
_QUICK_NS, _TRIES = 20_000, 5  # between two readings the GIL may be another thread's for milliseconds


def offset_ns() -> int:
    """What the machine's clock is ahead of the monotonic one, which nobody sets."""
    best: Tuple[int, int] = (1 << 62, 0)
    for _ in range(_TRIES):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        best = min(best, (after - before, wall - (before + after) // 2))
        if best[0] < _QUICK_NS:
            break
    return best[1]


def was_set(offset_before_ns: int, length_ns: int) -> bool:
    """Whether the clock was set since ``offset_ns`` was that, ``length_ns`` ago."""
    return abs(offset_ns() - offset_before_ns) > SLACK_NS + length_ns // SLEWED
