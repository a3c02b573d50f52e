"""One group of segments into the tables, inside the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table, select

from roofwatch.model.answer import device_json, estimated, weight_of
from roofwatch.model.record import Cost, Device, DeviceState, Node, Padding, Process, Signature
from roofwatch.store import bulk, rollup, schema
from roofwatch.store.blocks import pack
from roofwatch.store.identity import agent_id, node_id, text_id
from roofwatch.store.outcome import DUPLICATE, STORED, Outcome, rejected
from roofwatch.store.unpack import Unpacked, UnpackedWindow

MAX_KNOWN = 500_000  # rows of a dimension remembered: about 100 MB


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent that has connected."""

    agent: str
    boot: str
    version: str
    node: Node


@dataclass(slots=True)
class Known:
    """Rows of dimensions that are in the database already, by table and id, with their content."""

    rows: dict[str, dict[Any, Any]] = field(default_factory=dict)
    staged: dict[str, dict[Any, Any]] = field(default_factory=dict)

    def fresh(self, table: Table, key: Any, content: Any = None) -> bool:
        """Whether a row is new or changed; if so it is taken as known once the transaction is committed."""
        for rows in (self.staged, self.rows):
            found = rows.get(table.name, {}).get(key, self)
            if found is not self:
                if found == content:
                    return False
                break
        self.staged.setdefault(table.name, {})[key] = content
        return True

    def news(self, table: Table, rows: Mapping[Any, Any]) -> dict[Any, Any]:
        """Of many rows those that are new or changed, as fresh() says one by one."""
        known, staged = self.rows.get(table.name, {}), self.staged.setdefault(table.name, {})
        found = {key: row for key, row in rows.items() if staged.get(key, known.get(key, self)) != row}
        staged.update(found)
        return found

    def commit(self) -> None:
        """The transaction was committed."""
        for name, staged in self.staged.items():
            rows = self.rows.setdefault(name, {})
            if len(rows) > MAX_KNOWN:
                rows.clear()
            rows.update(staged)
        self.staged = {}

    def rollback(self) -> None:
        """The transaction was not committed."""
        self.staged = {}


