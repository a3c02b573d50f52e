"""Nodes, processes, devices, signatures, names and roofs: what is new of them into the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from sqlalchemy import Connection

from roofwatch.model.record import Node, Process, Signature
from roofwatch.store import bulk, schema
from roofwatch.store.identity import node_id, text_id
from roofwatch.store.known import Known
from roofwatch.store.rows import DEVICE_NAMES, SIGNATURE_NAMES, device_row, signature_row
from roofwatch.store.unpack import Unpacked


@dataclass(slots=True)
class Dimensions:
    """Writes what is not known to be written; after the transaction ``known`` is to be told how it ended."""

    known: Known = field(default_factory=Known)

    def write(self, connection: Connection, group: Sequence[Unpacked]) -> None:
        """All that the windows of a group point to."""
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

    def node(self, connection: Connection, node: Node) -> int:
        """A machine; gives its id."""
        identity = node_id(node)
        if self.known.fresh(schema.nodes, identity, node):
            names = ("id", "host", "boot_id")
            bulk.insert(connection, schema.nodes, names, (identity, node.host, node.boot_id), bulk.nothing())
            self._labels(connection, identity, node.labels)
        return identity

    def _process(self, connection: Connection, p: Process, identity: int) -> None:
        if not self.known.fresh(schema.processes, identity, p):
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
