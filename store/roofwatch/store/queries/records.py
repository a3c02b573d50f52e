"""``records``: the kernel records of a filter's windows, a page a question.

A page is a question of its own, which begins after the last window of the one before: no transaction stays open while
somebody writes a file, the asker sets the pace, and neither side holds more than a page. ``upto`` is the newest window
when the first page was asked, so that an export ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection, Row, func, or_, select, union_all

from roofwatch.model.answer import estimated
from roofwatch.model.errors import UsageError
from roofwatch.model.record import Signature
from roofwatch.model.records import PAGE_ROWS, PAGE_WINDOWS, SIGNATURE_KEYS
from roofwatch.store import postgres_partitions
from roofwatch.store.blocks import FACT, Ints
from roofwatch.store.days import came, serial
from roofwatch.store.filter import Asked, Filter
from roofwatch.store.gather import each_window
from roofwatch.store.histograms import Histograms
from roofwatch.store.queries.described import described
from roofwatch.store.queries.roofs import roofs_of
from roofwatch.store.queries.scope import IN_LIST, device_matches, windows_of
from roofwatch.store.rollup_sources import weight
from roofwatch.store.schema import (
    BOUNDS,
    EVIDENCES,
    devices,
    kernel_blocks,
    labels,
    nodes,
    processes,
    window_devices,
    windows,
)

Devices = Mapping[tuple[int, int], Row[Any]]  # (window, position) → its device and weight
Item = TypeVar("Item")
_F = {name: i for i, name in enumerate(FACT)}
_PLAIN = ("calls", "total_ns", "min_ns", "max_ns", "step_calls", "step_ns", "bound", "evidence", "formula_bound")


def records(connection: Connection, asked: Asked) -> dict[str, Any]:
    """A page of the windows after ``options.after``: [start, number], up to the number ``options.upto``.

    Raises:
        UsageError: the options are none.
    """
    after, upto = _options(asked.options)
    if upto is None:
        upto = _newest(connection)
    found = _windows(connection, asked.scope, after, upto)
    taken, more = _page(found)
    scope = asked.scope
    if taken:
        scope = replace(scope, since_unix_ns=taken[0].start_unix_ns, until_unix_ns=taken[-1].start_unix_ns + 1)
    kept = [one for one in taken if one.rows is not None]
    return {
        "scope": scope,  # what the page's coverage is of
        "upto": upto,
        "next": [taken[-1].start_unix_ns, taken[-1].came] if more else None,
        "without_kernels": sum(one.rows is None and one.device_records > 0 for one in taken),
        "windows": _told(connection, kept),
        **_rows(connection, kept, _devices(connection, asked.scope, [one.id for one in kept])),
    }


def _newest(connection: Connection) -> int:
    """The window that came last."""
    number = func.max(windows.c.id)
    if connection.dialect.name != "postgresql":
        return connection.execute(select(number)).scalar_one() or 0
    own = (
        select(number).where(windows.c.id.between(low, high)) for low, high in postgres_partitions.bounds(connection)
    )
    return max((serial(found or 0) for found in connection.scalars(union_all(*own))), default=0)


def _options(given: Mapping[str, Any]) -> tuple[tuple[int, int] | None, int | None]:
    after, upto = given.get("after"), given.get("upto")
    numbers = [*(after if isinstance(after, list) and len(after) == 2 else [None, None] if after else []), upto or 0]
    if not all(type(one) is int and abs(one) < 1 << 63 for one in numbers):
        raise UsageError("a page of records begins after [start, number] of a window, up to the number of another")
    return (after[0], after[1]) if after else None, upto


def _windows(connection: Connection, f: Filter, after: tuple[int, int] | None, upto: int) -> Sequence[Row[Any]]:
    """The next windows by start, one more than a page may have; ``rows`` is null where the kernels are gone."""
    w, p = windows.c, processes.c
    columns = (
        w.id, w.uid, w.start_unix_ns, w.duration_ns, w.steps, w.first_step, w.represents_ns, w.trigger, w.collector,
        w.device_records, nodes.c.host, p.id.label("process"), p.node_id, p.pid, p.job, p.rank, p.local_rank,
        p.world_size, p.model, kernel_blocks.c.rows, came(w.id).label("came"),
    )  # fmt: skip
    query = (
        windows_of(f, *columns).outerjoin(kernel_blocks, kernel_blocks.c.window_id == w.id).where(came(w.id) <= upto)
    )
    if after is not None:
        start, number = after
        query = query.where(w.start_unix_ns >= start, or_(w.start_unix_ns > start, came(w.id) > number))
    rows: Sequence[Row[Any]] = connection.execute(
        query.order_by(w.start_unix_ns, came(w.id)).limit(PAGE_WINDOWS + 1)
    ).all()
    return rows


def _page(found: Sequence[Row[Any]]) -> tuple[Sequence[Row[Any]], bool]:
    """As many windows as a page holds, at least one, and whether there are more."""
    counted = np.cumsum([one.rows or 0 for one in found])
    number = max(1, min(PAGE_WINDOWS, int(np.searchsorted(counted, PAGE_ROWS, side="right"))))
    return found[:number], len(found) > number


def _told(connection: Connection, kept: Sequence[Row[Any]]) -> list[list[Any]]:
    """Windows in the order of ``records.WINDOW_KEYS``."""
    marked: dict[int, dict[str, str]] = defaultdict(dict)
    ids = sorted({i for one in kept for i in (one.process, one.node_id)})
    for some in _batched(ids):
        query = select(labels.c.owner_id, labels.c.key, labels.c.value).where(labels.c.owner_id.in_(some))
        for owner, key, value in connection.execute(query.order_by(labels.c.key)):
            marked[owner][key] = value
    return [
        [
            one.uid.hex(), one.start_unix_ns or None, one.duration_ns, one.steps, one.first_step, one.represents_ns,
            one.trigger, one.collector, one.host, f"{one.process:016x}", one.pid, one.job, one.rank, one.local_rank,
            one.world_size, one.model, {**marked[one.node_id], **marked[one.process]},
        ]
        for one in kept
    ]  # fmt: skip


def _devices(connection: Connection, f: Filter, ids: Sequence[int]) -> Devices:
    """Those of the windows that the filter means."""
    d = window_devices.c
    query = (
        select(d.window_id, d.position, weight().label("weight"), devices.c.vendor, devices.c.model,
               devices.c.ordinal, devices.c.uuid, devices.c.peaks_id, devices.c.id)
        .join(windows, windows.c.id == d.window_id)
        .join(devices, devices.c.id == d.device_id)
        .where(*device_matches(f))
    )  # fmt: skip
    return {(one.window_id, one.position): one for some in _batched(ids)
            for one in connection.execute(query.where(d.window_id.in_(some)))}  # fmt: skip


def _rows(connection: Connection, kept: Sequence[Row[Any]], of: Devices) -> dict[str, Any]:
    """Devices and signatures of the page, and its rows."""
    blocks: dict[int, tuple[Ints, Histograms | None]] = {}
    for some in _batched([one.id for one in kept]):
        blocks |= each_window(connection, some, histograms=True)
    wanted = {signature for facts, _ in blocks.values() for signature in facts[_F["signature_id"]].tolist()}
    known: dict[int, Signature] = {}
    roofs: dict[tuple[int, int], tuple[float | None, float | None]] = {}
    for some in _batched(sorted(wanted)):
        known |= described(connection, set(some))
        roofs |= roofs_of(connection, set(some))
    signatures, places = _numbered(wanted), _numbered(one.id for one in of.values())
    told = {one.id: one for one in of.values()}
    rows = []
    for number, one in enumerate(kept):
        facts, histograms = blocks[one.id]
        told_by = [] if histograms is None else histograms.each()
        for fact, histogram in zip(facts.T.tolist(), told_by, strict=True):
            device = of.get((one.id, fact[_F["device"]]))
            if device is None:
                continue
            signature = fact[_F["signature_id"]]
            calls, total, low, high, step_calls, step_ns, bound, evidence, formula = (fact[_F[name]] for name in _PLAIN)
            rows.append([
                number, places[device.id], signatures[signature], calls, total, estimated(total, device.weight), low,
                high, step_calls, step_ns, BOUNDS[bound], EVIDENCES[evidence], None if formula < 0 else BOUNDS[formula],
                *roofs.get((signature, device.peaks_id), (None, None)), histogram.low, list(histogram.counts),
            ])  # fmt: skip
    return {
        "devices": [[told[i].vendor, told[i].model, told[i].ordinal, told[i].uuid] for i in places],
        "signatures": [[getattr(known[i], name) for name in SIGNATURE_KEYS] for i in signatures],
        "rows": rows,
    }


def _batched(found: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """As many as one statement may name."""
    return (found[at : at + IN_LIST] for at in range(0, len(found), IN_LIST))


def _numbered(ids: Iterable[int]) -> dict[int, int]:
    """Each once, in order, with its place."""
    return {identity: i for i, identity in enumerate(sorted(set(ids)))}
