"""Waiting for a late peer told from moving bytes: the windows of several ranks of one job, laid side by side. Pure.

A collective's kernel begins when its rank arrives and ends when all have what they need. The rank that arrives last
waits for nobody. Ranks of one machine share a clock: there a rank waits until the last has arrived, and what is left of
its own duration is moving, which may take longer on one rank than on another. Of ranks on several machines only
durations are compared: the shortest is the time that moving took, and what another rank's is longer is its wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roofwatch.model.collectives import MEETING, POINT_TO_POINT, UNEVEN
from roofwatch.model.record import Collective

# Ranks of one job begin a step within a step of each other, by clocks that NTP keeps within milliseconds; what starts
# over and reaches the same step again does not do it so fast.
SLACK_NS = 5_000_000_000

# One machine's clock is read by several recorders, each of which fits it to a faster one: they agree within
# microseconds. Where a rank is through with a collective this long before another arrives, they do not.
CLOCK_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Sight:
    """One window of one rank. ``run`` is the same for all processes that could be ranks of one job at one time."""

    id: int
    run: Hashable
    process: int
    rank: int
    start_unix_ns: int
    duration_ns: int
    first_step: int | None


@dataclass(slots=True)
class Communication:
    """Sums over the collectives of a rank: total = moving + waiting + (total − matched)."""

    calls: int = 0
    total_ns: int = 0
    matched_calls: int = 0  # of which at least one other rank was seen
    matched_ns: int = 0
    complete_calls: int = 0  # of which every rank of the group was seen
    complete_ns: int = 0
    moving_ns: int = 0  # with ranks missing at most this,
    waiting_ns: int = 0  # and at least this
    last_calls: int = 0  # it arrived last of those seen, alone
    caused_ns: int = 0  # what the others waited in these

    def add(self, other: Communication) -> None:
        """Count another sum in."""
        for name in Communication.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Steps:
    """Windows that were taken together: each group has every rank at most once."""

    together: list[list[Sight]] = field(default_factory=list)
    ambiguous: int = 0  # windows left out: the same rank twice at the same time


def together(sights: Iterable[Sight]) -> Steps:
    """Windows of one run that show the same time: of the same step where the steps are numbered, else overlapping.

    Two processes of one rank at the same time are two runs that cannot be told apart: their windows are left out.
    """
    by_step: dict[tuple[Hashable, int | None], list[Sight]] = defaultdict(list)
    for sight in sights:
        if sight.start_unix_ns > 0:
            by_step[sight.run, sight.first_step].append(sight)
    found = Steps()
    for (_, step), members in by_step.items():
        slack = SLACK_NS if step is not None else 0
        for near in _near(sorted(members, key=lambda s: (s.start_unix_ns, s.id)), slack):
            if len({(s.rank, s.process) for s in near}) == len({s.rank for s in near}):
                found.together.extend(_by_turns(near))
            else:
                found.ambiguous += len(near)
    return found


def _near(ordered: Sequence[Sight], slack: int) -> Iterable[list[Sight]]:
    """Chains of windows of which each begins before those before it have ended, or at most ``slack`` later."""
    chain: list[Sight] = []
    end = 0
    for sight in ordered:
        if chain and sight.start_unix_ns > end + slack:
            yield chain
            chain = []
        end = max(end, sight.start_unix_ns + sight.duration_ns) if chain else sight.start_unix_ns + sight.duration_ns
        chain.append(sight)
    if chain:
        yield chain


def _by_turns(chain: Sequence[Sight]) -> Iterable[list[Sight]]:
    """A process that has several windows in a chain begins a new group with each."""
    group: dict[int, Sight] = {}
    for sight in chain:
        if sight.rank in group:
            yield list(group.values())
            group = {}
        group[sight.rank] = sight
    yield list(group.values())


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective that several ranks saw, or one of a group of one: each rank's part, and how long it waited."""

    members: Mapping[int, Collective]
    waits: Mapping[int, int]  # ns at its beginning; what is left of the duration is moving

    @property
    def complete(self) -> bool:
        """Whether every rank of the group was seen."""
        return {c.group_size for c in self.members.values()} == {len(self.members)}

    @property
    def last(self) -> int | None:
        """The rank that came last, where it is one."""
        if len(self.members) == 1:
            return None
        last = [rank for rank, waited in self.waits.items() if not waited]
        return last[0] if len(last) == 1 else None


