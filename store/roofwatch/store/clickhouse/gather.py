"""Kernels of many windows or pieces as sums: the engine groups them, and gives whole columns back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from clickhouse_connect.driver.binding import finalize_query
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Select,
    case,
    cast,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause
from sqlalchemy.sql.selectable import SelectBase

from roofwatch.store.blocks import FACT, SUM, Ints
from roofwatch.store.clickhouse.engine import client, raising
from roofwatch.store.clickhouse.native import Arrays, decode
from roofwatch.store.clickhouse.tables import kernel_facts, kernel_sums
from roofwatch.store.gather import Devices, OfDevice
from roofwatch.store.histograms import Histograms
from roofwatch.store.rollup_sources import Conditions, WholeNs
from roofwatch.store.schema import devices, nodes, processes, rollups, windows
from roofwatch.store.sums import MOST, Sums

_F = kernel_facts.c
_S = kernel_sums.c
_ALIKE = {"id": _F.window_id, "process_id": _F.process_id, "start_unix_ns": _F.start_unix_ns}  # of windows and facts
_PLACE = ("device_id", "process_id", "at_unix_ns")  # of a row: whose it is, and of when
_NUMBERS = {"aggregate_functions_null_for_empty": 0}  # groups have rows, so nothing is NULL
SPREAD = ("histogram_buckets", "histogram_counts")


def est_ns() -> ColumnElement[Any]:
    """Of a kernel's row what it stands for, as ``sums.estimated`` has it."""
    return func.least(WholeNs(_F.total_ns * _F.weight), int(MOST))


def summed_facts() -> dict[str, ColumnElement[Any]]:
    """The columns of ``blocks.SUM`` over rows of windows."""
    added = {
        "total_ns": _F.total_ns,
        "est_ns": est_ns(),
        "step_ns": _F.step_ns,
        "calls": _F.calls,
        "step_calls": _F.step_calls,
        "stepping_calls": case((_F.steps > 0, _F.step_calls), else_=0),
        "steps": _F.first * _F.steps,
    }
    return _summed(_F, added)


def summed_sums() -> dict[str, ColumnElement[Any]]:
    """The same over rows of pieces."""
    names = ("total_ns", "est_ns", "step_ns", "calls", "step_calls", "stepping_calls", "steps")
    return _summed(_S, {name: _S[name] for name in names})


def _summed(c: Any, added: dict[str, Any]) -> dict[str, ColumnElement[Any]]:
    keys = {name: c[name] for name in ("signature_id", "evidence", "bound", "formula_bound")}
    sums: dict[str, ColumnElement[Any]] = {name: func.sum(column) for name, column in added.items()}
    sums["est_ns"] = func.toInt64(func.least(func.sum(cast(added["est_ns"], Double)), float(1 << 62)))
    return {**keys, **sums, "min_ns": func.min(c.min_ns), "max_ns": func.max(c.max_ns)}


def spread(c: Any) -> list[ColumnElement[Any]]:
    """Buckets and counts, added up by bucket."""
    merged = func.sumMap(c.histogram_buckets, c.histogram_counts)
    return [func.tupleElement(merged, i).label(name) for i, name in enumerate(SPREAD, 1)]


def rows(connection: Connection, query: Select[Any], names: Sequence[str]) -> dict[str, Any]:
    """The columns of a query.

    Raises:
        DBAPIError: as SQLAlchemy raises it.
    """
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    sql = finalize_query(str(compiled), dict(compiled.params))
    with raising(connection, sql):
        data = client(connection).raw_query(sql, fmt="Native", settings=_NUMBERS)
    return decode(data, names)


def from_windows(
    connection: Connection,
    where: Conditions,
    device_where: Conditions,
    known: Devices,
    *,
    histograms: bool = False,
    wanted: Collection[int] | None = None,
) -> Sums:
    """As ``gather.from_windows``."""
    place = _place(known, _F.start_unix_ns, _F)
    query = _grouped(summed_facts(), place, _F, kernel_facts, histograms=histograms)
    query = query.where(*_of_facts(where), *_of_devices(device_where, _F.device_id), *_only(wanted, _F.signature_id))
    return _read(connection, query, known, histograms=histograms)


