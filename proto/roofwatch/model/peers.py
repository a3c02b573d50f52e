"""Waiting for a late peer told from moving bytes: the windows of several ranks of one job, laid side by side. Pure.

A collective's kernel begins when its rank arrives and ends when all have what they need. The rank that arrives last
waits for nobody, so the shortest duration over the ranks is the time that moving took, and what a rank's own duration
is longer than that is its wait. No clock of another machine is needed for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roofwatch.model.collectives import POINT_TO_POINT, UNEVEN
from roofwatch.model.record import Collective

# Ranks of one job begin a step within a step of each other, by clocks that NTP keeps within milliseconds; what starts
# over and reaches the same step again does not do it so fast.
SLACK_NS = 5_000_000_000


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


def communication(ranks: Mapping[int, Sequence[Collective]], *, same_step: bool) -> dict[int, Communication]:
    """The sums of each rank over the collectives of windows that were taken together.

    Collectives are the same by group and sequence number. Where no numbers are told, and all windows begin at the same
    step: by group, name, size and how many of these came before in the window.
    """
    sums = {rank: Communication() for rank in ranks}
    same: dict[Hashable, dict[int, Collective]] = defaultdict(dict)
    for rank, found in ranks.items():
        for key, collective in _keyed(found, same_step=same_step):
            own = sums[rank]
            own.calls += 1
            own.total_ns += collective.duration_ns
            if collective.group_size == 1:
                _add(own, collective.duration_ns, collective.duration_ns, complete=True)
            elif key is not None:
                same[key][rank] = collective
    for members in same.values():
        if len(members) > 1:
            _share(members, sums)
    return sums


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


def _share(members: Mapping[int, Collective], sums: Mapping[int, Communication]) -> None:
    """Counts one collective that several ranks saw."""
    moving = min(c.duration_ns for c in members.values())
    sizes = {c.group_size for c in members.values()}
    complete = sizes == {len(members)}
    last = [rank for rank, c in members.items() if c.duration_ns == moving]
    waited = sum(c.duration_ns - moving for c in members.values())
    for rank, collective in members.items():
        _add(sums[rank], collective.duration_ns, moving, complete=complete)
    if len(last) == 1:
        sums[last[0]].last_calls += 1
        sums[last[0]].caused_ns += waited


def _add(own: Communication, duration: int, moving: int, *, complete: bool) -> None:
    own.matched_calls += 1
    own.matched_ns += duration
    own.moving_ns += moving
    own.waiting_ns += duration - moving
    if complete:
        own.complete_calls += 1
        own.complete_ns += duration
