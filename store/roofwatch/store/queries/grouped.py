"""``top --by``: sums of kernels, ops, kinds, modules, nodes or devices, of all the time or by stretches of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from roofwatch.model.errors import UsageError
from roofwatch.model.grouping import BY, row, too_many
from roofwatch.model.histogram import Histogram
from roofwatch.store.blocks import Ints
from roofwatch.store.filter import Asked, Filter
from roofwatch.store.queries.coverage import cost, summary
from roofwatch.store.queries.grouped_rows import Group, Known, Laid, laid
from roofwatch.store.queries.grouped_sums import summed
from roofwatch.store.queries.plan import plan, stretches
from roofwatch.store.queries.plan_rows import rows_of
from roofwatch.store.queries.roofs import roofs_of
from roofwatch.store.rollup_schema import SECOND_NS
from roofwatch.store.schema import window_sums


def top_by(connection: Connection, asked: Asked) -> dict[str, Any]:
    """A row a group and device model; with ``every_ns`` one a stretch, and ``groups`` are the rows of all the time.

    Raises:
        UsageError: the options say nothing that could be meant, or the stretches are too many.
    """
    by, seconds = _options(asked.options)
    f = asked.scope
    with stretches(seconds):
        _check_number(connection, f, seconds * SECOND_NS)
        found = {"summary": summary(connection, f), "cost": cost(connection, f), "stretch_s": seconds}
        return {**found, **_grouped(connection, f, by, seconds * SECOND_NS, asked.limit)}


def _options(given: Mapping[str, Any]) -> tuple[str, int]:
    by, every = given.get("by", BY[0]), given.get("every_ns") or 0
    if by not in BY:
        raise UsageError(f"there is no top by {by!r}: give one of {', '.join(BY)}")
    if type(every) is not int or every < 0 or every % SECOND_NS or every >= 1 << 62:
        raise UsageError(f"{every!r} is no stretch of time: give whole seconds, in nanoseconds")
    return by, every // SECOND_NS


def _check_number(connection: Connection, f: Filter, size: int) -> None:
    if not size:
        return
    at = rows_of(plan(connection, f), f, window_sums, timed=True, names=()).c.at_unix_ns
    first, last = connection.execute(select(func.min(at), func.max(at)).where(at > 0)).one()
    if first is not None and (said := too_many(*(int(one) // SECOND_NS for one in (first, last, size)))):
        raise UsageError(said)


def _grouped(connection: Connection, f: Filter, by: str, size: int, limit: int) -> dict[str, Any]:
    known: dict[int, Known] = {}
    found = laid(connection, f, by, size, known)
    ranked = _ranked(found, limit)
    rank = {group: i for i, group in enumerate(ranked)}
    at = _ranks(found, rank)
    shown, at = found.where(at >= 0), at[at >= 0]
    wanted = set(shown.signature.tolist())
    spread, roofs = laid(connection, f, by, size, known, wanted, ranked), roofs_of(connection, wanted)
    of_spread = _ranks(spread, rank)
    places = [group.place(by) for group in ranked]
    sums = summed(shown, at, _merged(spread, of_spread, np.arange(len(ranked))), known, roofs) if ranked else []
    whole = float(found.est.sum())
    rows = [row(place, one, whole) for place, one in zip(places, sums, strict=True)]
    models = sorted({group.model for group in found.groups})
    if not size:
        return {"device_models": models, "rows": rows}
    starts, stretch = np.unique(found.start, return_inverse=True)
    wholes = np.bincount(stretch, found.est, len(starts)).tolist()
    cells, cell = np.unique(_cells(at, shown.start, starts), return_inverse=True)
    merged = _merged(spread, _cells(of_spread, spread.start, starts), cells)
    sums = summed(shown, cell, merged, known, roofs) if len(cells) else []
    told = [divmod(one, len(starts)) for one in cells.tolist()]
    return {
        "device_models": models,
        "groups": rows,
        "rows": [
            row(places[which], one, wholes[i], int(starts[i]) or None)
            for (which, i), one in zip(told, sums, strict=True)
        ],
    }


def _ranked(found: Laid, limit: int) -> list[Group]:
    """The groups by estimated time; of equal ones in the order of what they are."""
    est = np.bincount(found.group, found.est, len(found.groups))
    order = np.argsort(-est, kind="stable").tolist()
    return [found.groups[i] for i in (order[:limit] if limit else order)]


def _ranks(rows: Laid, rank: Mapping[Group, int]) -> Ints:
    """Of each row the rank of its group, -1 where that is not shown."""
    found: Ints = np.array([rank.get(group, -1) for group in rows.groups], np.int64)[rows.group]
    return found


def _cells(rank: Ints, start: Ints, starts: Ints) -> Ints:
    """A number for group and stretch, in the order of ranks and then of time; -1 where the group is not shown."""
    found: Ints = np.where(rank < 0, -1, rank * len(starts) + np.searchsorted(starts, start))
    return found


def _merged(spread: Laid, cell: Ints, cells: Ints) -> list[Histogram]:
    """One histogram a cell; ``cells`` ascend."""
    if spread.sums.histograms is None or not len(cells):
        return [Histogram()] * len(cells)
    at = np.minimum(np.searchsorted(cells, cell), len(cells) - 1)
    return spread.sums.histograms.merged(np.where(cells[at] == cell, at, -1), len(cells)).each()
