"""Ranks of one job take their windows at the same optimizer steps, so that they can be laid side by side. Pure.

Step numbers agree on all ranks without any clock. The ranks of a node are asked together to open at the first step
whose number leaves a given remainder; a number is told nobody, so no rank can have passed it already.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence

from roofwatch.model.record import Process

# Between two steps at which a window may open. The ranks hear of a request within milliseconds, on a busy machine
# tenths of a second; in that time one of them may pass such a step before it has heard, and the others begin at it.
APART_NS = 2_000_000_000
MOST_APART = 1 << 14

Run = tuple[str | None, str | None, str, int]


def run_of(process: Process) -> Run | None:
    """What the ranks of one run on this node have in common; None for a process that is no rank of several."""
    if process.rank is None or process.job is None or (process.world_size or 1) < 2:
        return None
    # Its user and its container too: another's word, or another's 127.0.0.1, makes nobody a rank of this job.
    return process.user, process.container, process.job, process.world_size or 1


def alignment(step_ns: Iterable[int | None]) -> Sequence[int] | None:
    """Modulus and remainder of the steps at which the ranks may open; None while nobody knows how long a step is.

    A power of two, so that ranks which were told different ones still meet; the remainder is drawn, so that windows
    do not always fall on the same periodic work of the job (a log line, a checkpoint).
    """
    known = [ns for ns in step_ns if ns]
    if not known:
        return None
    modulus = min(MOST_APART, 2 ** max(0, math.ceil(math.log2(APART_NS / max(known)))))
    return modulus, random.randrange(modulus)