def from_pieces(
    connection: Connection,
    where: Conditions,
    known: Devices,
    *,
    histograms: bool = False,
    wanted: Collection[int] | None = None,
) -> Sums:
    """As ``gather.from_pieces``. Rows of a piece's other builds are being made, or wait to be merged away."""
    r = rollups.c
    of = [one for one in where if _tables(one) != {devices.name}]
    mine = [one for one in where if _tables(one) == {devices.name}]
    build: ColumnElement[Any] = ColumnClause("build", BigInteger())
    pieces = (
        select(r.grain, r.process_id, r.bucket_unix_ns, build)
        .select_from(rollups)
        .join(processes, processes.c.id == r.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .where(*of)
    )
    place = _place(known, _S.bucket_unix_ns, _S)
    query = _grouped(summed_sums(), place, _S, kernel_sums, histograms=histograms)
    key = tuple_(_S.grain, _S.process_id, _S.bucket_unix_ns, _S.build)
    query = query.where(key.in_(pieces), *_of_devices(mine, _S.device_id), *_only(wanted, _S.signature_id))
    return _read(connection, query, known, histograms=histograms)


def _place(known: Devices, at: ColumnElement[Any], c: Any) -> dict[str, ColumnElement[Any]]:
    """What of a row's place ``known`` tells apart: a process, a stretch of time."""
    size, plain = getattr(known, "size_ns", 0), type(known) is Devices
    process = c.process_id if known.by_process or not plain else literal(0)
    stretch = (at // size) * size if size else literal(0)
    return dict(zip(_PLACE, (c.device_id, process, stretch), strict=True))


def _grouped(
    sums: dict[str, ColumnElement[Any]], place: dict[str, ColumnElement[Any]], c: Any, table: Any, *, histograms: bool
) -> Select[Any]:
    given = {**{name: func.toInt64(column) for name, column in {**place, **sums}.items()}}
    keys = [*place.values(), *(sums[name] for name in SUM[:4])]
    columns = [given[name].label(f"_{name}") for name in (*_PLACE, *SUM)]
    query = select(*columns, *(spread(c) if histograms else [])).select_from(table)
    return query.group_by(*(key for key in keys if isinstance(key, ColumnClause) or not _constant(key)))


def _constant(column: Any) -> bool:
    return not any(isinstance(one, ColumnClause) for one in visitors.iterate(column))


def _tables(condition: ColumnElement[Any]) -> set[str]:
    """Of which tables a condition speaks; "" where it looks something up."""
    found = set()
    for one in visitors.iterate(condition):
        if isinstance(one, SelectBase):
            return {""}
        if isinstance(one, ColumnClause) and one.table is not None:
            found.add(str(one.table.name))  # type: ignore[attr-defined]
    return found


def _of_facts(where: Conditions) -> list[ColumnElement[bool]]:
    """Conditions of windows, processes and nodes as conditions of rows of facts."""
    own, others, hard = [], [], []
    for one in where:
        of = _tables(one)
        if of <= {windows.name} and _columns(one) <= _ALIKE.keys():
            own.append(visitors.replacement_traverse(one, {}, _alike))
        elif of <= {processes.name, nodes.name}:
            others.append(one)
        else:
            hard.append(one)
    found: list[ColumnElement[bool]] = list(own)
    owner = processes.c.node_id == nodes.c.id
    if others:
        found.append(_F.process_id.in_(select(processes.c.id).join(nodes, owner).where(*others)))
    if hard:
        numbers = select(windows.c.id).join(processes, processes.c.id == windows.c.process_id).join(nodes, owner)
        found.append(_F.window_id.in_(numbers.where(*where)))
    return found


def _columns(condition: ColumnElement[Any]) -> set[str]:
    return {one.name for one in visitors.iterate(condition) if isinstance(one, ColumnClause)}


def _alike(element: Any, **_: Any) -> Any:
    return _ALIKE[element.name] if isinstance(element, ColumnClause) and element.table is windows else None


def _of_devices(where: Conditions, column: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    return [column.in_(select(devices.c.id).where(*where))] if where else []


def _only(wanted: Collection[int] | None, column: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    return [] if wanted is None else [column.in_(sorted(wanted))]


def _read(connection: Connection, query: Select[Any], known: Devices, *, histograms: bool) -> Sums:
    # Only ``rollups`` and dimensions have rows that are replaced; kernels need not be asked for their newest.
    names = (*_PLACE, *SUM, *(SPREAD if histograms else ()))
    found = rows(connection, query, names)
    if not len(found[SUM[0]]):
        return Sums.joined(())
    places, at = np.unique(np.stack([found[name] for name in _PLACE]), axis=1, return_inverse=True)
    described = _described(connection, np.unique(places[0]).tolist())
    numbers = [
        known.number(OfDevice(device, *described[device], process, start))
        for device, process, start in places.T.tolist()
    ]
    columns = np.stack([found[name] for name in SUM])
    told = _histograms(found) if histograms else None
    return Sums(columns, np.array(numbers, np.int64)[at.reshape(-1)], told).reduced()


_devices_seen: dict[int, tuple[str, str, int]] = {}  # what a content hash names never changes
_SEEN_MOST = 200_000


def _described(connection: Connection, ids: list[int]) -> dict[int, tuple[str, str, int]]:
    """Vendor, model and set of peaks of devices."""
    lacking = [one for one in ids if one not in _devices_seen]
    if lacking:
        if len(_devices_seen) > _SEEN_MOST:
            _devices_seen.clear()
        d = devices.c
        for low in range(0, len(lacking), 1000):
            query = select(d.id, d.vendor, d.model, d.peaks_id).where(d.id.in_(lacking[low : low + 1000]))
            for identity, *told in connection.execute(query):
                _devices_seen[identity] = (told[0], told[1], told[2])
    return {one: _devices_seen[one] for one in ids}


def _histograms(found: dict[str, Any]) -> Histograms:
    """Sparse counts as dense ones."""
    return dense(found[SPREAD[0]], found[SPREAD[1]])


def dense(buckets: Arrays, counts: Arrays) -> Histograms:
    """Histograms of rows that name their buckets, ascending, each with its count."""
    sizes = np.diff(buckets.ends, prepend=0)
    filled = sizes > 0
    at = buckets.values.astype(np.int64)
    lows, lengths = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    first, last = (buckets.ends - sizes)[filled], buckets.ends[filled] - 1
    lows[filled] = at[first]
    lengths[filled] = at[last] - at[first] + 1
    row = np.repeat(np.arange(len(sizes)), sizes)
    values = np.zeros(int(lengths.sum()), np.int64)
    values[(np.cumsum(lengths) - lengths)[row] + at - lows[row]] = counts.values.astype(np.int64)
    return Histograms(lows, lengths, values)


def sparse(told: Histograms) -> tuple[Arrays, Arrays]:
    """The other way round."""
    at, all_ends = np.flatnonzero(told.counts), np.cumsum(told.lengths)
    ends = np.searchsorted(at, all_ends)
    # Buckets are below 2¹⁶ and so is what is added up for them, whatever overflows on the way.
    first = (told.lows - (all_ends - told.lengths)).astype(np.uint16)
    buckets = at.astype(np.uint16) + np.repeat(first, np.diff(ends, prepend=0))
    return Arrays(ends, buckets), Arrays(ends, told.counts[at])


def each_window(
    connection: Connection, ids: Sequence[int], *, histograms: bool = False
) -> dict[int, tuple[Ints, Histograms | None]]:
    """As ``gather.each_window``."""
    if not ids:
        return {}
    spans = select(windows.c.process_id, windows.c.start_unix_ns).where(windows.c.id.in_(ids))
    names = ("window_id", *FACT)
    columns = [func.toInt64(_F[name]).label(f"_{name}") for name in names]
    columns += [_F[name].label(name) for name in SPREAD] if histograms else []
    query = (
        select(*columns)
        .where(tuple_(_F.process_id, _F.start_unix_ns).in_(spans), _F.window_id.in_(ids))
        .order_by(_F.window_id, _F.place)
    )
    found = rows(connection, query, (*names, *(SPREAD if histograms else ())))
    number = found["window_id"]
    if not len(number):
        return {}
    facts = np.stack([found[name] for name in FACT])
    told = _histograms(found) if histograms else None
    begins = np.flatnonzero(np.diff(number, prepend=-1))
    result: dict[int, tuple[Ints, Histograms | None]] = {}
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(number)], strict=True):
        own = np.zeros(len(number), np.bool_)
        own[begin:end] = True
        result[int(number[begin])] = (facts[:, begin:end], None if told is None else told.where(own))
    return result
