"""Which hours and days of a plan are read as sums of a node, or of the fleet, instead of process by process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, case, not_, or_, select

from roofwatch.store.filter import Filter
from roofwatch.store.gather import DEVICE_COLUMNS, ROWS
from roofwatch.store.one_of import one_of
from roofwatch.store.postgres_sums import same_pieces
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.scope import device_matches
from roofwatch.store.queries.spans import Plan, Which
from roofwatch.store.rollup_groups import FLEET
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS
from roofwatch.store.rollup_sources import Conditions
from roofwatch.store.schema import devices, kernel_sums, nodes, processes, rollups

_GIVEN = {HOUR_S: "hours", DAY_S: "days"}
_NODES = select(nodes.c.id).where(nodes.c.host == bindparam("host")).limit(2)


AT_ONCE = 64  # hours and days whose blocks are read in one statement, and kept for what the answer asks next


@dataclass(frozen=True, slots=True)
class Grouped:
    """``buckets`` by grain are those of which the group has a sum; ``rest`` is the plan for the others."""

    group: int
    buckets: Mapping[int, list[int]]
    rest: Plan
    of: Plan  # kept: it is found again by its identity
    rows: Sequence[Any] | None = None  # what ``gather.from_rows`` takes, where the buckets are few


def grouped(connection: Connection, f: Filter, chosen: Plan, *, spread: bool = False) -> Grouped | None:
    """What a group holds of a plan, for a question that does not tell processes apart; None where nothing.

    ``spread``: histograms are asked for, now or later.
    """
    if connection.dialect.name == ROWS or f.process or f.model or f.job or f.labels:
        return None
    return once(connection, f, ("groups", id(chosen), spread), lambda: _grouped(connection, f, chosen, spread=spread))


def _grouped(connection: Connection, f: Filter, chosen: Plan, *, spread: bool) -> Grouped | None:
    asked = {grain: of for grain in (HOUR_S, DAY_S) if (of := list(_buckets(chosen, grain)))}
    group = _group(connection, f, chosen) if asked else None
    if group is None:
        return None
    rows = None
    if sum(map(len, asked.values())) <= AT_ONCE:
        shape = _Shape(tuple(asked), f.device, f.vendor, spread)
        given = {_GIVEN[grain]: of for grain, of in asked.items()}
        read = connection.execute(_statement(shape), {"group": group, **given}).all()
        found = {grain: sorted({row.bucket_unix_ns for row in read if row.grain == grain}) for grain in (HOUR_S, DAY_S)}
        rows = [row[1:] for row in read if row.sums is not None]
    else:
        found = {grain: _there(connection, grain, group, asked.get(grain, [])) for grain in (HOUR_S, DAY_S)}
    return Grouped(group, found, _rest(chosen, found), chosen, rows) if any(found.values()) else None


@dataclass(frozen=True, slots=True)
class _Shape:
    """What makes a statement another one."""

    grains: tuple[int, ...]
    device: str | None
    vendor: str | None
    spread: bool


@lru_cache(maxsize=256)
def _statement(shape: _Shape) -> Select[Any]:
    """Of all device models, since a sum of others is one, too; without blocks of those that are not asked for."""
    k = kernel_sums.c
    wanted = device_matches(Filter(device=shape.device, vendor=shape.vendor))
    blocks = [k.sums, *([k.histograms] if shape.spread else [])]
    told = [case((and_(*wanted), block)).label(block.name) for block in blocks] if wanted else blocks
    times = or_(*(and_(k.grain == grain, one_of(k.bucket_unix_ns, _GIVEN[grain])) for grain in shape.grains))
    return (
        select(k.grain, *DEVICE_COLUMNS, k.process_id, k.bucket_unix_ns, k.rows, *told)
        .join(devices, devices.c.id == k.device_id)
        .where(times, k.process_id == bindparam("group"))
    )


@dataclass(frozen=True, slots=True)
class OfNodes:
    """Nodes that have sums in some of the hours and days."""

    groups: list[int]
    buckets: Mapping[int, list[int]]

    def apart(self) -> ColumnElement[bool]:
        """Pieces that no such sum holds; of rollups joined with processes."""
        r, own = rollups.c, kernel_sums.alias("own")
        there = [and_(r.grain == grain, r.bucket_unix_ns.in_(of)) for grain, of in self.buckets.items()]
        held = select(own.c.grain).where(
            own.c.grain == r.grain, own.c.bucket_unix_ns == r.bucket_unix_ns, own.c.process_id == processes.c.node_id,
            *same_pieces([or_(*there)], own.c),
        )  # fmt: skip
        return not_(and_(or_(*there), held.exists()))


def of_nodes(connection: Connection, f: Filter, chosen: Plan, only: Conditions) -> OfNodes | None:
    """Sums of nodes that hold a part of a plan; None where none does, or processes are chosen. ``only`` these nodes."""
    if f.process or f.model or f.job or f.labels:
        return None
    k, groups = kernel_sums.c, set[int]()
    buckets = {grain: of for grain in (HOUR_S, DAY_S) if (of := list(_buckets(chosen, grain)))}
    wanted = [*only, *([nodes.c.host == f.node] if f.node is not None else [])]
    for grain, of in buckets.items():
        query = select(k.process_id).join(nodes, nodes.c.id == k.process_id).distinct()
        query = query.where(k.grain == grain, one_of(k.bucket_unix_ns, "some"), *wanted)
        groups.update(connection.scalars(query, {"some": of}))
    return OfNodes(sorted(groups), buckets) if groups else None


def _group(connection: Connection, f: Filter, chosen: Plan) -> int | None:
    """A host that was started again is several nodes: then there is none."""
    if f.node is None:
        return FLEET
    if chosen.processes is not None:
        return next(iter(chosen.nodes)) if len(chosen.nodes) == 1 else None
    found = connection.scalars(_NODES, {"host": f.node}).all()
    return found[0] if len(found) == 1 else None


def _buckets(chosen: Plan, grain: int) -> Iterator[int]:
    """The hours or days that all processes have."""
    for since, until, which in chosen.spans.get(grain, ()):
        if which is Which.ALL and since is not None and until is not None:
            yield from range(since, until, grain * SECOND_NS)


def _there(connection: Connection, grain: int, group: int, buckets: list[int]) -> list[int]:
    k = kernel_sums.c
    query = select(k.bucket_unix_ns).where(k.grain == grain, one_of(k.bucket_unix_ns, "some"), k.process_id == group)
    return sorted(set(connection.scalars(query, {"some": buckets}))) if buckets else []


def _rest(chosen: Plan, found: Mapping[int, list[int]]) -> Plan:
    left = Plan(left_out=chosen.left_out)
    spans = defaultdict(list, {grain: list(of) for grain, of in chosen.spans.items() if grain not in found})
    left.spans = spans
    for grain, taken in found.items():
        there = set(taken)
        for since, until, which in chosen.spans.get(grain, ()):
            if which is not Which.ALL or since is None or until is None:
                left.add(grain, since, until, which)
                continue
            for bucket in range(since, until, grain * SECOND_NS):
                if bucket not in there:
                    left.add(grain, bucket, bucket + grain * SECOND_NS)
    return left
