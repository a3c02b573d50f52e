"""Sums of kernels over all processes of a node, and over the whole fleet: what questions without a process read.

They are rows of ``kernel_sums`` as those of processes are, with a node's id, or FLEET, in the place of the process; no
join with processes finds them. One row a device model, vendor and set of peaks; its device is the least of those.

The fleet of many nodes is summed up by parts, one a transaction, so that ingest does not wait for long; they are rows
with small numbers, and gone once the fleet's sum is there.

A group's sum is there only while it is right: whatever changes a piece that it holds removes it in the same
transaction, and it is made again once all pieces of its time are summed up. Answers take pieces where it is not there.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, distinct, func, literal, or_, select
from sqlalchemy.exc import OperationalError

from roofwatch.store import bulk
from roofwatch.store.blocks import pack
from roofwatch.store.gather import Devices, Models, OfDevice, from_groups, from_pieces
from roofwatch.store.given_up import GivenUp, Piece
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS
from roofwatch.store.schema import kernel_sums, processes, rollups
from roofwatch.store.sums import Sums

FLEET = 0  # no process or node has this id: theirs are hashes
PARTS = 16  # of a fleet, numbered from 1 on: nodes whose ids divided by it leave the same
SPLIT = 64  # nodes that are summed up at once: 0.05 s
AT_ONCE = 8  # nodes in one transaction
NAMED = 10_000  # times, or groups, in one statement: two of SQLite's 32,766 values
LEAST = 2  # processes of a node that are worth a sum of their own
_log = logging.getLogger(__name__)
_NAMES = ("grain", "bucket_unix_ns", "process_id", "device_id", "rows", "sums", "histograms")


@dataclass(slots=True)
class _Models(Models):
    """The least device stands for all of its model."""

    def number(self, device: OfDevice) -> int:
        """The number of a device."""
        found = Models.number(self, device)
        if device.id < self.rows[found].id:
            self.rows[found] = device
        return found


def forget(connection: Connection, grain: int, buckets: Collection[int], nodes: Collection[int]) -> None:
    """Remove the sums of nodes, and the fleet's, because a piece that they hold changes."""
    k, times, groups = kernel_sums.c, list(buckets), [FLEET, *range(1, PARTS + 1), *nodes]
    for at in range(0, len(times), NAMED):
        for first in range(0, len(groups), NAMED):
            where = (k.bucket_unix_ns.in_(times[at : at + NAMED]), k.process_id.in_(groups[first : first + NAMED]))
            connection.execute(delete(kernel_sums).where(k.grain == grain, *where))


def forget_pieces(connection: Connection, grain: int, since: int, until: int, of: Collection[int]) -> None:
    """The same of processes whose pieces from ≤ beginning < until change or go."""
    k, p = kernel_sums.c, processes.c
    nodes = select(p.node_id).where(p.id.in_(list(of)))
    where = (k.grain == grain, k.bucket_unix_ns >= since, k.bucket_unix_ns < until)
    connection.execute(
        delete(kernel_sums).where(*where, or_(k.process_id.between(FLEET, PARTS), k.process_id.in_(nodes)))
    )


def renew(connection: Connection, pieces: Iterable[Piece], broken: GivenUp) -> None:
    """Sum up nodes of which pieces were just summed up, where none of the node's is still to be.

    ``broken`` are those that cannot be summed up, here and below: groups with their own number.
    """
    together: dict[tuple[int, int], list[int]] = defaultdict(list)
    for grain, bucket, process in pieces:
        together[grain, bucket].append(process)
    p = processes.c
    for (grain, bucket), of in together.items():
        touched = connection.scalars(select(p.node_id).where(p.id.in_(of)).distinct()).all()
        _nodes(connection, grain, bucket, touched, broken)


