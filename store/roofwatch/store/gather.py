"""Kernels of many windows or pieces as sums, read block by block."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, and_, select

from roofwatch.store.blocks import FACT, SUM, Ints, joined, unpack, unpack_of
from roofwatch.store.days import same_days
from roofwatch.store.histograms import Histograms
from roofwatch.store.postgres_sums import same_pieces
from roofwatch.store.rollup_sources import Conditions, weight
from roofwatch.store.schema import (
    devices,
    kernel_blocks,
    kernel_sums,
    nodes,
    processes,
    rollups,
    window_devices,
    windows,
)
from roofwatch.store.sums import Sums, of_windows

ROWS = "clickhousedb"  # the dialect whose kernels are rows, summed by the engine (clickhouse/gather.py)
CHUNK = 64  # blocks in memory at once: what fits a processor's cache is read fastest
AT_ONCE = 100_000  # rows of sums that wait to be added up: 10 MB, without histograms
NAMED = 400  # hours or days in one statement
_DEVICE = FACT.index("device")
DEVICE_COLUMNS = (devices.c.id, devices.c.vendor, devices.c.model, devices.c.peaks_id)


@dataclass(frozen=True, slots=True)
class OfDevice:
    """What answers tell of a device, and whose roofs its kernels have."""

    id: int
    vendor: str
    model: str
    peaks_id: int
    process_id: int  # of whose windows it was seen in first
    at_unix_ns: int  # when that window, or the hour or day, began


@dataclass(slots=True)
class Devices:
    """Devices by number; ``by_process`` one for each process that has it."""

    by_process: bool = False
    by_node: bool = False  # processes only say which node it is
    whole: bool = False  # what a device did is one row, whatever kernel: of questions about nothing but histograms
    rows: list[OfDevice] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)

    def key(self, device: OfDevice) -> Hashable:
        """What is one device here."""
        return (device.process_id if self.by_process else 0, device.id)

    def number(self, device: OfDevice) -> int:
        """The number of a device, a new one at its first sight."""
        found = self.numbers.setdefault(self.key(device), len(self.rows))
        if found == len(self.rows):
            self.rows.append(device)
        return found


@dataclass(slots=True)
class Models(Devices):
    """Devices of one model, vendor and set of peaks are one."""

    def key(self, device: OfDevice) -> Hashable:
        """What is one device here."""
        return (device.vendor, device.model, device.peaks_id)


@dataclass(slots=True)
class _Places:
    """Of every (window, position) the number of its device, its weight, and its window's steps."""

    begins: dict[int, int] = field(default_factory=dict)
    device: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    weight: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    steps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


