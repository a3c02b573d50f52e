"""Ranks of one job take windows at the same optimizer steps, on all its nodes, without a word between agents. Pure.

Step numbers agree on all ranks of a synchronous job without any clock. Which steps are *meetings* follows from the job
and a number alone: of each block of 2^level steps one is, drawn by hash, and the meetings of a level are some of those
of the level below. So agents that know the same job meet, one that takes fewer windows meets the others whenever it
takes one, gaps are never longer than two blocks, and no periodic work of the job (a log line, a checkpoint) is met
always or never.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from roofwatch.model.record import Process

LEVEL_MOST = 20  # a meeting in a million steps: the shortest steps, the longest intervals
LISTED = 16  # meetings that a rank is told: it opens at the first that it has not passed
# A rank is asked so long before a meeting as it may be nearer than it is reckoned to be.
LEAD_S, LEAD_SHARE = 2.0, 0.1
SOON_S = 0.05  # what is nearer is now
LEAD_MOST_S = 15.0  # a rank that waits for a meeting can take no other window
LEAST_S = 1.0  # that must pass to tell a pace from two counts
_MASK = (1 << 64) - 1

Run = tuple[str | None, str | None, str, int]


def run_of(process: Process) -> Run | None:
    """What the ranks of one run on this node have in common; None for a process that is no rank of several."""
    if process.rank is None or process.job is None or (process.world_size or 1) < 2:
        return None
    # Its user and its container too: another's word, or another's 127.0.0.1, makes nobody a rank of this job.
    return process.user, process.container, process.job, process.world_size or 1


def key_of(run: Run) -> int:
    """What decides a job's meetings: what its ranks have in common on all nodes (users and containers may differ)."""
    _, _, job, world_size = run
    return int.from_bytes(blake2b(f"{job}\0{world_size}".encode(), digest_size=8).digest(), "big")


def level_of(interval_s: float, step_ns: float, least_s: float = 0.0) -> int:
    """The level whose meetings are about an interval apart (within a factor of √2), on average ``least_s`` or more.

    What the budget makes of the interval has to be in the level: nodes that each wait for their own account and then
    take whatever meeting comes next would hardly meet.
    """
    wished = round(math.log2(max(1.0, interval_s * 1e9 / step_ns)))
    needed = math.ceil(math.log2(max(1.0, least_s * 1e9 / step_ns)))
    return min(LEVEL_MOST, max(wished, needed))


def meetings(key: int, level: int, after: int) -> Iterator[int]:
    """The steps of a level beyond a step, ascending, without end."""
    block = max(0, after) >> level
    while True:
        step = _meeting(key, level, block)
        if step > after:
            yield step
        block += 1


def _meeting(key: int, level: int, block: int) -> int:
    """The one of a block: at each level one half is chosen, and it is the meeting of that half."""
    for of in range(level, 0, -1):
        block = 2 * block + (_hash(key, of, block) & 1)
    return block


def _hash(key: int, level: int, block: int) -> int:
    """Splitmix64's finalizer: every bit of the result depends on every bit of what is put in."""
    x = (key ^ (level * 0x9E3779B97F4A7C15) ^ (block * 0xD1B54A32D192ED03)) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


@dataclass(slots=True)
class Pace:
    """Where a rank is, as far as it can be reckoned: a count of steps, when it was told, and what a step takes."""

    count: int | None = None
    at_s: float = 0.0
    step_ns: float | None = None

    def told(self, count: int, now_s: float, step_ns: int | None) -> None:
        """The rank has made so many steps; ``step_ns`` is its usual step, None where it has not said.

        What passed since it last told counts more than its usual step: it holds checkpoints and evaluations too.
        """
        again = self.count is not None and count < self.count  # it began again from zero
        passed_s = now_s - self.at_s
        if self.count is not None and count > self.count and passed_s >= LEAST_S:
            self.step_ns = passed_s * 1e9 / (count - self.count)
        elif step_ns or again:
            self.step_ns = float(step_ns) if step_ns else None
        self.count, self.at_s = count, now_s

    def count_at(self, now_s: float) -> int | None:
        """Steps by now; None where nobody knows."""
        if self.count is None or not self.step_ns:
            return None
        return self.count + int((now_s - self.at_s) * 1e9 / self.step_ns)


@dataclass(frozen=True, slots=True)
class Meeting:
    """When to ask a rank, from now, and the steps at which it may open."""

    wait_s: float
    steps: tuple[int, ...]
    apart_s: float  # between two meetings, on average


def next_meeting(key: int, pace: Pace, interval_s: float, now_s: float, least_s: float = 0.0) -> Meeting | None:
    """The job's next meeting, of the level as ``level_of`` says; None while its pace is not known."""
    count, step_ns = pace.count_at(now_s), pace.step_ns
    if count is None or pace.count is None or not step_ns:
        return None
    level = level_of(interval_s, step_ns, least_s)
    first = next(meetings(key, level, count))
    # It may be slower than reckoned: then an earlier meeting is still to come.
    behind = count - int(LEAD_SHARE * (count - pace.count)) - int(LEAD_S * 1e9 / step_ns)
    steps = tuple(islice(meetings(key, level, max(pace.count, behind)), LISTED))
    until_s = pace.at_s + (first - pace.count) * step_ns / 1e9 - now_s  # not by whole steps: it would be asked for ever
    lead_s = min(LEAD_MOST_S, LEAD_S + LEAD_SHARE * (now_s - pace.at_s + until_s))
    wait_s = until_s - lead_s
    return Meeting(wait_s if wait_s > SOON_S else 0.0, steps, (step_ns / 1e9) * 2**level)
