"""What the collectives of a rank come to by the clock: those that run side by side on one device count once. Pure.

``peers`` adds collectives up, as ``top`` adds up kernels. Beside a step's time only the clock's will do: of collectives
that overlap, the sum may be more than the step. An instant in which any of them moves bytes is moving; else, in which
any is known to wait for others, waiting; the rest was found on no other rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from roofwatch.model.peers import Communication, meetings
from roofwatch.model.record import Collective

Spans = list[tuple[int, int]]  # begin and end, ns


@dataclass(slots=True)
class _Device:
    """Where collectives were on one device of a rank."""

    all: Spans = field(default_factory=list)
    complete: Spans = field(default_factory=list)
    moving: Spans = field(default_factory=list)
    waiting: Spans = field(default_factory=list)
    waiting_for: dict[int, Spans] = field(default_factory=lambda: defaultdict(list))  # by the rank that came last


def by_clock(
    ranks: Mapping[int, Sequence[Collective]], *, same_step: bool, clocks: Mapping[int, Hashable] | None = None
) -> dict[int, Communication]:
    """As ``peers.communication``, with times by the clock, added up over the devices of a rank."""
    sums = {rank: Communication(calls=len(found)) for rank, found in ranks.items()}
    on: dict[tuple[int, int], _Device] = defaultdict(_Device)
    for rank, found in ranks.items():
        for c in found:
            on[rank, c.device].all.append((c.start_unix_ns, c.start_unix_ns + c.duration_ns))
    for meeting in meetings(ranks, same_step=same_step, clocks=clocks):
        last = meeting.last
        for rank, c in meeting.members.items():
            own, device = sums[rank], on[rank, c.device]
            begin, end = c.start_unix_ns, c.start_unix_ns + c.duration_ns
            moves = begin + meeting.waits[rank]
            device.moving.append((moves, end))
            device.waiting.append((begin, moves))
            own.matched_calls += 1
            if meeting.complete:
                own.complete_calls += 1
                device.complete.append((begin, end))
            if last is not None and last != rank:
                device.waiting_for[last].append((begin, moves))
        if last is not None:
            sums[last].last_calls += 1
    for (rank, _), device in on.items():
        _sum_up(sums, rank, device)
    return sums


def _sum_up(sums: Mapping[int, Communication], rank: int, device: _Device) -> None:
    own, moving = sums[rank], covered(device.moving)
    matched = covered(device.moving + device.waiting)
    own.total_ns += covered(device.all)
    own.complete_ns += covered(device.complete)
    own.matched_ns += matched
    own.moving_ns += moving
    own.waiting_ns += matched - moving
    for last, waits in device.waiting_for.items():
        sums[last].caused_ns += covered(device.moving + waits) - moving


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Nanoseconds that lie in at least one of the spans."""
    found = np.array(sorted(spans), np.int64).reshape(-1, 2)
    if not len(found):
        return 0
    begins, ends = found[:, 0], np.maximum.accumulate(found[:, 1])
    passed = np.concatenate([begins[:1], ends[:-1]])
    return int(np.maximum(0, ends - np.maximum(begins, passed)).sum())
