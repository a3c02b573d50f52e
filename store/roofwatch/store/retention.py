"""How long what is kept: windows' kernels two days, windows and the sums of hours a month, of days a year.

What is finer goes only once what is coarser holds it, so that an answer about an old time is coarser, never wrong.
Windows imported from files stay with everything that they are made of: somebody put them there, whatever their date.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, and_, delete, func, select, update

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Trigger
from roofwatch.store import (
    kernel_hours,
    postgres_retention,
    postgres_sum_retention,
    postgres_sums,
    process_states,
    rollup,
    rollup_groups,
)
from roofwatch.store.config import Keep
from roofwatch.store.database import CLICKHOUSE, Database, telling
from roofwatch.store.days import DAY_NS, SHARED
from roofwatch.store.given_up import GivenUp
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, ROLLED, SECOND_NS
from roofwatch.store.schema import agent_drops, agents, rollups, segments, windows
from roofwatch.store.window_schema import OF_KERNELS, OF_WINDOWS

MOST = 1 << 62  # ns; who keeps for millennia asks for more than 64 bits
AT_ONCE = 32  # pieces in one transaction: some 2,000 windows, about 0.1 s
SEGMENTS_S = 30 * DAY_S  # longer than any agent keeps a segment that it has not sent
EVERY_S = 30.0  # between two looks at whether there is something to do…
AGAIN_S = 1.0  # …and while there is
JUMP_NS = 3600 * SECOND_NS  # ahead: the clock was set, or the machine slept…
DOUBTED_S = 86_400.0  # …and what that makes old goes only once it has stood so for a day
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Dropped:
    """What was removed."""

    hours_of_kernels: int = 0  # of one process each, as are…
    days_of_hours: int = 0
    days: int = 0
    segments: int = 0
    partitions: int = 0  # of days, on Postgres

    @property
    def nothing(self) -> bool:
        """Whether all that is there is young enough."""
        return not (self.hours_of_kernels or self.days_of_hours or self.days or self.segments)

    def add(self, other: Dropped) -> None:
        """Count what another one counts."""
        self.hours_of_kernels += other.hours_of_kernels
        self.days_of_hours += other.days_of_hours
        self.days += other.days
        self.segments += other.segments
        self.partitions += other.partitions


def prune(connection: Connection, now_ns: int, keep: Keep, most: int = AT_ONCE) -> Dropped:
    """Remove what is older than that, at most ``most`` of each; call again until there was nothing.

    On Postgres windows and their kernels are not removed here, but told to be gone, a whole day at a time: dropping
    the day's partition is another transaction (``postgres_retention``). Nor are sums that have partitions of their own
    (``postgres_sum_retention``).
    """
    found = Dropped()
    hours = _old(connection, HOUR_S, now_ns - keep.raw_s * SECOND_NS, most, finer=True)
    _drop_windows(connection, HOUR_S, hours, whole=False)
    for bucket, process in hours:
        _mark(connection, HOUR_S, bucket, process)
    days = _old(connection, DAY_S, now_ns - keep.hourly_s * SECOND_NS, most, finer=True)
    _drop_windows(connection, DAY_S, days, whole=True)
    for bucket, process in days:
        _drop_pieces(connection, HOUR_S, bucket, process)
        kernel_hours.drop(connection, bucket, process)
        _mark(connection, DAY_S, bucket, process)
    oldest = _old(connection, DAY_S, now_ns - keep.daily_s * SECOND_NS, most, finer=False)
    _drop_windows(connection, DAY_S, oldest, whole=True)  # those that came since
    for bucket, process in oldest:
        _drop_pieces(connection, DAY_S, bucket, process)
    if oldest:
        process_states.forget(connection, now_ns - keep.daily_s * SECOND_NS)
    found.hours_of_kernels, found.days_of_hours, found.days = len(hours), len(days), len(oldest)
    found.segments = _drop_segments(connection, now_ns, max(keep.hourly_s, SEGMENTS_S) * SECOND_NS, most)
    return found


def _old(connection: Connection, grain: int, before_ns: int, most: int, *, finer: bool) -> list[tuple[int, int]]:
    """Pieces that ended before a time and are summed up; those that hold imported windows are left alone."""
    r, w = rollups.c, windows.c
    imported = select(w.id).where(
        w.process_id == r.process_id,
        w.start_unix_ns.between(r.bucket_unix_ns, r.bucket_unix_ns + grain * SECOND_NS - 1),
        w.trigger == Trigger.IMPORTED,
        w.id < SHARED,
    )
    ended = max(0, before_ns) - grain * SECOND_NS
    apart: list[ColumnElement[bool]] = []
    if connection.dialect.name == "postgresql":  # where days go as a whole
        ended = max(0, before_ns) // DAY_NS * DAY_NS - grain * SECOND_NS
        if grain == DAY_S:  # what has partitions of sums goes with them
            gone = HOUR_S if finer else DAY_S
            apart = postgres_sums.not_in(r.bucket_unix_ns, postgres_sum_retention.old(connection, gone, before_ns))
    query = (
        select(r.bucket_unix_ns, r.process_id)
        .where(~r.stale, r.grain == grain, r.bucket_unix_ns <= ended)
        .where(r.finer if finer else ~r.finer, ~imported.exists(), *apart)
        .order_by(r.bucket_unix_ns)
        .limit(most)
    )
    return [(bucket, process) for bucket, process in connection.execute(query)]


def _time(bucket: int, grain: int, process: int) -> ColumnElement[bool]:
    w = windows.c
    return and_(w.process_id == process, w.start_unix_ns.between(bucket, bucket + grain * SECOND_NS - 1))


def _drop_windows(connection: Connection, grain: int, pieces: Sequence[tuple[int, int]], *, whole: bool) -> None:
    """The kernels of pieces' windows, or all of them."""
    tables = (*OF_KERNELS, *(OF_WINDOWS if whole else ()))
    if connection.dialect.name == "postgresql":
        postgres_retention.drop_shared(connection, [*tables, *([windows] if whole else [])], grain, pieces)
        return
    for bucket, process in pieces:
        where = _time(bucket, grain, process)
        old = select(windows.c.id).where(where)
        for table in tables:
            connection.execute(delete(table).where(table.c.window_id.in_(old)))
        if whole:
            connection.execute(delete(windows).where(where))