@dataclass(slots=True)
class Loader:
    """Writes groups; remembers which dimensions are written. ``now_ns`` is the clock."""

    now_ns: Callable[[], int]
    known: Known = field(default_factory=Known)
    newest: dict[int, int] = field(default_factory=dict)  # the hour that each process has come to
    waiting: dict[int, int] = field(default_factory=dict)  # processes that left something to sum up before an hour
    broken: set[rollup.Piece] = field(default_factory=set)  # what cannot be summed up

    def load(self, connection: Connection, group: Sequence[Unpacked | Hello]) -> list[Outcome]:
        """What became of each; only what is new was written."""
        outcomes = []
        fresh = []
        for work in group:
            if isinstance(work, Hello):
                self._hello(connection, work)
                outcomes.append(STORED)
                continue
            outcome = self._segment(connection, work)
            outcomes.append(outcome)
            if outcome is STORED:
                fresh.append(work)
        windows = self._new_windows(connection, fresh)
        self._dimensions(connection, fresh)
        self._window_parts(connection, windows)
        self._kernels(connection, windows)
        rollup.changed(connection, windows)
        rollup.close(connection, windows, self.newest, self.waiting, self.broken)
        return outcomes

    def _kernels(self, connection: Connection, windows: Sequence[tuple[int, UnpackedWindow]]) -> None:
        blocks = [
            (number, len(w.facts), pack(w.facts.columns), w.facts.histograms.pack())
            for number, w in windows
            if len(w.facts)
        ]
        bulk.insert(connection, schema.kernel_blocks, KERNEL_BLOCK_NAMES, list(chain.from_iterable(blocks)))

    def _hello(self, connection: Connection, hello: Hello) -> None:
        names = ("id", "name", "boot", "version", "node_id", "seen_unix_ns")
        self._node(connection, hello.node)
        row = (agent_id(hello.agent, hello.boot), hello.agent, hello.boot, hello.version, node_id(hello.node))
        bulk.insert(connection, schema.agents, names, (*row, self.now_ns()), bulk.update(schema.agents, names))

    def _segment(self, connection: Connection, work: Unpacked) -> Outcome:
        """Take a segment's number; a number that is taken is a repetition, or a second agent of the same name."""
        agent, t = agent_id(work.agent, work.boot), schema.segments
        row = (agent, work.sequence, work.crc32, len(work.windows), self.now_ns())
        names = ("agent_id", "sequence", "crc32", "windows", "received_unix_ns")
        if bulk.insert_returning(connection, t, names, row, ("sequence",)):
            drops = [(agent, work.sequence, reason, count) for reason, count in work.drops.items()]
            columns = ("agent_id", "sequence", "reason", "count")
            bulk.insert(connection, schema.agent_drops, columns, list(chain.from_iterable(drops)))
            return STORED
        stored = select(t.c.crc32).where(t.c.agent_id == agent, t.c.sequence == work.sequence)
        if connection.execute(stored).scalar() == work.crc32:
            return DUPLICATE
        return rejected(
            f"segment {work.sequence} of agent {work.agent} is stored with other content: two agents share one identity"
        )

    def _new_windows(self, connection: Connection, group: Iterable[Unpacked]) -> list[tuple[int, UnpackedWindow]]:
        """Insert the windows whose uid is not stored yet; with the number each was given."""
        by_uid: dict[bytes, UnpackedWindow] = {}
        for w in chain.from_iterable(work.windows for work in group):
            by_uid.setdefault(bytes.fromhex(w.window.uid), w)
        rows = (window_row(uid, w) for uid, w in by_uid.items())
        flat = list(chain.from_iterable(rows))
        inserted = bulk.insert_returning(connection, schema.windows, WINDOW_NAMES, flat, ("id", "uid"))
        return [(number, by_uid[uid]) for number, uid in inserted]

    def _dimensions(self, connection: Connection, group: Sequence[Unpacked]) -> None:
        for work in group:
            for w in work.windows:
                self._process(connection, w.window.process, w.process_id)
        devices = dict(chain.from_iterable(work.devices.items() for work in group))
        news = self.known.news(schema.devices, devices)
        flat = list(chain.from_iterable(device_row(i, *d) for i, d in news.items()))
        bulk.insert(connection, schema.devices, DEVICE_NAMES, flat, bulk.nothing())
        sets = {w.devices_id: w.devices for work in group for w in work.windows}
        news = self.known.news(schema.device_sets, sets)
        flat = [x for i, of in news.items() for device in sorted(set(of)) for x in (i, device)]
        bulk.insert(connection, schema.device_sets, ("id", "device_id"), flat, bulk.nothing())
        self._signatures(connection, dict(chain.from_iterable(work.signatures.items() for work in group)))
        roofs = dict(chain.from_iterable(work.roofs.items() for work in group))
        names = ("signature_id", "peaks_id", "roof_ns", "ridge")
        news = self.known.news(schema.roofs, roofs)
        flat = [x for key, value in news.items() if value != (None, None) for x in (*key, *value)]
        bulk.insert(connection, schema.roofs, names, flat, bulk.update(schema.roofs, names))

    def _node(self, connection: Connection, node: Node) -> int:
        identity = node_id(node)
        if self.known.fresh(schema.nodes, identity, node):
            names = ("id", "host", "boot_id")
            bulk.insert(connection, schema.nodes, names, (identity, node.host, node.boot_id), bulk.nothing())
            self._labels(connection, identity, node.labels)
        return identity

    def _process(self, connection: Connection, p: Process, identity: int) -> None:
        if not self.known.fresh(schema.processes, identity, p):
            return
        node = self._node(connection, p.node)
        names = (
            "id", "node_id", "pid", "start_unix_ns", "owner", "job", "container", "rank", "local_rank", "world_size",
            "model", "versions",
        )  # fmt: skip
        versions = json.dumps(dict(sorted(p.versions.items())))
        row = (
            identity, node, p.pid, p.start_unix_ns, p.user, p.job, p.container, p.rank, p.local_rank, p.world_size,
            p.model, versions,
        )  # fmt: skip
        bulk.insert(connection, schema.processes, names, row, bulk.update(schema.processes, names))
        self._labels(connection, identity, p.labels)

    def _labels(self, connection: Connection, owner: int, labels: Mapping[str, str]) -> None:
        t = schema.labels
        connection.execute(t.delete().where(t.c.owner_id == owner))
        flat = list(chain.from_iterable((owner, key, value) for key, value in labels.items()))
        bulk.insert(connection, t, ("owner_id", "key", "value"), flat)

    def _signatures(self, connection: Connection, signatures: Mapping[int, Signature]) -> None:
        known = self.known.news(schema.signatures, dict.fromkeys(signatures))
        names = {
            text for i in known for s in (signatures[i],) for text in (s.kernel, s.op, s.module) if text is not None
        }
        texts = self.known.news(schema.texts, {text_id(text): text for text in names})
        bulk.insert(connection, schema.texts, ("id", "value"), list(chain.from_iterable(texts.items())), bulk.nothing())
        flat = list(chain.from_iterable(signature_row(i, signatures[i]) for i in known))
        bulk.insert(connection, schema.signatures, SIGNATURE_NAMES, flat, bulk.nothing())

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
                d.memory_used_bytes, d.memory_peak_bytes, *_state(d.state),
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