def _places(connection: Connection, where: Conditions, known: Devices) -> _Places:
    """Positions that the conditions leave out have no device (-1)."""
    w, d = windows.c, window_devices.c
    query = (
        select(w.id, d.position, weight(), w.steps, *DEVICE_COLUMNS, w.process_id, w.start_unix_ns)
        .select_from(windows)
        .join(processes, processes.c.id == w.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .join(window_devices, d.window_id == w.id)
        .join(devices, devices.c.id == d.device_id)
        .where(*where, *same_days(where, d.window_id))
        .order_by(w.id, d.position)
    )
    begins: dict[int, int] = {}
    flat: list[tuple[int, float, int]] = []
    for window, position, factor, steps, *device in connection.execute(query):
        begin = begins.setdefault(window, len(flat))
        flat.extend([(-1, 1.0, 0)] * (begin + position - len(flat)))
        flat.append((known.number(OfDevice(*device)), factor, steps or 0))
    columns = list(zip(*flat, strict=True)) or [(), (), ()]
    return _Places(
        begins, np.array(columns[0], np.int64), np.array(columns[1], np.float64), np.array(columns[2], np.int64)
    )


def from_windows(
    connection: Connection,
    where: Conditions,
    device_where: Conditions,
    known: Devices,
    *,
    histograms: bool = False,
    wanted: Collection[int] | None = None,
) -> Sums:
    """The kernels of windows, reduced; ``wanted`` signatures only."""
    if connection.dialect.name == ROWS:
        from roofwatch.store.clickhouse import gather as rows  # noqa: PLC0415  # an extra

        return rows.from_windows(connection, where, device_where, known, histograms=histograms, wanted=wanted)
    places = _places(connection, [*where, *device_where], known)
    if not places.begins:
        return Sums.joined(())
    b = kernel_blocks.c
    query = (
        select(b.window_id, b.rows, b.facts, *([b.histograms] if histograms else []))
        .select_from(windows)
        .join(processes, processes.c.id == windows.c.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .join(kernel_blocks, b.window_id == windows.c.id)
        .where(*where, *same_days(where, b.window_id))
    )
    return _added(
        _of_blocks([row for row in rows if row[0] in places.begins], places, wanted, histograms=histograms)
        for rows in connection.execute(query).partitions(CHUNK)
    )


def each_window(
    connection: Connection, ids: Sequence[int], *, histograms: bool = False
) -> dict[int, tuple[Ints, Histograms | None]]:
    """Of some windows, as many as one statement may name, the kernels as they are; of those that still have them."""
    if connection.dialect.name == ROWS:
        from roofwatch.store.clickhouse import gather as rows  # noqa: PLC0415  # an extra

        return rows.each_window(connection, ids, histograms=histograms)
    b = kernel_blocks.c
    query = select(b.window_id, b.rows, b.facts, *([b.histograms] if histograms else [])).where(b.window_id.in_(ids))
    return {
        number: (unpack(facts, len(FACT)), Histograms.unpack(told[0], rows) if told else None)
        for number, rows, facts, *told in connection.execute(query)
    }


def _of_blocks(rows: Sequence[Any], places: _Places, wanted: Collection[int] | None, *, histograms: bool) -> Sums:
    facts, counts, told = _unpacked([row[1:] for row in rows], len(FACT), wanted, histograms=histograms)
    begin = np.array([places.begins[row[0]] for row in rows], np.int64)
    end = len(places.device)
    # A position behind a window's last one that is wanted is another window's, or nobody's.
    own = np.append(np.array(sorted(places.begins.values()), np.int64), end)
    limit = np.repeat(own[np.searchsorted(own, begin, side="right")], counts)
    at = np.repeat(begin, counts) + facts[_DEVICE]
    device = np.where(at < limit, places.device[np.minimum(at, end - 1)], -1)
    at = np.minimum(at, end - 1)
    kept = device >= 0
    if not kept.all():  # first, for what is wanted is often a small part
        facts, device, at, told = facts[:, kept], device[kept], at[kept], told and told.where(kept)
    return of_windows(facts, device, places.weight[at], places.steps[at], told)


def _unpacked(
    rows: Sequence[Any], columns: int, wanted: Collection[int] | None, *, histograms: bool
) -> tuple[Ints, list[int], Histograms | None]:
    """The matrices of blocks side by side, how many rows are of each, and their histograms; of (rows, block, block)."""
    if wanted is None:
        told = Histograms.joined([Histograms.unpack(row[2], row[0]) for row in rows]) if histograms else None
        return joined([unpack(row[1], columns) for row in rows], columns), [row[0] for row in rows], told
    of = np.sort(np.fromiter(wanted, np.int64, len(wanted)))
    found = [unpack_of(row[1], columns, of) for row in rows]
    if histograms:
        pairs = zip(rows, found, strict=True)
        told = Histograms.joined([Histograms.unpack_of(row[2], kept) for row, (_, kept) in pairs if kept.any()])
    else:
        told = None
    return joined([matrix for matrix, _ in found], columns), [matrix.shape[1] for matrix, _ in found], told


def from_pieces(
    connection: Connection,
    where: Conditions,
    known: Devices,
    *,
    histograms: bool = False,
    wanted: Collection[int] | None = None,
) -> Sums:
    """The kernels of pieces of hours and days, reduced; the conditions are of rollups, owners and devices."""
    if connection.dialect.name == ROWS:
        from roofwatch.store.clickhouse import gather as rows  # noqa: PLC0415  # an extra

        return rows.from_pieces(connection, where, known, histograms=histograms, wanted=wanted)
    k, r = kernel_sums.c, rollups.c
    query = (
        select(*DEVICE_COLUMNS, r.process_id, r.bucket_unix_ns, *_blocks(histograms=histograms))
        .select_from(rollups)
        .join(processes, processes.c.id == r.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .join(
            kernel_sums,
            and_(k.grain == r.grain, k.bucket_unix_ns == r.bucket_unix_ns, k.process_id == r.process_id),
        )
        .join(devices, devices.c.id == k.device_id)
        .where(*where, *same_pieces(where, k))
    )
    return _summed(connection, query, known, wanted, histograms=histograms)


def from_groups(
    connection: Connection,
    buckets: Mapping[int, Sequence[int]],
    groups: Sequence[int],
    device_where: Conditions,
    known: Devices,
    *,
    histograms: bool = False,
    wanted: Collection[int] | None = None,
) -> Sums:
    """The kernels of nodes, or of the fleet (``rollup_groups``), of some hours and days by grain; reduced."""
    k, parts = kernel_sums.c, []
    for grain, of in buckets.items():
        for low in range(0, len(of), NAMED):
            query = (
                select(*DEVICE_COLUMNS, k.process_id, k.bucket_unix_ns, *_blocks(histograms=histograms))
                .join(devices, devices.c.id == k.device_id)
                .where(k.grain == grain, k.bucket_unix_ns.in_(of[low : low + NAMED]), k.process_id.in_(groups))
                .where(*device_where)
            )
            parts.append(_summed(connection, query, known, wanted, histograms=histograms))
    return Sums.joined(parts).reduced()


def from_rows(
    rows: Sequence[Any], known: Devices, *, histograms: bool = False, wanted: Collection[int] | None = None
) -> Sums:
    """The same of rows that were read: a device's columns, group, beginning, number of kernels, sums, histograms."""
    chunks = (rows[low : low + CHUNK] for low in range(0, len(rows), CHUNK))
    return _added(_of_sums(some, known, wanted, histograms=histograms) for some in chunks)


def _blocks(*, histograms: bool) -> tuple[Any, ...]:
    k = kernel_sums.c
    return (k.rows, k.sums, *([k.histograms] if histograms else []))


def _summed(
    connection: Connection, query: Any, known: Devices, wanted: Collection[int] | None, *, histograms: bool
) -> Sums:
    return _added(
        _of_sums(rows, known, wanted, histograms=histograms) for rows in connection.execute(query).partitions(CHUNK)
    )


def _added(parts: Iterable[Sums]) -> Sums:
    """All parts, reduced as they come: of any number at most twice what is told apart, and AT_ONCE, is in memory."""
    held: list[Sums] = []
    rows, room = 0, AT_ONCE
    for part in parts:
        held.append(part.reduced())
        rows += len(held[-1])
        if rows > room:
            held = [Sums.joined(held).reduced()]
            rows, room = 0, max(AT_ONCE, len(held[0]))  # what stays is not joined again and again
    return held[0] if len(held) == 1 else Sums.joined(held).reduced()


def _of_sums(rows: Sequence[Any], known: Devices, wanted: Collection[int] | None, *, histograms: bool) -> Sums:
    columns, counts, told = _unpacked([row[6:] for row in rows], len(SUM), wanted, histograms=histograms)
    device = np.repeat(np.array([known.number(OfDevice(*row[:6])) for row in rows], np.int64), counts)
    return Sums(columns, device, told).whole() if known.whole else Sums(columns, device, told)