def _drop_pieces(connection: Connection, grain: int, day: int, process: int) -> None:
    """A process's hours of a day, or the day."""
    rollup_groups.forget_pieces(connection, grain, day, day + DAY_S * SECOND_NS, [process])
    for table in (*ROLLED, rollups):
        t = table.c
        within = t.bucket_unix_ns.between(day, day + DAY_S * SECOND_NS - 1)
        connection.execute(delete(table).where(t.grain == grain, within, t.process_id == process))


def _mark(connection: Connection, grain: int, bucket: int, process: int) -> None:
    """What the piece is made of is gone: windows that still come are added to it."""
    r = rollups.c
    mine = (r.grain == grain, r.bucket_unix_ns == bucket, r.process_id == process)
    connection.execute(update(rollups).where(*mine).values(finer=False))


def _drop_segments(connection: Connection, now_ns: int, age_ns: int, most: int) -> int:
    """Numbers of segments so much older than the newest, and than now, that no agent sends them again."""
    s, d = segments.c, agent_drops.c
    newest = connection.execute(select(func.max(s.received_unix_ns))).scalar() or 0
    before = min(int(newest), now_ns) - min(age_ns, MOST)  # one received while the clock was ahead ages no other
    query = select(s.agent_id, s.sequence).where(s.received_unix_ns < before).limit(most * 100)
    old = connection.execute(query).all()
    newest_of: dict[int, int] = {}
    for agent, sequence in old:
        newest_of[agent] = max(sequence, newest_of.get(agent, -1))
    for agent, sequence in newest_of.items():  # a segment that comes again is then still told from a new one
        mine = (agents.c.id == agent, agents.c.forgotten < sequence)
        connection.execute(update(agents).where(*mine).values(forgotten=sequence))
    for agent, sequence in old:
        connection.execute(delete(agent_drops).where(d.agent_id == agent, d.sequence == sequence))
        connection.execute(delete(segments).where(s.agent_id == agent, s.sequence == sequence))
    return len(old)


