"""The windows of a job's ranks laid side by side: those of the same steps, else of the same time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from roofwatch.model.peers import SLACK_NS, Sight, together
from roofwatch.model.timeline import PARTS

COMMUNICATION = ("exposed_communication", "communication")  # of PARTS: where a rank waits for others, or moves bytes
OWN = tuple(part for part in PARTS if part not in COMMUNICATION)


@dataclass(frozen=True, slots=True)
class RankWindow:
    """One window of one rank. ``parts`` has the nanoseconds of PARTS, a mean over the window's devices, as the span."""

    sight: Sight
    span_ns: float
    parts: dict[str, float]
    steps: int | None = None
    device: str | None = None
    clock_hz: float | None = None
    throttle: str | None = None  # "" for nothing, None where not read
    devices: int = 1

    def units(self, *, by_step: bool) -> float:
        """How many steps it holds, or seconds where figures are by the second."""
        return float(self.steps or 0) if by_step else self.span_ns / 1e9

    @property
    def own_ns(self) -> float:
        """Without communication, neither exposed nor waited for."""
        return self.span_ns - sum(self.parts[part] for part in COMMUNICATION)


@dataclass(slots=True)
class Moment:
    """Windows that were taken together: steps of the same numbers, or the same time. Each rank at most once."""

    members: dict[int, RankWindow]
    moving: dict[int, float] = field(default_factory=dict)  # ns of all its units, in the way; by one clock, else empty

    @property
    def start_unix_ns(self) -> int:
        """The first window's begin."""
        return min(w.sight.start_unix_ns for w in self.members.values())

    @property
    def first_step(self) -> int | None:
        """Of the first window."""
        return min((w.sight.first_step for w in self.members.values() if w.sight.first_step is not None), default=None)


@dataclass(slots=True)
class Laid:
    """Windows laid side by side; ``alone`` are those that share their steps with no other rank's."""

    by_step: bool
    moments: list[Moment] = field(default_factory=list)  # of two ranks and more, by time
    alone: list[RankWindow] = field(default_factory=list)
    ambiguous: int = 0  # windows left out: the same rank twice at the same time
    without_steps: int = 0  # windows left out: cut short in a job that has steps

    def by_rank(self, moments: Iterable[Moment] | None = None) -> dict[int, list[RankWindow]]:
        """The windows of each rank, of these moments or of all."""
        found: dict[int, list[RankWindow]] = {}
        for moment in self.moments if moments is None else moments:
            for rank, w in moment.members.items():
                found.setdefault(rank, []).append(w)
        for w in self.alone if moments is None else ():
            found.setdefault(w.sight.rank, []).append(w)
        return dict(sorted(found.items()))

    def windows(self) -> list[RankWindow]:
        """All that are used."""
        return [*(w for moment in self.moments for w in moment.members.values()), *self.alone]

    def circles(self) -> list[set[int]]:
        """Ranks that share steps, if only over others: more than one circle, and some were never laid side by side."""
        circles: list[set[int]] = [{rank} for rank in self.by_rank()]
        for ranks in {frozenset(moment.members) for moment in self.moments}:
            meeting = [circle for circle in circles if circle & ranks]
            circles = [circle for circle in circles if not circle & ranks] + [set().union(*meeting)]
        return circles


def lay(windows: Iterable[RankWindow]) -> Laid:
    """Moments of one run's windows. Figures are by the step where any window has whole steps, else by the second."""
    given = list(windows)
    by_step = any(w.steps and w.sight.first_step is not None for w in given)
    used = [w for w in given if w.units(by_step=by_step) > 0 and (not by_step or w.sight.first_step is not None)]
    by_id = {w.sight.id: w for w in used}
    grouped = together(w.sight for w in used)
    laid = Laid(by_step, ambiguous=grouped.ambiguous, without_steps=len(given) - len(used))
    for group in _overlapping([[by_id[sight.id] for sight in group] for group in grouped.together]):
        if len(group) > 1:
            laid.moments.append(Moment({w.sight.rank: w for w in group}))
        else:
            laid.alone += group
    laid.moments.sort(key=lambda m: m.start_unix_ns)
    return laid


def _overlapping(groups: Iterable[list[RankWindow]]) -> list[list[RankWindow]]:
    """Groups whose steps overlap, of different ranks and at the same time, are one: figures are means a step."""
    found: list[list[RankWindow]] = []
    for group in sorted(groups, key=lambda g: min(w.sight.start_unix_ns for w in g)):
        last = found[-1] if found else None
        if last is not None and _meets(last, group):
            last += group
        else:
            found.append(list(group))
    return found


def _meets(one: Sequence[RankWindow], other: Sequence[RankWindow]) -> bool:
    if {w.sight.rank for w in one} & {w.sight.rank for w in other}:
        return False
    a, b = _steps(one), _steps(other)
    near = other[0].sight.start_unix_ns - one[0].sight.start_unix_ns <= SLACK_NS
    return a is not None and b is not None and near and a[0] < b[1] and b[0] < a[1]


def _steps(group: Sequence[RankWindow]) -> tuple[int, int] | None:
    """The first step and the one after the last that all windows of a group hold."""
    first, last = 0, 1 << 62
    for w in group:
        if w.sight.first_step is None or not w.steps:
            return None
        first, last = max(first, w.sight.first_step), min(last, w.sight.first_step + w.steps)
    return first, last
