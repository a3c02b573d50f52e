"""Which processes a capture asks, and at which step they meet. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.proto.v1 import roofwatch_pb2 as pb

# Between two steps at which a window may open: a rank that hears late, or is not where it is reckoned to be, should
# still find the same step ahead as the others.
APART_NS = 4_000_000_000
APART_MOST = 1 << 20  # the largest modulus that a hook takes


@dataclass(frozen=True, slots=True)
class Target:
    """A process and the agent that has it."""

    agent: str
    node: str
    process: pb.FoundProcess

    @property
    def job(self) -> tuple[str, int] | None:
        """What its ranks have in common; None for no rank of several."""
        found = self.process
        return (found.job, found.world_size) if found.job and found.rank >= 0 and found.world_size > 1 else None


@dataclass(frozen=True, slots=True)
class Asking:
    """Whom to ask, job by job, and how many match and are not asked."""

    jobs: Sequence[Sequence[Target]]
    passed_over: int

    @property
    def targets(self) -> list[Target]:
        """All of them."""
        return [target for job in self.jobs for target in job]


def asking(found: Iterable[Target], ranks: Iterable[int], *, all_ranks: bool) -> Asking:
    """Of a job of several ranks those named, or all, or the lowest; every process that is none."""
    wanted = frozenset(ranks)
    alone: list[Sequence[Target]] = []
    jobs: dict[tuple[str, int], list[Target]] = {}
    count = 0
    for target in found:
        count += 1
        if target.job is None:
            alone += [] if wanted else [[target]]
        else:
            jobs.setdefault(target.job, []).append(target)
    chosen: list[Sequence[Target]] = []
    for _, targets in sorted(jobs.items()):
        ordered = sorted(targets, key=lambda each: (each.process.rank, each.node, each.process.pid))
        if wanted:
            ordered = [each for each in ordered if each.process.rank in wanted]
        elif not all_ranks:
            ordered = ordered[:1]
        chosen += [ordered] if ordered else []
    alone.sort(key=lambda each: (each[0].node, each[0].process.pid))
    asked = [*chosen, *alone]
    return Asking(asked, count - sum(map(len, asked)))


def first(asked: Asking, most: int) -> Asking:
    """So many targets at most; the others are passed over."""
    jobs, left = [], most
    for job in asked.jobs:
        if left:
            jobs.append(job[:left])
            left -= len(jobs[-1])
    return Asking(jobs, asked.passed_over + len(asked.targets) - (most - left))


def unseen(job: Sequence[Target]) -> list[Target]:
    """Ranks of a job of several of which no window has told yet whether they step."""
    known = (target.process.steps >= 0 or target.process.windows for target in job)
    return [target for target, seen in zip(job, known, strict=True) if not seen] if len(job) > 1 else []


def renewed(asked: Asking, found: Iterable[Target]) -> Asking:
    """The same targets, as far as they are found again, with what is known of them now."""
    now = {(target.agent, target.process.process): target for target in found}
    jobs = [[now.get((target.agent, target.process.process), target) for target in job] for job in asked.jobs]
    return Asking(jobs, asked.passed_over)


def meeting(processes: Sequence[pb.FoundProcess]) -> tuple[int, int]:
    """Modulus and remainder of the steps at which the ranks of a job may open; (0, 0) where they need not meet.

    (1, 0) where nobody has seen them step: each opens at once, and agents that ask again let them meet by themselves.

    The next such step is half of the modulus ahead of the rank that is furthest. A rank that is further than reckoned
    opens at the one after it, alone: its steps tell.
    """
    known = [each for each in processes if each.step_ns > 0 and each.steps >= 0]
    if len(processes) < 2:
        return 0, 0
    if not known:
        return 1, 0
    slowest = max(each.step_ns for each in known)
    modulus = min(APART_MOST, 2 ** max(1, math.ceil(math.log2(APART_NS / slowest))))
    if len(known) < len(processes):  # ranks that nobody has seen step: any remainder is as good
        return modulus, random.randrange(modulus)
    return modulus, (max(each.steps for each in known) + modulus // 2) % modulus


def commands(
    identity: str, asked: Asking, meetings: Iterable[tuple[int, int]], request: pb.CaptureRequest, by: str
) -> Mapping[str, list[pb.Command]]:
    """What each agent is told: one command a job."""
    found: dict[str, list[pb.Command]] = {}
    for job, (modulus, remainder) in zip(asked.jobs, meetings, strict=True):
        for agent in dict.fromkeys(target.agent for target in job):
            mine = [target.process.process for target in job if target.agent == agent]
            take = pb.TakeWindow(
                processes=mine, steps=request.steps, duration_ms=request.duration_ms, shapes=True, modulus=modulus,
                remainder=remainder, keep_trace=request.keep_trace, within_ms=request.within_ms, asked_by=by,
            )  # fmt: skip
            found.setdefault(agent, []).append(pb.Command(id=identity, take_window=take))
    return found