COLLECTIVE_NAMES = tuple(c.name for c in schema.collectives.columns)
IDLE_CAUSE_NAMES = tuple(c.name for c in schema.idle_causes.columns)
KERNEL_BLOCK_NAMES = tuple(c.name for c in schema.kernel_blocks.columns)
GRAPH_NAMES = tuple(c.name for c in schema.graphs.columns)
WINDOW_DEVICE_NAMES = tuple(c.name for c in schema.window_devices.columns)
DEVICE_NAMES = tuple(c.name for c in schema.devices.columns)
SIGNATURE_NAMES = tuple(c.name for c in schema.signatures.columns)
WINDOW_NAMES = tuple(c.name for c in schema.windows.columns if c.name != "id")


def device_row(identity: int, d: Device, peaks: int) -> tuple[Any, ...]:
    """A row of ``devices``."""
    described = json.dumps(device_json(d))
    return (
        identity, str(d.vendor), d.model, d.uuid, d.index, d.memory_bytes, d.units, d.driver, d.inferred, peaks,
        described,
    )  # fmt: skip


def signature_row(identity: int, s: Signature) -> tuple[Any, ...]:
    """A row of ``signatures``."""
    names = [None if text is None else text_id(text) for text in (s.kernel, s.op, s.module)]
    return (
        identity, *names, str(s.kind), str(s.phase), s.shapes, s.dtypes, s.arguments, s.formula, s.precision, s.unit,
        s.flops, s.bytes, s.flops_max,
    )  # fmt: skip


def window_row(uid: bytes, unpacked: UnpackedWindow) -> tuple[Any, ...]:
    """A row of ``windows``, without its number."""
    w = unpacked.window
    return (
        uid, unpacked.process_id, w.start_unix_ns, w.duration_ns, w.steps, w.represents_ns, str(w.trigger), w.collector,
        w.shapes_recorded, w.ledger.events_read, w.ledger.device_records, w.ledger.device_time_ns,
        w.ledger.has_host_events, w.ledger.linked_ns, w.ledger.backlog_ns, w.ledger.classifiable_ns,
        w.ledger.classified_ns, w.ledger.named_ns, *_cost(w.cost), *_padding(w.padding), w.first_step,
        w.ledger.model_ns, w.ledger.model_known_ns, w.ledger.model_flops, w.ledger.model_peak_ns,
        w.ledger.compared_ns, w.ledger.disagreed_ns, w.ledger.layout_ns, w.ledger.python_events,
        w.ledger.waits, w.ledger.wait_ns, w.ledger.longest_wait_ns, *_lengths(w.padding),
        unpacked.devices_id, w.span_ns, sum(estimated(d.span_ns, weight_of(w, d)) for d in w.devices),
        sum(g.total_ns for g in w.graphs), sum(g.attributed_ns for g in w.graphs),
    )  # fmt: skip


def _cost(c: Cost | None) -> tuple[Any, ...]:
    if c is None:
        return (None,) * 11
    return (
        c.close_path, c.open_ns, c.quiesce_ns, c.close_ns, c.save_ns, c.free_ns, c.base_step_ns, c.longest_step_ns,
        c.lost_in_ns, c.lost_after_ns, c.parse_cpu_ns,
    )  # fmt: skip


def _padding(p: Padding | None) -> tuple[Any, ...]:
    if p is None:
        return (None,) * 5
    return (p.batches, p.real_tokens, p.padded_tokens, p.real_squared, p.padded_squared)


def _lengths(p: Padding | None) -> tuple[Any, ...]:
    if p is None:
        return (None,) * 4
    texts = (json.dumps(told, separators=(",", ":")) if told else None for told in (p.lengths, p.shapes))
    return (*texts, p.coarsened, p.unread)


def _state(s: DeviceState | None) -> tuple[Any, ...]:
    if s is None:
        return (None,) * 6
    return (s.clock_hz, s.clock_max_hz, s.power_w, s.power_limit_w, s.temperature_c, s.throttle)