@dataclass(slots=True)
class Believed:
    """The time by which things are old: a clock that jumps ahead is believed a day later, so that somebody can set it.

    Agents on the store's own machine share its clock, so the newest window tells nothing against it.
    """

    offset_ns: int  # of the clock, to one that cannot be set
    since_s: float | None = None  # by that one: when the clock jumped ahead, None where it did not

    def time_ns(self, now_ns: int, steady_s: float) -> int:
        """What time it is."""
        steady_ns = int(steady_s * SECOND_NS)
        offset = now_ns - steady_ns
        if offset <= self.offset_ns + JUMP_NS:
            self.since_s = None
        elif self.since_s is None:
            self.since_s = steady_s
            hours = (offset - self.offset_ns) / JUMP_NS
            _log.warning("the clock jumped ahead by %.1f hours: what that makes old is kept for another day", hours)
        elif steady_s >= self.since_s + DOUBTED_S:
            self.since_s = None
        if self.since_s is None:
            self.offset_ns = offset
        return steady_ns + self.offset_ns


@dataclass(slots=True)
class Upkeep:
    """What a store does beside ingest, on the writer's thread: sums up what is over and removes what is old."""

    database: Database
    keep: Keep
    now_ns: Callable[[], int] = time.time_ns
    clock: Callable[[], float] = time.monotonic
    due_s: float = 0.0  # by the clock
    failed: str = ""
    broken: GivenUp = field(default_factory=GivenUp)  # what cannot be summed up
    believed: Believed = field(init=False)

    def __post_init__(self) -> None:
        """Let a store that starts answer first."""
        self.due_s = self.clock() + EVERY_S
        self.believed = Believed(self.now_ns() - int(self.clock() * SECOND_NS))

    def wait_s(self) -> float:
        """How long until there may be something to do."""
        return max(0.0, self.due_s - self.clock())

    def run(self) -> None:
        """A bounded piece of work, if its time has come; a failure is told once, and tried again later."""
        if self.wait_s() > 0:
            return
        more = False
        try:
            with telling(self.database.url), self.database.write() as connection:
                more = rollup.sweep(connection, self.now_ns(), self.broken) > 0
                now = self.believed.time_ns(self.now_ns(), self.clock())
                reference = _reference(connection, now)
                more = not prune(connection, reference, self.keep).nothing or more
            if self.database.on_postgres and not more:
                postgres_sum_retention.tidy(self.database, self.now_ns(), reference, self.keep, self.broken)
                more = postgres_retention.tidy(self.database, self.now_ns(), reference, self.keep, self.broken)[1]
            self.failed = ""
        except Exception as error:  # noqa: BLE001 - whatever it is, ingest must go on
            if str(error) != self.failed:
                self.failed = str(error)
                _log.warning("summing up and removing old windows failed, and is tried again: %s", error)
        self.due_s = self.clock() + (AGAIN_S if more else EVERY_S)


def _reference(connection: Connection, now_ns: int) -> int:
    """Now, but not long after the newest window: a clock that jumps ahead must not take everything away."""
    r = rollups.c
    newest = connection.execute(select(func.max(r.bucket_unix_ns)).where(r.grain == HOUR_S)).scalar()
    return now_ns if newest is None else min(now_ns, int(newest) + HOUR_S * SECOND_NS)


def prune_all(database: Database, now_ns: int, keep: Keep, tell: Callable[[str], None] = lambda _: None) -> Dropped:
    """Sum up all that is over and remove all that is old, in small transactions; ``tell`` hears how far it is.

    Raises:
        RoofwatchError: it is on ClickHouse, where nobody but the store writes.
    """
    if database.engine.dialect.name == CLICKHOUSE:
        raise RoofwatchError(
            f"{database.url} is pruned by its running store alone, every half minute: give --keep-raw, --keep-hourly "
            "and --keep-daily to 'roofwatch store serve'"
        )
    broken = GivenUp()
    total, more, summed = Dropped(), True, 0
    while more:
        with database.write() as connection:  # others write in between
            more = (found := rollup.sweep(connection, now_ns, broken)) > 0
        summed += found
        tell(f"{summed} sums made")
    more = True
    while more:
        with database.write() as connection:
            removed = prune(connection, now_ns, keep)
        total.add(removed)
        tell(f"{summed} sums made, {total.hours_of_kernels + total.days_of_hours + total.days} pieces removed")
        more = not removed.nothing
        if database.on_postgres and not more:
            sums = postgres_sum_retention.tidy(database, time.time_ns(), now_ns, keep, broken)
            dropped, more = postgres_retention.tidy(database, time.time_ns(), now_ns, keep, broken)
            total.add(Dropped(days_of_hours=sums.days_of_hours, days=sums.days, partitions=sums.partitions + dropped))
    return total
