"""What a plan is: times by the table that tells of them, and which rows of each table that means."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sqlalchemy import ColumnElement, and_, false, or_, select

from roofwatch.store.queries.scope import began, times
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS
from roofwatch.store.schema import rollups, windows

NAMED_MOST = 400  # hours or days that are named in a statement


class Which(Enum):
    """Whose windows or pieces of a time are meant, by what ``rollups`` says of their piece."""

    ALL = "all"
    STALE = "stale"
    KEPT = "kept"  # finer ones are still there
    GONE = "gone"


@dataclass(slots=True)
class Plan:
    """Times from ≤ t < until, by grain (0: windows)."""

    spans: dict[int, list[tuple[int | None, int | None, Which]]] = field(default_factory=lambda: defaultdict(list))
    left_out: list[tuple[int, int]] = field(default_factory=list)
    stale: bool = False  # whether some pieces of the spans are, or are not meant
    processes: tuple[int, ...] | None = None  # the filter's, where they are few…
    nodes: frozenset[int] = frozenset()  # …and whose they are

    def add(self, grain: int, since: int | None, until: int | None, which: Which = Which.ALL) -> None:
        """One more span; called in ascending order, so that those that touch become one."""
        self.stale |= bool(grain) and which is not Which.ALL
        spans = self.spans[grain]
        if spans and since is not None and spans[-1][1] == since and spans[-1][2] is which:
            since = spans.pop()[0]
        spans.append((since, until, which))

    @property
    def windows(self) -> ColumnElement[bool]:
        """Which windows are asked for themselves."""
        return or_(false(), *(self._window(*span) for span in self.spans.get(0, ())))

    def _window(self, since: int | None, until: int | None, which: Which) -> ColumnElement[bool]:
        start, r = windows.c.start_unix_ns, rollups.c
        found = began(since, until)
        if which is not Which.ALL:
            piece = select(r.grain).where(
                r.grain == HOUR_S,
                r.bucket_unix_ns == start - start % (HOUR_S * SECOND_NS),
                r.process_id == windows.c.process_id,
                r.stale if which is Which.STALE else r.finer,
            )
            found.append(piece.exists())
        return and_(*found) if found else windows.c.id.is_not(None)

    @property
    def pieces(self) -> ColumnElement[bool]:
        """Which pieces are: fresh ones of the spans."""
        r = rollups.c
        found = []
        for grain in (HOUR_S, DAY_S):
            for since, until, which in self.spans.get(grain, ()):
                gone = [~r.finer] if which is Which.GONE else []
                found.append(and_(r.grain == grain, *times(r.bucket_unix_ns, since, until), *gone))
        return and_(~r.stale, or_(false(), *found))

    def fresh(self, c: Any) -> ColumnElement[bool]:
        """The same of a table of sums, by its own columns; where none is stale."""
        found: list[ColumnElement[bool]] = [false()]
        for grain in (HOUR_S, DAY_S):
            step, spans = grain * SECOND_NS, self.spans.get(grain, ())
            each = [
                list(range(since, until, step)) for since, until, _ in spans if since is not None and until is not None
            ]
            if self.processes is not None and spans and sum(map(len, each)) <= NAMED_MOST:
                found.append(and_(c.grain == grain, c.bucket_unix_ns.in_([bucket for of in each for bucket in of])))
            else:
                found += [and_(c.grain == grain, *times(c.bucket_unix_ns, since, until)) for since, until, _ in spans]
        return or_(*found)

    @property
    def has_windows(self) -> bool:
        """Whether windows are asked."""
        return bool(self.spans.get(0))

    @property
    def has_pieces(self) -> bool:
        """Whether sums are."""
        return bool(self.spans.get(HOUR_S) or self.spans.get(DAY_S))