def communication(
    ranks: Mapping[int, Sequence[Collective]], *, same_step: bool, clocks: Mapping[int, Hashable] | None = None
) -> dict[int, Communication]:
    """The sums of each rank over the collectives of windows that were taken together; arguments as of ``meetings``."""
    sums = {rank: Communication(len(found), sum(c.duration_ns for c in found)) for rank, found in ranks.items()}
    for meeting in meetings(ranks, same_step=same_step, clocks=clocks):
        for rank, collective in meeting.members.items():
            own, duration, waited = sums[rank], collective.duration_ns, meeting.waits[rank]
            own.matched_calls += 1
            own.matched_ns += duration
            own.moving_ns += duration - waited
            own.waiting_ns += waited
            if meeting.complete:
                own.complete_calls += 1
                own.complete_ns += duration
        if meeting.last is not None:
            sums[meeting.last].last_calls += 1
            sums[meeting.last].caused_ns += sum(meeting.waits.values())
    return sums


def meetings(
    ranks: Mapping[int, Sequence[Collective]], *, same_step: bool, clocks: Mapping[int, Hashable] | None = None
) -> Iterable[Meeting]:
    """Collectives found on more than one rank, of windows that were taken together; and those of groups of one.

    ``clocks`` names the clock that each rank's times are of; without it every rank has its own. Collectives are the
    same by group and sequence number. Where no numbers are told, and all windows begin at the same step: by group,
    name, size and how many of these came before in the window.
    """
    same: dict[Hashable, dict[int, Collective]] = defaultdict(dict)
    for rank, found in ranks.items():
        for key, collective in _keyed(found, same_step=same_step):
            if collective.group_size == 1:
                yield Meeting({rank: collective}, {rank: 0})
            elif key is not None:
                same[key][rank] = collective
    for members in same.values():
        if len(members) > 1:
            one = clocks is not None and len({clocks[rank] for rank in members}) == 1
            waits = _waits(members) if one else None
            if waits is None:
                moving = min(c.duration_ns for c in members.values())
                waits = {rank: c.duration_ns - moving for rank, c in members.items()}
            yield Meeting(members, waits)


def _keyed(found: Sequence[Collective], *, same_step: bool) -> Iterable[tuple[Hashable, Collective]]:
    seen: Counter[Hashable] = Counter()
    for collective in sorted(found, key=lambda c: c.start_unix_ns):
        kind = _kind(collective, same_step=same_step)
        if kind is None:
            yield None, collective
            continue
        yield (kind, seen[kind]), collective
        seen[kind] += 1


def _kind(c: Collective, *, same_step: bool) -> Hashable:
    """What tells a collective from others but its repetitions; None where it cannot be found on another rank."""
    if not c.name or not c.group or c.name in POINT_TO_POINT:
        return None
    if c.sequence is not None:
        return (c.group, c.name, c.sequence)
    return (c.group, c.name, None, None if c.name in UNEVEN else c.bytes) if same_step else None


def _waits(members: Mapping[int, Collective]) -> dict[int, int] | None:
    """How long each rank waited for the last to arrive, by a clock that all share; None where they show that it is not.

    A rank may be through before others arrive (the source of a broadcast): then it has waited for nobody but them.
    """
    last = max(c.start_unix_ns for c in members.values())
    if any(c.name in MEETING and c.start_unix_ns + c.duration_ns < last - CLOCK_NS for c in members.values()):
        return None
    return {rank: min(c.duration_ns, last - c.start_unix_ns) for rank, c in members.items()}
