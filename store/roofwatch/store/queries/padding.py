"""``padding``: what padding takes of the processes that told the lengths of their batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, select

from roofwatch.model.answer_rows import StatSum
from roofwatch.model.padding import PaddingSum
from roofwatch.model.padding_report import report
from roofwatch.model.padding_schemes import Seen
from roofwatch.model.padding_split import Batches
from roofwatch.model.padding_time import device_time
from roofwatch.store.days import came
from roofwatch.store.filter import Filter
from roofwatch.store.one_of import rows_of
from roofwatch.store.queries import all_kernels, kernels
from roofwatch.store.queries.scope import among, windows_of
from roofwatch.store.schema import windows

MOST_TEXT = 3_000_000  # characters of lengths that one answer reads, of the latest windows: a third of a second
TEXTS = 400  # windows whose lengths are read at once
MOST_PROCESSES = 64  # whose kernels are asked for one by one, where other processes of the filter told no lengths
DAY_HOURS = 24.0

FloatArray = npt.NDArray[np.float64]
_NO_BRACKETS = str.maketrans("", "", "[] ")


def padding(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """Lengths of all windows that told any; device time of all windows of their processes. ``limit`` means nothing."""
    del limit
    found = _windows(connection, f)
    told = PaddingSum()
    left_out = _add(connection, told, found)
    chosen, left, silent = _processes(connection, f, found)
    time = device_time(_sums(connection, f, chosen, whole=not silent and not left), Batches(told.shapes))
    period, apart = _period_ns(connection, f, chosen) if chosen else (None, 0)
    hours = max(0.0, time.total_ns - apart) / period * DAY_HOURS if period else None
    return {
        **report(Seen(told, time, hours)),
        "processes": len(chosen),
        "processes_left_out": left,
        "processes_without_lengths": silent,
        "windows_left_out": left_out,
        "period_ns": period,
    }


_SUMS = ("batches", "real_tokens", "padded_tokens", "real_squared", "padded_squared")


def _windows(connection: Connection, f: Filter) -> Sequence[Any]:
    """The windows that told batches, the latest first, without the texts that may be long.

    Number, process, time it took and stands for; then sums, rounded and unread.
    """
    w = windows.c
    columns = (
        w.id, w.process_id, w.duration_ns, w.represents_ns, *(w[f"padding_{name}"] for name in _SUMS),
        w.padding_coarsened, w.padding_unread,
    )  # fmt: skip
    query = windows_of(f, *columns).where(w.padding_batches.is_not(None))
    return connection.execute(query.order_by(w.start_unix_ns.desc(), came(w.id).desc())).all()


def _add(connection: Connection, told: PaddingSum, found: Sequence[Any]) -> int:
    """Count the windows; gives how many of them are without their lengths, since these are too many."""
    if not found:
        return 0
    figures = np.array([[value or 0 for value in row[2:]] for row in found], np.float64)
    took, stands_for = figures[:, 0], figures[:, 1]
    known = (took > 0) & (stands_for > 0)
    weights = np.where(known, stands_for / np.where(known, took, 1.0), 1.0)
    for name, column in zip(_SUMS, (figures[:, 2:7] * weights[:, None]).T, strict=True):
        setattr(told, name, float(column.sum()))
    told.windows, told.seen = int(np.count_nonzero(figures[:, 2])), int(figures[:, 2].sum())
    told.coarsened, told.unread = int(figures[:, 7].sum()), int(figures[:, 8].sum())
    return _lengths(connection, told, [row[0] for row in found], weights)


def _lengths(connection: Connection, told: PaddingSum, numbers: Sequence[int], weights: FloatArray) -> int:
    """Add lengths and shapes, of the latest windows first, until they are too many; how many are left out."""
    w, room = windows.c, MOST_TEXT
    query = select(w.id, w.padding_lengths, w.padding_shapes)
    for begin in range(0, len(numbers), TEXTS):
        if room <= 0:
            return len(numbers) - begin
        block = numbers[begin : begin + TEXTS]
        rows = rows_of(connection, query, w.id, block)
        texts = {i: (lengths or "[]", shapes or "[]") for i, lengths, shapes in rows}
        lengths, shapes = zip(*(texts[i] for i in block), strict=True)
        room -= sum(map(len, (*lengths, *shapes)))
        own = np.repeat(weights[begin : begin + len(block)], [text.count("[") - 1 for text in lengths])
        pairs = _numbers(lengths, 2)
        told.sequences_seen += int(pairs[:, 1].sum())
        values, at = np.unique(pairs[:, 0], return_inverse=True)
        for length, count in zip(values.tolist(), np.bincount(at, pairs[:, 1] * own).tolist(), strict=True):
            told.lengths[int(length)] += count
        for rows, longest, batches in _numbers(shapes, 3).tolist():
            told.shapes[int(rows), int(longest)] += int(batches)
    return 0


def _numbers(texts: Sequence[str], columns: int) -> FloatArray:
    """The rows of JSON lists of lists of numbers, one below the other; a JSON reader takes five times as long."""
    flat = ",".join(text for text in texts if len(text) > len("[]")).translate(_NO_BRACKETS)
    return np.fromstring(flat, np.float64, sep=",").reshape(-1, columns)


def _processes(connection: Connection, f: Filter, found: Sequence[Any]) -> tuple[list[int], int, int]:
    """The processes that are looked at; how many more told lengths; how many of the filter told none."""
    told = list(dict.fromkeys(row.process_id for row in found))
    asked = connection.execute(windows_of(f, func.count(windows.c.process_id.distinct()))).scalar_one()
    silent = int(asked) - len(told)
    kept = told if not silent else told[:MOST_PROCESSES]
    return kept, len(told) - len(kept), silent


def _sums(connection: Connection, f: Filter, chosen: Sequence[int], *, whole: bool) -> list[StatSum]:
    """The kernels of the chosen processes; ``whole``: these are all that the filter means."""
    if whole:
        return all_kernels.all_sums(connection, f)
    parts: dict[kernels.Key, list[kernels.SignaturePart]] = {}
    for identity in chosen:
        for key, group in kernels.parts_of(connection, replace(f, process=f"{identity:016x}")).items():
            parts.setdefault(key, []).extend(group)
    sums = kernels.sums_of(connection, f, parts, list(parts), histograms=False)
    return [one for group in sums.values() for one in group]


def _period_ns(connection: Connection, f: Filter, chosen: Collection[int]) -> tuple[int | None, int]:
    """How long it is that any window stands for, None unknown; and the device time of windows that stand for nothing.

    A job's first window has no interval: neither its time nor the stretch before it counts, so that short jobs one
    after the other do not look idle. What lies between jobs is no part of it either.
    """
    w = windows.c
    query = among(windows_of(f, w.start_unix_ns, w.represents_ns, w.device_time_ns), w.process_id, chosen)
    found = connection.execute(query).all()
    apart = sum(device_ns or 0 for _, stands_for, device_ns in found if not stands_for)
    covered, end = 0, None
    for begin, until in sorted((start - ns, start) for start, ns, _ in found if ns):
        covered += until - begin if end is None or begin > end else max(0, until - end)
        end = until if end is None else max(end, until)
    return covered or None, apart
