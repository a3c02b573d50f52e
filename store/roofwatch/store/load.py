"""One group of segments into the tables, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from sqlalchemy import Connection, select

from roofwatch.model.record import Node, Trigger
from roofwatch.store import bulk, postgres_partitions, rollup, schema, ungreeted
from roofwatch.store.dimensions import Dimensions
from roofwatch.store.given_up import GivenUp
from roofwatch.store.identity import agent_id, node_id
from roofwatch.store.outcome import DUPLICATE, STORED, Outcome, rejected
from roofwatch.store.rows import (
    COLLECTIVE_NAMES,
    GRAPH_NAMES,
    IDLE_CAUSE_NAMES,
    KERNEL_BLOCK_NAMES,
    WINDOW_DEVICE_NAMES,
    WINDOW_NAMES,
    state_row,
    window_row,
)
from roofwatch.store.unpack import Unpacked, UnpackedWindow

LATE_NS = 86_400 * 10**9  # a segment's number is kept much longer


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent that has connected."""

    agent: str
    boot: str
    version: str
    node: Node


@dataclass(slots=True)
class Loader:
    """Writes groups; remembers which dimensions are written. ``now_ns`` is the clock."""

    now_ns: Callable[[], int]
    dimensions: Dimensions = field(default_factory=Dimensions)
    newest: dict[int, int] = field(default_factory=dict)  # the hour that each process has come to
    waiting: dict[int, int] = field(default_factory=dict)  # processes that left something to sum up before an hour
    broken: GivenUp = field(default_factory=GivenUp)  # what cannot be summed up
    boots: set[int] = field(default_factory=set)  # of agents, that are written

    def commit(self) -> None:
        """The transaction was committed."""
        self.dimensions.commit()

    def rollback(self) -> None:
        """The transaction was not committed."""
        self.dimensions.rollback()
        self.boots.clear()

    def load(self, connection: Connection, group: Sequence[Unpacked | Hello]) -> list[Outcome]:
        """What became of each; only what is new was written."""
        for work in group:
            if isinstance(work, Hello):
                self._hello(connection, work)
        segments = [work for work in group if isinstance(work, Unpacked)]
        became = self._segments(connection, segments)
        fresh = [work for work, outcome in zip(segments, became, strict=True) if outcome is STORED]
        ungreeted.write(connection, fresh, self.boots)
        windows = self._new_windows(connection, fresh)
        self.dimensions.write(connection, fresh, self.now_ns())
        self._window_parts(connection, windows)
        self._kernels(connection, windows)
        rollup.changed(connection, windows, self.broken)
        rollup.close(connection, windows, self.newest, self.waiting, self.broken)
        each = iter(became)
        return [STORED if isinstance(work, Hello) else next(each) for work in group]

    def _kernels(self, connection: Connection, windows: Sequence[tuple[int, UnpackedWindow]]) -> None:
        made = {id(kernels): kernels.packed() for kernels in {id(w.kernels): w.kernels for _, w in windows}.values()}
        blocks = [
            (number, count, *made[id(w.kernels)][w.place])
            for number, w in windows
            if (count := w.kernels.count(w.place))
        ]
        bulk.insert(connection, schema.kernel_blocks, KERNEL_BLOCK_NAMES, list(chain.from_iterable(blocks)))

    def _hello(self, connection: Connection, hello: Hello) -> None:
        names = ("id", "name", "boot", "version", "node_id", "seen_unix_ns")
        self.dimensions.node(connection, hello.node)
        row = (agent_id(hello.agent, hello.boot), hello.agent, hello.boot, hello.version, node_id(hello.node))
        bulk.insert(connection, schema.agents, names, (*row, self.now_ns()), bulk.update(schema.agents, names))

    def _segments(self, connection: Connection, group: Sequence[Unpacked]) -> list[Outcome]:
        """Take the numbers of segments; one that is taken is a repetition, or a second agent of the same name."""
        keys = [(agent_id(work.agent, work.boot), work.sequence) for work in group]
        now = self.now_ns()
        known = _forgotten(connection, keys, group, now)
        rows = (
            (*key, work.crc32, len(work.windows), now)
            for key, work in zip(keys, group, strict=True)
            if key not in known
        )
        names = ("agent_id", "sequence", "crc32", "windows", "received_unix_ns")
        flat = list(chain.from_iterable(rows))
        new = {tuple(row) for row in bulk.insert_returning(connection, schema.segments, names, flat, names[:2])}
        outcomes, drops = [], []
        for key, work in zip(keys, group, strict=True):
            if key in new:
                new.remove(key)  # the same segment again in this group is a repetition
                drops += [(*key, reason, count) for reason, count in work.drops.items()]
                outcomes.append(STORED)
            elif key in known:
                outcomes.append(DUPLICATE)
            else:
                outcomes.append(_taken(connection, key, work))
        columns = ("agent_id", "sequence", "reason", "count")
        bulk.insert(connection, schema.agent_drops, columns, list(chain.from_iterable(drops)))
        return outcomes

    def _new_windows(self, connection: Connection, group: Iterable[Unpacked]) -> list[tuple[int, UnpackedWindow]]:
        """Insert the windows whose uid is not stored yet; with the number each was given."""
        by_uid: dict[bytes, UnpackedWindow] = {}
        for w in chain.from_iterable(work.windows for work in group):
            by_uid.setdefault(bytes.fromhex(w.window.uid), w)
        if connection.dialect.name == "postgresql":
            return self._numbered(connection, by_uid)
        rows = (window_row(uid, w) for uid, w in by_uid.items())
        flat = list(chain.from_iterable(rows))
        inserted = bulk.insert_returning(connection, schema.windows, WINDOW_NAMES, flat, ("id", "uid"))
        return [(number, by_uid[uid]) for number, uid in inserted]

    def _numbered(
        self, connection: Connection, by_uid: Mapping[bytes, UnpackedWindow]
    ) -> list[tuple[int, UnpackedWindow]]:
        """On Postgres a window's number tells in which partition it is, so it is known before the window is written."""
        told = [(uid, w.window.start_unix_ns, w.window.trigger is Trigger.IMPORTED) for uid, w in by_uid.items()]
        numbers = postgres_partitions.numbers(connection, told)
        new = [(number, uid) for number, uid in zip(numbers, by_uid, strict=True) if number is not None]
        flat = [x for number, uid in new for x in (number, *window_row(uid, by_uid[uid]))]
        bulk.insert(connection, schema.windows, ("id", *WINDOW_NAMES), flat)
        return [(number, by_uid[uid]) for number, uid in new]

    def _window_parts(self, connection: Connection, windows: Sequence[tuple[int, UnpackedWindow]]) -> None:
        drops = [(number, reason, count) for number, w in windows for reason, count in w.window.ledger.dropped.items()]
        names: tuple[str, ...] = ("window_id", "reason", "count")
        bulk.insert(connection, schema.window_drops, names, list(chain.from_iterable(drops)))
        parts = [
            (number, position, w.devices[position], device)
            for number, w in windows
            for position, device in enumerate(w.window.devices)
        ]
        rows = (
            (
                number, position, identity, d.span_ns, d.busy_ns, d.exposed_copy_ns, d.exposed_communication_ns,
                d.memory_used_bytes, d.memory_peak_bytes, *state_row(d.state),
            )
            for number, position, identity, d in parts
        )  # fmt: skip
        bulk.insert(connection, schema.window_devices, WINDOW_DEVICE_NAMES, list(chain.from_iterable(rows)))
        causes = (
            (
                number, position, str(c.cause), c.total_ns, c.count, c.longest_ns, c.example, c.startup_ns,
                c.startup_count, c.steady_longest_ns, c.steady_example,
            )
            for number, position, _, d in parts
            for c in d.causes
        )  # fmt: skip
        bulk.insert(connection, schema.idle_causes, IDLE_CAUSE_NAMES, list(chain.from_iterable(causes)))
        collectives = (
            (
                number, position, c.device, c.name, c.group, c.group_size, c.sequence, c.start_unix_ns, c.duration_ns,
                c.bytes,
            )
            for number, w in windows
            for position, c in enumerate(w.window.collectives)
        )  # fmt: skip
        bulk.insert(connection, schema.collectives, COLLECTIVE_NAMES, list(chain.from_iterable(collectives)))
        graphs = (
            (
                number, position, g.device, g.name, g.launches, g.records, g.total_ns, g.attributed_ns, g.source,
                g.confidence,
            )
            for number, w in windows
            for position, g in enumerate(w.window.graphs)
        )  # fmt: skip
        bulk.insert(connection, schema.graphs, GRAPH_NAMES, list(chain.from_iterable(graphs)))


def _forgotten(
    connection: Connection, keys: Sequence[tuple[int, int]], group: Sequence[Unpacked], now_ns: int
) -> set[tuple[int, int]]:
    """Of segments with old windows those that were stored so long ago that their numbers are no longer kept."""
    late = [
        key
        for key, work in zip(keys, group, strict=True)
        if any(w.window.start_unix_ns < now_ns - LATE_NS for w in work.windows)
    ]
    if not late:
        return set()
    a = schema.agents.c
    of = {agent for agent, _ in late}
    query = select(a.id, a.forgotten).where(a.id.in_(of), a.forgotten >= 0)
    until = {agent: sequence for agent, sequence in connection.execute(query)}  # noqa: C416 - rows are no pairs to mypy
    return {(agent, sequence) for agent, sequence in late if sequence <= until.get(agent, -1)}


def _taken(connection: Connection, key: tuple[int, int], work: Unpacked) -> Outcome:
    """What a segment is whose number is stored."""
    t = schema.segments.c
    if connection.execute(select(t.crc32).where(t.agent_id == key[0], t.sequence == key[1])).scalar() == work.crc32:
        return DUPLICATE
    return rejected(
        f"segment {work.sequence} of agent {work.agent} is stored with other content: two agents share one identity"
    )