def sweep(connection: Connection, until_ns: int, broken: GivenUp) -> int:
    """Make what an hour or day that ended before lacks: some nodes, a part, or the fleet; how many were tried."""
    for grain in (HOUR_S, DAY_S):
        given_up = [bucket for of, bucket, group in broken if of == grain and group == FLEET]
        bucket = connection.scalar(_lacking(grain, until_ns, broken.before_ns, given_up))
        if bucket is None:
            continue
        out = [group for of, at, group in broken if (of, at) == (grain, bucket)]
        if missing := connection.scalars(_without(grain, bucket, out).limit(AT_ONCE)).all():
            _nodes(connection, grain, bucket, missing, broken)
            return len(missing)
        parts = _parts(connection, grain, bucket)
        if parts & set(out):
            broken.add((grain, bucket, FLEET))
        elif lacking := sorted(parts - _there(connection, grain, bucket)):
            _safely(connection, (grain, bucket, lacking[0]), _part, broken)
        else:
            _safely(connection, (grain, bucket, FLEET), _fleet, broken)
        return 1
    return 0


def _safely(connection: Connection, group: Piece, make: Callable[[Connection, Piece], None], broken: GivenUp) -> None:
    """A damaged block must not hold up ingest and all others: answers read the pieces, and tell."""
    point = connection.begin_nested()
    try:
        make(connection, group)
    except (OperationalError, MemoryError):  # no disk, a lock: not the group's fault, and the next try may succeed
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, what the group is made of is still there
        point.rollback()
        broken.add(group)
        _log.warning("a sum of a node or of all cannot be made: %s", error)
    else:
        point.commit()


def _lacking(grain: int, until_ns: int, since_ns: int, but: Collection[int]) -> Select[Any]:
    """The last bucket of which all pieces are summed up and the fleet is not: looked for from bucket to bucket."""
    k, r, own = kernel_sums.c, rollups.c, kernel_sums.alias("own")
    ended = until_ns - grain * SECOND_NS
    last = select(func.max(k.bucket_unix_ns).label("at")).where(k.grain == grain, k.bucket_unix_ns <= ended)
    each = last.cte("each", recursive=True)
    before = select(func.max(own.c.bucket_unix_ns)).where(own.c.grain == grain, own.c.bucket_unix_ns < each.c.at)
    each = each.union_all(select(before.scalar_subquery()).where(each.c.at.is_not(None)))
    fleet = kernel_sums.alias("fleet").c
    has = select(literal(1)).where(fleet.grain == grain, fleet.bucket_unix_ns == each.c.at, fleet.process_id == FLEET)
    waits = select(literal(1)).where(r.stale, r.finer, r.grain == grain, r.bucket_unix_ns == each.c.at)
    mine = (each.c.at >= since_ns, each.c.at.not_in(but))
    query = select(each.c.at).where(*mine, ~has.exists(), ~waits.exists())
    return query.order_by(each.c.at.desc()).limit(1)


def _without(grain: int, bucket: int, but: Collection[int]) -> Select[Any]:
    """Nodes of several processes of which there is no sum."""
    k, p, own = kernel_sums.c, processes.c, kernel_sums.alias("own")
    has = select(literal(1)).where(own.c.grain == grain, own.c.bucket_unix_ns == bucket, own.c.process_id == p.node_id)
    return (
        select(p.node_id)
        .join(kernel_sums, k.process_id == p.id)
        .where(k.grain == grain, k.bucket_unix_ns == bucket, p.node_id.not_in(but), ~has.exists())
        .group_by(p.node_id)
        .having(func.count(distinct(k.process_id)) >= LEAST)
    )


def _nodes(connection: Connection, grain: int, bucket: int, of: Sequence[int], broken: GivenUp) -> None:
    """Those of the nodes that wait for no piece and have several."""
    r, p, k = rollups.c, processes.c, kernel_sums.c
    mine = (r.grain == grain, r.bucket_unix_ns == bucket, p.node_id.in_(list(of)))
    waits = select(p.node_id).join(rollups, r.process_id == p.id).where(r.stale, *mine)
    many = (
        select(p.node_id)
        .join(kernel_sums, k.process_id == p.id)
        .where(k.grain == grain, k.bucket_unix_ns == bucket, p.node_id.in_(list(of)), p.node_id.not_in(waits))
        .group_by(p.node_id)
        .having(func.count(distinct(k.process_id)) >= LEAST)
    )
    for node in connection.scalars(many).all():
        _safely(connection, (grain, bucket, node), _node, broken)


