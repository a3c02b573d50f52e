"""Sums of hours as plain rows, for what asks in SQL (dashboards): of a node, a signature and a bound.

Made of the sums of the node's processes, once all of them have come to the end of the hour and again when a late window
has changed one; so they say what ``top --by node`` says of hours that are over, and nothing of the hour that is not.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select
from sqlalchemy.exc import OperationalError

from roofwatch.store import bulk
from roofwatch.store.gather import Devices, OfDevice, from_pieces
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS
from roofwatch.store.schema import kernel_hours, processes, rollups
from roofwatch.store.sums import COLUMN, KEYS, Sums

NAMES = (
    "bucket_unix_ns", "node_id", "signature_id", "peaks_id", "bound", "calls", "total_ns", "est_ns", "min_ns", "max_ns",
)  # fmt: skip
_VALUES = NAMES[NAMES.index("calls") :]
_MERGED = [COLUMN[name] for name in ("evidence", "formula_bound")]  # of the keys of a sum those that are not ours
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _OfNodes(Devices):
    """Devices of one node with one set of peaks are one."""

    nodes: Mapping[int, int] = field(default_factory=dict)

    def key(self, device: OfDevice) -> Hashable:
        """What is one device here."""
        return (self.nodes[device.process_id], device.peaks_id)


def renew(
    connection: Connection, changed: Collection[tuple[int, int]], broken: Collection[tuple[int, int, int]]
) -> None:
    """Write the hours of nodes anew of whose processes (beginning of the hour, process) the sums have changed.

    A node waits while an hour of another of its processes is still to be summed up; ``broken`` ones never will be. A
    failure leaves the rows as they were: the sums themselves, and ingest, do not depend on them.
    """
    hours: dict[int, list[int]] = defaultdict(list)
    for bucket, process in changed:
        hours[bucket].append(process)
    for bucket, of in hours.items():
        given_up = {process for grain, at, process in broken if grain == HOUR_S and at == bucket}
        point = connection.begin_nested()
        try:
            _renew(connection, bucket, of, given_up)
        except (OperationalError, MemoryError):  # no disk, a lock: the whole transaction is tried again
            raise
        except Exception as error:  # noqa: BLE001 - a damaged block of one process must not hold up the others
            point.rollback()
            _log.warning("hours of nodes cannot be made for dashboards: %s", error)
        else:
            point.commit()


def _renew(connection: Connection, bucket: int, of: Collection[int], given_up: Collection[int]) -> None:
    p, r, k = processes.c, rollups.c, kernel_hours.c
    touched = select(p.node_id).where(p.id.in_(of))
    query = select(p.id, p.node_id, r.stale).join(rollups, r.process_id == p.id)
    query = query.where(r.grain == HOUR_S, r.bucket_unix_ns == bucket, p.node_id.in_(touched))
    found = connection.execute(query).all()
    waiting = {node for process, node, stale in found if stale and process not in given_up}
    nodes = {process: node for process, node, stale in found if not stale and node not in waiting}
    if not nodes:
        return
    connection.execute(delete(kernel_hours).where(k.bucket_unix_ns == bucket, k.node_id.in_(set(nodes.values()))))
    places = _OfNodes(nodes=nodes)
    mine = [r.grain == HOUR_S, r.bucket_unix_ns == bucket, r.process_id.in_(list(nodes))]
    sums = from_pieces(connection, mine, places)
    flat = [value for row in _rows(bucket, sums, places) for value in row]
    bulk.insert(connection, kernel_hours, NAMES, flat)


def _rows(bucket: int, sums: Sums, places: _OfNodes) -> Iterator[tuple[Any, ...]]:
    """A row a node, set of peaks, signature and bound."""
    columns = sums.columns.copy()
    columns[_MERGED] = 0
    merged = Sums(columns, sums.device).reduced()
    keys = dict(zip(("signature_id", "evidence", "bound"), merged.columns[:KEYS].tolist(), strict=False))
    values = [merged.columns[COLUMN[name]].tolist() for name in _VALUES]
    for number, signature, bound, *rest in zip(
        merged.device.tolist(), keys["signature_id"], keys["bound"], *values, strict=True
    ):
        device = places.rows[number]
        yield (bucket, places.nodes[device.process_id], signature, device.peaks_id, bound, *rest)


def drop(connection: Connection, day: int, process: int) -> None:
    """Remove a node's hours of a day of which no process has any left; called where those of a process were removed."""
    k, p, r = kernel_hours.c, processes.c, rollups.c
    node = select(p.node_id).where(p.id == process).scalar_subquery()
    end = day + DAY_S * SECOND_NS - 1
    left = (
        select(r.grain)
        .join(processes, p.id == r.process_id)
        .where(r.grain == HOUR_S, r.bucket_unix_ns.between(day, end), p.node_id == node)
    )
    connection.execute(
        delete(kernel_hours).where(k.bucket_unix_ns.between(day, end), k.node_id == node, ~left.exists())
    )
