"""The kernels that a filter means, wherever they are kept: in windows, or sums of processes, nodes or the fleet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypedDict

import numpy as np
from sqlalchemy import Connection, func, select

from roofwatch.store.filter import Filter
from roofwatch.store.gather import (
    CHUNK,
    ROWS,
    Devices,
    Models,
    OfDevice,
    from_groups,
    from_pieces,
    from_rows,
    from_windows,
)
from roofwatch.store.queries.groups import grouped, of_nodes
from roofwatch.store.queries.plan import plan, windows_only
from roofwatch.store.queries.scope import device_matches, device_sets_of, owners
from roofwatch.store.queries.spans import Plan
from roofwatch.store.queries.states import chosen_states
from roofwatch.store.rollup_sources import Conditions
from roofwatch.store.schema import nodes, processes, rollups, windows
from roofwatch.store.sums import Sums


class _Asked(TypedDict):
    histograms: bool
    wanted: Collection[int] | None


def gathered(
    connection: Connection,
    f: Filter,
    *,
    histograms: bool = False,
    wanted: Collection[int] | None = None,
    where: Conditions = (),
    known: Devices | None = None,
    spread: bool = False,
    only: Conditions = (),
) -> tuple[Sums, list[OfDevice]]:
    """The kernels of a filter, one row a device model, signature, bound and evidence; of ``wanted`` signatures only.

    ``where`` limits the windows further (columns of ``windows``): then they are read one by one; ``only`` the devices
    and nodes. ``known`` says what is one device, else its model, vendor and peaks do. Unless that is by process, hours
    and days may come from sums of a node or of the fleet, whose devices stand for all of their model, vendor and
    peaks. ``spread``: histograms will be asked for, too.
    """
    asked: _Asked = {"histograms": histograms, "wanted": wanted}
    chosen, known = windows_only(f) if where else plan(connection, f), known or Models()
    parts = []
    if chosen.has_windows:
        own = [chosen.windows, *owners(f), *device_sets_of(f, windows.c.devices_id), *where]
        parts.append(from_windows(connection, own, [*device_matches(f), *only], known, **asked))
    if chosen.has_pieces and known.by_process:
        parts.append(_of_owners(connection, f, chosen, known, only, asked))
    elif chosen.has_pieces:
        parts += _of_models(connection, f, chosen, known, asked, spread=spread or histograms)
    return Sums.joined(parts), known.rows


def _of_models(
    connection: Connection, f: Filter, chosen: Plan, known: Devices, asked: _Asked, *, spread: bool
) -> Iterator[Sums]:
    """Of hours and days, where processes need not be told apart."""
    if (of_pieces := chosen_states(connection, chosen, f)) is not None:
        from roofwatch.store.clickhouse import named, plain  # noqa: PLC0415  # an extra

        matches = plain.Matches(f.device, f.vendor)
        sums = named.from_states(connection, of_pieces, matches, known, **asked, spread=spread)
        if sums is not None:
            yield sums
            return
    of = grouped(connection, f, chosen, spread=spread)
    if of is not None and of.rows is not None:
        yield from_rows(of.rows, known, **asked)
    elif of is not None:
        yield from_groups(connection, of.buckets, [of.group], device_matches(f), known, **asked)
    rest = chosen if of is None else of.rest
    if rest.has_pieces:
        yield from_pieces(connection, [rest.pieces, *owners(f), *device_matches(f)], known, **asked)


def _of_owners(
    connection: Connection, f: Filter, chosen: Plan, known: Devices, only: Conditions, asked: _Asked
) -> Sums:
    """Of hours and days, where processes are told apart, or nodes: a few of them at a time, so that their hours are
    added up before there are too many.
    """  # noqa: D205 - one thought
    mine, told = [chosen.pieces, *owners(f)], [*device_matches(f), *only]
    if connection.dialect.name == ROWS:
        return from_pieces(connection, [*mine, *told], known, **asked)
    parts: list[Sums] = []
    of = of_nodes(connection, f, chosen, only) if known.by_node else None
    if of is not None:
        hours = max(map(len, of.buckets.values()))
        parts = [
            from_groups(connection, of.buckets, some, device_matches(f), known, **asked)
            for some in _some([(node, hours) for node in of.groups])
        ]
        mine.append(of.apart())
    for some in _some(_pieces(connection, mine)):
        where = [*mine, rollups.c.process_id.in_(some), *told]
        parts.append(from_pieces(connection, where, known, **asked))
    found = Sums.joined(parts)
    return found if _are_apart(parts, len(known.rows)) else found.reduced()


def _are_apart(parts: Sequence[Sums], devices: int) -> bool:
    """Whether no device is in several parts."""
    seen = sum((np.bincount(part.device, minlength=devices) > 0 for part in parts), np.zeros(devices, np.int64))
    return int(seen.max(initial=0)) <= 1


def _pieces(connection: Connection, where: Conditions) -> list[tuple[int, int]]:
    """Processes, and how many hours and days of each are read."""
    query = (
        select(rollups.c.process_id, func.count())
        .join(processes, processes.c.id == rollups.c.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .where(*where)
        .group_by(rollups.c.process_id)
    )
    return [(process, count) for process, count in connection.execute(query).all()]


def _some(owners_: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Those whose blocks together are as many as are read at once; at least one."""
    some: list[int] = []
    blocks = 0
    for owner, count in owners_:
        if some and blocks + count > CHUNK:
            yield some
            some, blocks = [], 0
        some.append(owner)
        blocks += count
    if some:
        yield some