def _node(connection: Connection, group: Piece) -> None:
    r, models = rollups.c, _Models()
    grain, bucket, node = group
    where = [r.grain == grain, r.bucket_unix_ns == bucket, processes.c.node_id == node]
    _write(connection, group, from_pieces(connection, where, models, histograms=True), models)


def _parts(connection: Connection, grain: int, bucket: int) -> set[int]:
    """The parts that the fleet is summed up by: none where its nodes are few."""
    k, p = kernel_sums.c, processes.c
    part = (p.node_id % PARTS).label("part")
    query = select(part, func.count(distinct(p.node_id))).join(kernel_sums, k.process_id == p.id)
    found = connection.execute(query.where(k.grain == grain, k.bucket_unix_ns == bucket).group_by(part)).all()
    return {number + 1 for number, _ in found} if sum(nodes for _, nodes in found) > SPLIT else set()


def _there(connection: Connection, grain: int, bucket: int) -> set[int]:
    k = kernel_sums.c
    mine = (k.grain == grain, k.bucket_unix_ns == bucket, k.process_id.between(1, PARTS))
    return set(connection.scalars(select(k.process_id).where(*mine)))


def _part(connection: Connection, group: Piece) -> None:
    _write(connection, group, *_of_nodes(connection, group, [processes.c.node_id % PARTS == group[2] - 1]))


def _fleet(connection: Connection, group: Piece) -> None:
    """From its parts, where it has any, which are then no longer needed."""
    grain, bucket, _ = group
    if parts := _parts(connection, grain, bucket):
        models = _Models()
        sums = from_groups(connection, {grain: [bucket]}, sorted(parts), (), models, histograms=True)
        _write(connection, group, sums, models)
        k = kernel_sums.c
        mine = (k.grain == grain, k.bucket_unix_ns == bucket, k.process_id.between(1, PARTS))
        connection.execute(delete(kernel_sums).where(*mine))
        return
    _write(connection, group, *_of_nodes(connection, group, ()))


def _of_nodes(connection: Connection, group: Piece, which: Sequence[ColumnElement[bool]]) -> tuple[Sums, _Models]:
    """From sums of nodes, and from pieces of nodes that have none."""
    grain, bucket, _ = group
    r, p, k = rollups.c, processes.c, kernel_sums.c
    there = set(
        connection.scalars(
            select(k.process_id)
            .where(k.grain == grain, k.bucket_unix_ns == bucket, k.process_id.in_(select(p.node_id).where(*which)))
        )
    )  # fmt: skip
    models = _Models()
    parts = [from_groups(connection, {grain: [bucket]}, sorted(there), (), models, histograms=True)]
    rest = [r.grain == grain, r.bucket_unix_ns == bucket, p.node_id.not_in(sorted(there)), *which]
    parts.append(from_pieces(connection, rest, models, histograms=True))
    return Sums.joined(parts).reduced(), models


def _write(connection: Connection, group: Piece, kernels: Sums, models: Devices) -> None:
    grain, bucket, number = group
    k = kernel_sums.c
    mine = (k.grain == grain, k.bucket_unix_ns == bucket, k.process_id == number)
    connection.execute(delete(kernel_sums).where(*mine))
    flat: list[Any] = []
    for place, device in enumerate(models.rows):
        own = kernels.where(kernels.device == place)
        if len(own) and own.histograms is not None:
            flat += [grain, bucket, number, device.id, len(own), pack(own.columns), own.histograms.pack()]
    bulk.insert(connection, kernel_sums, _NAMES, flat)
