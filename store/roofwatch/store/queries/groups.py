"""Which hours and days of a plan are read as sums of a node, or of the fleet, instead of process by process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from roofwatch.store.filter import Filter
from roofwatch.store.gather import ROWS
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.plan import Plan, Which
from roofwatch.store.queries.scope import IN_LIST
from roofwatch.store.rollup_groups import FLEET
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS
from roofwatch.store.schema import kernel_sums, nodes


@dataclass(frozen=True, slots=True)
class Grouped:
    """``buckets`` by grain are those of which the group has a sum; ``rest`` is the plan for the others."""

    group: int
    buckets: Mapping[int, list[int]]
    rest: Plan
    of: Plan  # kept: it is found again by its identity


def grouped(connection: Connection, f: Filter, chosen: Plan) -> Grouped | None:
    """What a group holds of a plan, for a question that does not tell processes apart; None where nothing."""
    if connection.dialect.name == ROWS or f.process or f.model or f.job or f.labels:
        return None
    return once(connection, f, ("groups", id(chosen)), lambda: _grouped(connection, f, chosen))


def _grouped(connection: Connection, f: Filter, chosen: Plan) -> Grouped | None:
    group = _group(connection, f)
    if group is None:
        return None
    found = {grain: _there(connection, grain, group, list(_buckets(chosen, grain))) for grain in (HOUR_S, DAY_S)}
    if not any(found.values()):
        return None
    return Grouped(group, found, _rest(chosen, found), chosen)


def _group(connection: Connection, f: Filter) -> int | None:
    """A host that was started again is several nodes: then there is none."""
    if f.node is None:
        return FLEET
    found = connection.scalars(select(nodes.c.id).where(nodes.c.host == f.node).limit(2)).all()
    return found[0] if len(found) == 1 else None


def _buckets(chosen: Plan, grain: int) -> Iterator[int]:
    """The hours or days that all processes have."""
    for since, until, which in chosen.spans.get(grain, ()):
        if which is Which.ALL and since is not None and until is not None:
            yield from range(since, until, grain * SECOND_NS)


def _there(connection: Connection, grain: int, group: int, buckets: list[int]) -> list[int]:
    k, found = kernel_sums.c, set[int]()
    for low in range(0, len(buckets), IN_LIST):
        some = k.bucket_unix_ns.in_(buckets[low : low + IN_LIST])
        found.update(connection.scalars(select(k.bucket_unix_ns).where(k.grain == grain, some, k.process_id == group)))
    return sorted(found)


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
