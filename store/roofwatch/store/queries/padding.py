"""``padding``: what padding takes of the processes that told the lengths of their batches."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, select

from roofwatch.model.padding import PaddingSum
from roofwatch.model.padding_report import report
from roofwatch.model.padding_schemes import Seen
from roofwatch.model.padding_split import Batches
from roofwatch.model.padding_time import device_time
from roofwatch.model.record import Padding
from roofwatch.store.filter import Filter
from roofwatch.store.queries import kernels
from roofwatch.store.queries.scope import IN_LIST, among, windows_of
from roofwatch.store.schema import windows

MOST_TEXT = 3_000_000  # characters of lengths that one answer reads, of the latest windows: a third of a second
MOST_PROCESSES = 64  # whose kernels are asked for one by one, where other processes of the filter told no lengths
DAY_HOURS = 24.0


def padding(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """Lengths of all windows that told any; device time of all windows of their processes. ``limit`` means nothing."""
    del limit
    found = _windows(connection, f)
    told = PaddingSum()
    left_out = _add(connection, told, found)
    chosen, left, silent = _processes(connection, f, found)
    parts = _parts(connection, f, chosen, whole=not silent and not left)
    sums = kernels.sums_of(connection, f, parts, list(parts), histograms=False)
    time = device_time((one for group in sums.values() for one in group), Batches(told.shapes))
    period = _period_ns(connection, f, chosen) if chosen else None
    hours = time.total_ns / period * DAY_HOURS if period else None
    return {
        **report(Seen(told, time, hours)),
        "processes": len(chosen),
        "processes_left_out": left,
        "processes_without_lengths": silent,
        "windows_left_out": left_out,
        "period_ns": period,
    }


def _windows(connection: Connection, f: Filter) -> Sequence[Any]:
    """The windows that told batches, the latest first, without the texts that may be long."""
    w = windows.c
    columns = (
        w.id, w.process_id, w.duration_ns, w.represents_ns, w.padding_batches, w.padding_real_tokens,
        w.padding_padded_tokens, w.padding_real_squared, w.padding_padded_squared, w.padding_coarsened,
        w.padding_unread,
    )  # fmt: skip
    query = windows_of(f, *columns).where(w.padding_batches.is_not(None))
    return connection.execute(query.order_by(w.start_unix_ns.desc(), w.id.desc())).all()


def _add(connection: Connection, told: PaddingSum, found: Sequence[Any]) -> int:
    """Count the windows; gives how many of them are without their lengths, since these are too many."""
    left_out, room = 0, MOST_TEXT
    for rows, texts in _blocks(connection, found):
        for row in rows:
            lengths, shapes = texts.get(row.id, ("[]", "[]")) if room > 0 else ("[]", "[]")
            left_out += room <= 0
            room -= len(lengths)
            weight = row.represents_ns / row.duration_ns if row.represents_ns and row.duration_ns else 1.0
            told.add(
                Padding(
                    batches=int(row.padding_batches),
                    real_tokens=int(row.padding_real_tokens),
                    padded_tokens=int(row.padding_padded_tokens),
                    real_squared=int(row.padding_real_squared),
                    padded_squared=int(row.padding_padded_squared),
                    lengths=json.loads(lengths),
                    shapes=json.loads(shapes),
                    coarsened=int(row.padding_coarsened or 0),
                    unread=int(row.padding_unread or 0),
                ),
                weight,
            )
    return left_out


def _blocks(connection: Connection, found: Sequence[Any]) -> Iterator[tuple[Sequence[Any], dict[int, tuple[str, str]]]]:
    """Some windows at a time with their lengths and shapes as they are stored."""
    w = windows.c
    for begin in range(0, len(found), IN_LIST):
        rows = found[begin : begin + IN_LIST]
        query = select(w.id, w.padding_lengths, w.padding_shapes).where(w.id.in_([row.id for row in rows]))
        yield rows, {i: (lengths or "[]", shapes or "[]") for i, lengths, shapes in connection.execute(query)}


def _processes(connection: Connection, f: Filter, found: Sequence[Any]) -> tuple[list[int], int, int]:
    """The processes that are looked at; how many more told lengths; how many of the filter told none."""
    told = list(dict.fromkeys(row.process_id for row in found))
    asked = connection.execute(windows_of(f, func.count(windows.c.process_id.distinct()))).scalar_one()
    silent = int(asked) - len(told)
    kept = told if not silent else told[:MOST_PROCESSES]
    return kept, len(told) - len(kept), silent


def _parts(
    connection: Connection, f: Filter, chosen: Sequence[int], *, whole: bool
) -> dict[kernels.Key, list[kernels.SignaturePart]]:
    """The kernels of the chosen processes; ``whole``: these are all that the filter means."""
    if whole:
        return kernels.parts_of(connection, f)
    parts: dict[kernels.Key, list[kernels.SignaturePart]] = {}
    for identity in chosen:
        for key, group in kernels.parts_of(connection, replace(f, process=f"{identity:016x}")).items():
            parts.setdefault(key, []).extend(group)
    return parts


def _period_ns(connection: Connection, f: Filter, chosen: Collection[int]) -> int | None:
    """From the beginning of the time that the first window stands for to the last window; None where unknown."""
    w = windows.c
    query = windows_of(f, func.min(w.start_unix_ns - w.represents_ns), func.max(w.start_unix_ns))
    first, last = connection.execute(among(query.where(w.represents_ns > 0), w.process_id, chosen)).one()
    return int(last) - int(first) if first is not None and last > first else None
