"""Kernels of many windows or pieces as sums: the engine groups them, and gives whole columns back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Select,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause

from roofwatch.store.blocks import FACT, SUM, Ints
from roofwatch.store.clickhouse.chosen import pieces_of, tables_of
from roofwatch.store.clickhouse.devices import described, seen
from roofwatch.store.clickhouse.reading import once, rows
from roofwatch.store.clickhouse.spreads import SPREAD, dense, spread
from roofwatch.store.clickhouse.tables import kernel_facts, kernel_sums
from roofwatch.store.gather import Devices, Models, OfDevice
from roofwatch.store.histograms import Histograms
from roofwatch.store.rollup_sources import Conditions, WholeNs
from roofwatch.store.schema import devices, nodes, processes, windows
from roofwatch.store.sums import MOST, Sums

_F = kernel_facts.c
_S = kernel_sums.c
_ALIKE = {"id": _F.window_id, "process_id": _F.process_id, "start_unix_ns": _F.start_unix_ns}  # of windows and facts
FEW = 16  # pieces of so little that a statement costs more than what it gives
KINDS_MOST = 2000  # devices named in a statement
_PLACE = ("device_id", "process_id", "at_unix_ns")  # of a row: whose it is, and of when


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
    of = [one for one in where if tables_of(one) != {devices.name}]
    mine = [one for one in where if tables_of(one) == {devices.name}]
    place = _place(known, _S.bucket_unix_ns, _S)
    count, chosen = pieces_of(connection, of)
    if not count:
        return Sums.joined(())
    few = count <= FEW  # then a second statement costs more than to ask for all of it at once
    query = _grouped(summed_sums(), place, _S, kernel_sums, histograms=histograms or few)
    query = query.where(*chosen, *_of_devices(mine, _S.device_id))
    if not few:
        query = query.where(*_only(wanted, _S.signature_id))
        return _read(connection, query, known, histograms=histograms)
    found = once(connection, query, (*_PLACE, *SUM, *SPREAD))
    return sums_from(connection, found, known, wanted, histograms=histograms)


def _place(known: Devices, at: ColumnElement[Any], c: Any) -> dict[str, ColumnElement[Any]]:
    """What of a row's place ``known`` tells apart: a device or its kind, a process, a stretch of time."""
    size, alike = getattr(known, "size_ns", 0), type(known) is Models
    device = _kind(c.device_id) if alike else c.device_id
    process = c.process_id if known.by_process or not (alike or type(known) is Devices) else literal(0)
    stretch = (at // size) * size if size else literal(0)
    return dict(zip(_PLACE, (device, process, stretch), strict=True))


def _kind(device: ColumnElement[Any]) -> ColumnElement[Any]:
    """The first known device of the same model, vendor and peaks: fewer groups. One that is not known is its own."""
    alike = alike_devices()
    return func.transform(device, *map(literal_column, alike), device) if alike else device


def alike_devices() -> tuple[str, str] | None:
    """Known devices of which there is another one of that kind before, and those; as the engine's arrays."""
    first: dict[tuple[str, str, int], int] = {}
    told = [(identity, first.setdefault(of, identity)) for identity, of in list(seen.items())[:KINDS_MOST]]
    others = [pair for pair in told if pair[0] != pair[1]]
    ids, firsts = (f"[{','.join(map(str, column))}]" for column in zip(*others, strict=True)) if others else ("", "")
    return (ids, firsts) if others else None


def _grouped(
    sums: dict[str, ColumnElement[Any]], place: dict[str, ColumnElement[Any]], c: Any, table: Any, *, histograms: bool
) -> Select[Any]:
    columns = [column.label(f"_{name}") for name, column in {**place, **sums}.items()]
    keys = [*place.values(), *(sums[name] for name in SUM[:4])]
    query = select(*columns, *(spread(c) if histograms else [])).select_from(table)
    return query.group_by(*(key for key in keys if isinstance(key, ColumnClause) or not _constant(key)))


def _constant(column: Any) -> bool:
    return not any(isinstance(one, ColumnClause) for one in visitors.iterate(column))


def _of_facts(where: Conditions) -> list[ColumnElement[bool]]:
    """Conditions of windows, processes and nodes as conditions of rows of facts."""
    own, plain, others, hard = [], [], [], []
    for one in where:
        of = tables_of(one)
        if of <= {windows.name} and _columns(one) <= _ALIKE.keys():
            plain.append(one)
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
    else:  # kernels come before their windows: of a batch that is under way, or that another store broke, none counts
        found.append(_F.window_id.in_(select(windows.c.id).where(*plain)))
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
    found = rows(connection, query, (*_PLACE, *SUM, *(SPREAD if histograms else ())))
    return sums_from(connection, found, known, None, histograms=histograms)


def sums_from(
    connection: Connection, found: dict[str, Any], known: Devices, wanted: Collection[int] | None, *, histograms: bool
) -> Sums:
    """Columns that were read, with ``known`` devices; of ``wanted`` signatures."""
    if not len(found[SUM[0]]):
        return Sums.joined(())
    own = [found[name].astype(np.int64, copy=False) for name in _PLACE]
    order = np.lexsort(own[::-1])
    new = np.any([np.diff(column[order], prepend=-1) != 0 for column in own], axis=0)
    at = np.empty(len(order), np.int64)
    at[order] = np.cumsum(new) - 1
    kinds = described(connection, np.unique(own[0]).tolist())
    numbers = [
        known.number(OfDevice(device, *kinds[device], process, start))
        for device, process, start in zip(*(column[order[new]].tolist() for column in own), strict=True)
    ]
    columns = np.stack([found[name].astype(np.int64, copy=False) for name in SUM])
    told = dense(*(found[name] for name in SPREAD)) if histograms else None
    sums = Sums(columns, np.array(numbers, np.int64)[at], told)
    if wanted is not None:
        sums = sums.where(np.isin(columns[0], np.fromiter(wanted, np.int64, len(wanted))))
    return sums.reduced()


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
    told = dense(*(found[name] for name in SPREAD)) if histograms else None
    begins = np.flatnonzero(np.diff(number, prepend=-1))
    result: dict[int, tuple[Ints, Histograms | None]] = {}
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(number)], strict=True):
        own = np.zeros(len(number), np.bool_)
        own[begin:end] = True
        result[int(number[begin])] = (facts[:, begin:end], None if told is None else told.where(own))
    return result
