"""Nodes, processes, devices, signatures, names and roofs: what is new of them into the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from sqlalchemy import Connection

from roofwatch.model.record import Node, Process, ProcessState
from roofwatch.store import bulk, schema
from roofwatch.store.identity import node_id, text_id
from roofwatch.store.known import Known
from roofwatch.store.rows import (
    DEVICE_NAMES,
    PROCESS_STATE_NAMES,
    SIGNATURE_NAMES,
    device_row,
    signature_row,
    state_of_process_row,
)
from roofwatch.store.unpack import Unpacked
from roofwatch.store.written import Written

HOUR_NS = 3600 * 10**9  # for that long a statement stays the same
AHEAD_HOURS = 2  # what is further ahead of the store's clock is of a clock that is wrong


@dataclass(slots=True)
class Dimensions:
    """Writes what is not known to be written; to be told after the transaction how it ended."""

    known: Known = field(default_factory=Known)
    written: Written = field(default_factory=Written)

    def write(self, connection: Connection, group: Sequence[Unpacked], now_ns: int = 0) -> None:
        """All that the windows of a group point to; ``now_ns`` is the store's clock."""
        for work in group:
            for w in work.windows:
                self._process(connection, w.window.process, w.process_id)
        self._states(connection, group, now_ns)
        devices = dict(chain.from_iterable(work.devices.items() for work in group))
        news = self.known.news(schema.devices, devices)
        flat = list(chain.from_iterable(device_row(i, *d) for i, d in news.items()))
        bulk.insert(connection, schema.devices, DEVICE_NAMES, flat, bulk.nothing())
        sets = {w.devices_id: w.devices for work in group for w in work.windows}
        news = self.known.news(schema.device_sets, sets)
        flat = [x for i, of in news.items() for device in sorted(set(of)) for x in (i, device)]
        bulk.insert(connection, schema.device_sets, ("id", "device_id"), flat, bulk.nothing())
        self._signatures(connection, group)
        self._roofs(connection, group)

    def commit(self) -> None:
        """The transaction was committed."""
        self.known.commit()

    def rollback(self) -> None:
        """The transaction was not committed."""
        self.known.rollback()
        self.written.forget()

    def node(self, connection: Connection, node: Node) -> int:
        """A machine; gives its id."""
        identity = node_id(node)
        if self.known.fresh(schema.nodes, identity, node):
            names = ("id", "host", "boot_id")
            bulk.insert(connection, schema.nodes, names, (identity, node.host, node.boot_id), bulk.nothing())
            self._labels(connection, identity, node.labels)
        return identity

    def _process(self, connection: Connection, p: Process, identity: int) -> None:
        if not self.known.fresh(schema.processes, identity, _mark(p)):
            return
        node = self.node(connection, p.node)
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

    def _states(self, connection: Connection, group: Sequence[Unpacked], now_ns: int) -> None:
        """How processes stand with their agents: the newest that is told of each, but of no clock that was ahead."""
        told: dict[int, ProcessState] = {}
        for work in group:
            for identity, state in work.states:
                if identity not in told or state.unix_ns >= told[identity].unix_ns:
                    told[identity] = state
        for identity, state in told.items():
            self._process(connection, state.process, identity)
        flat = list(chain.from_iterable(state_of_process_row(i, state) for i, state in told.items()))
        newest = bulk.newest(schema.process_states, PROCESS_STATE_NAMES, "seen_unix_ns", sane_until(now_ns))
        bulk.insert(connection, schema.process_states, PROCESS_STATE_NAMES, flat, newest)

    def _labels(self, connection: Connection, owner: int, labels: Mapping[str, str]) -> None:
        t = schema.labels
        connection.execute(t.delete().where(t.c.owner_id == owner))
        flat = list(chain.from_iterable((owner, key, value) for key, value in labels.items()))
        bulk.insert(connection, t, ("owner_id", "key", "value"), flat)

    def _signatures(self, connection: Connection, group: Sequence[Unpacked]) -> None:
        signatures = {}
        for work in group:
            of = work.dictionary.catalog
            for number in self.written.new_signatures(work).tolist():
                signatures[int(of.ids[number])] = of.signatures[number]
        new = self.known.news(schema.signatures, dict.fromkeys(signatures))
        names = {text for i in new for s in (signatures[i],) for text in (s.kernel, s.op, s.module) if text is not None}
        ids = {text: text_id(text) for text in names}
        texts = self.known.news(schema.texts, {i: text for text, i in ids.items()})
        bulk.insert(connection, schema.texts, ("id", "value"), list(chain.from_iterable(texts.items())), bulk.nothing())
        flat = list(chain.from_iterable(signature_row(i, signatures[i], ids) for i in new))
        bulk.insert(connection, schema.signatures, SIGNATURE_NAMES, flat, bulk.nothing())

    def _roofs(self, connection: Connection, group: Sequence[Unpacked]) -> None:
        roofs: dict[tuple[int, int], tuple[float | None, float | None]] = {}
        for work in group:
            roofs.update(work.roofs_of(np.flatnonzero(self.written.new_roofs(work))))
        names = ("signature_id", "peaks_id", "roof_ns", "ridge")
        flat = [x for key, value in self.known.news(schema.roofs, roofs).items() for x in (*key, *value)]
        bulk.insert(connection, schema.roofs, names, flat, bulk.update(schema.roofs, names))


def _mark(p: Process) -> int:
    """What tells whether a process is described otherwise than before, in a tenth of what the description takes."""
    node = (p.node.host, p.node.boot_id, frozenset(p.node.labels.items()))
    own = (p.pid, p.start_unix_ns, p.user, p.job, p.container, p.rank, p.local_rank, p.world_size, p.model)
    return hash((node, own, frozenset(p.versions.items()), frozenset(p.labels.items())))


def sane_until(now_ns: int) -> int:
    """What tells a later time has a clock that is ahead. Full hours, so that statements are the same for as long."""
    return (now_ns // HOUR_NS + AHEAD_HOURS) * HOUR_NS
