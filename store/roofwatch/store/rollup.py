"""Sums of a process's hour and day: which pieces are out of date, and bringing them up to date.

A window that is stored makes the pieces that it falls into stale, in the same transaction; an answer takes stale
pieces from what they are made of, so it is exact at any moment. A piece is summed up once its process has come to the
next hour, a few in each transaction of ingest, and later ones by ``sweep``. A window of a piece whose windows are no
longer kept is added to its sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select, delete, func, select, union_all, update

from roofwatch.store import bulk
from roofwatch.store.blocks import pack
from roofwatch.store.gather import Devices, from_pieces, from_windows
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, ROLLED, SECOND_NS, TIMES, bucket_of
from roofwatch.store.rollup_sources import SOURCES, aggregates, causes_summed, piece_rows, total
from roofwatch.store.schema import (
    cause_sums,
    device_sums,
    drop_sums,
    kernel_blocks,
    kernel_sums,
    rollups,
    window_sums,
    windows,
)
from roofwatch.store.sums import Sums

if TYPE_CHECKING:
    from roofwatch.store.unpack import UnpackedWindow

GRACE_NS = 300 * SECOND_NS  # after its end an hour may still get windows: segments wait, clocks differ
AT_ONCE = 8  # pieces summed up in one transaction of ingest: about 0.1 s
KNOWN_MOST = 100_000  # processes whose newest hour is remembered

Arrived = Sequence[tuple[int, "UnpackedWindow"]]  # with the number of each window
_KEY = ("grain", "bucket_unix_ns", "process_id")


def changed(connection: Connection, arrived: Arrived) -> None:
    """Make the pieces of stored windows stale; of pieces whose windows are no longer kept, add to the sums."""
    left: Arrived = arrived
    for grain in (DAY_S, HOUR_S):  # where only a day's sums are kept there is no hour to make stale
        pieces: dict[tuple[int, int], list[tuple[int, UnpackedWindow]]] = defaultdict(list)
        for number, w in left:
            pieces[bucket_of(w.window.start_unix_ns, grain), w.window.process.id].append((number, w))
        gone = _make_stale(connection, grain, pieces)
        for piece in gone:
            _add(connection, grain, *piece, pieces[piece])
        left = [one for piece, of in pieces.items() if piece not in gone for one in of]


def _make_stale(connection: Connection, grain: int, pieces: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Gives the pieces of which nothing finer is kept; these stay as they are."""
    flat = list(chain.from_iterable((grain, bucket, process, True, True) for bucket, process in pieces))
    names = (*_KEY, "stale", "finer")
    suffix = "ON CONFLICT (grain,bucket_unix_ns,process_id) DO UPDATE SET stale=(rollups.stale OR rollups.finer)"
    found = bulk.insert_returning(connection, rollups, names, flat, (*_KEY, "finer"), suffix)
    return {(bucket, process) for _, bucket, process, finer in found if not finer}


def close(
    connection: Connection, arrived: Arrived, newest: dict[int, int], waiting: dict[tuple[int, int], None]
) -> None:
    """Sum up the hours that processes left; ``newest`` is the one each has come to, ``waiting`` what is left to do."""
    if len(newest) > KNOWN_MOST:
        newest.clear()
    came: dict[int, int] = {}
    for _, w in arrived:
        hour, process = bucket_of(w.window.start_unix_ns, HOUR_S), w.window.process.id
        came[process] = max(came.get(process, hour), hour)
    for process, hour in came.items():
        if hour > newest.get(process, -1):
            newest[process] = hour
            waiting[process, hour] = None
    left = AT_ONCE
    while waiting and left > 0:
        (process, hour) = next(iter(waiting))
        r = rollups.c
        pieces = _stale(connection, [r.process_id == process], hour, left)
        left -= max(1, len(pieces))
        for grain, bucket, of in pieces:
            build(connection, grain, bucket, of)
        if left > 0:
            del waiting[process, hour]


def sweep(connection: Connection, now_ns: int, most: int = AT_ONCE) -> int:
    """Sum up pieces that ended some minutes ago, the oldest first; how many there were, at most ``most``."""
    pieces = _stale(connection, [], now_ns - GRACE_NS, most)
    for grain, bucket, process in pieces:
        build(connection, grain, bucket, process)
    return len(pieces)


def _stale(
    connection: Connection, of: Sequence[ColumnElement[bool]], until_ns: int, most: int
) -> list[tuple[int, int, int]]:
    """Stale pieces that ended before a time: hours, then the days whose hours are all up to date."""
    r, hour = rollups.c, rollups.alias("hour")
    found: list[tuple[int, int, int]] = []
    waits = select(hour.c.grain).where(
        hour.c.stale, hour.c.grain == HOUR_S, hour.c.process_id == r.process_id,
        hour.c.bucket_unix_ns.between(r.bucket_unix_ns, r.bucket_unix_ns + (DAY_S - 1) * SECOND_NS),
    )  # fmt: skip
    for grain, more in ((HOUR_S, ()), (DAY_S, (~waits.exists(),))):
        ended = r.bucket_unix_ns <= until_ns - grain * SECOND_NS
        query = select(r.grain, r.bucket_unix_ns, r.process_id).where(r.stale, r.grain == grain, ended, *of, *more)
        rows = connection.execute(query.order_by(r.bucket_unix_ns).limit(most - len(found)))
        found += [(g, b, p) for g, b, p in rows]
        if len(found) >= most:
            break
    return found


def build(connection: Connection, grain: int, bucket: int, process: int) -> None:
    """The sums of one piece anew, from its windows or its hours."""
    r = rollups.c
    mine = [r.grain == grain, r.bucket_unix_ns == bucket, r.process_id == process]
    end = bucket + grain * SECOND_NS
    if grain == HOUR_S:
        w = windows.c
        where = [w.process_id == process, w.start_unix_ns >= bucket, w.start_unix_ns < end]
        rows = {name: source(where) for name, source in SOURCES.items()}
        devices = Devices()
        kernels = from_windows(connection, where, (), devices, histograms=True)
    else:
        where = [r.process_id == process, r.grain == HOUR_S, r.bucket_unix_ns >= bucket, r.bucket_unix_ns < end]
        rows = {t.name: piece_rows(t, where) for t in (window_sums, drop_sums, device_sums, cause_sums)}
        devices = Devices()
        kernels = from_pieces(connection, where, devices, histograms=True)
    _write(connection, (grain, bucket, process), rows, kernels, devices)
    connection.execute(update(rollups).where(*mine).values(stale=False))


def _add(connection: Connection, grain: int, bucket: int, process: int, late: Arrived) -> None:
    """New windows to the sums of a piece."""
    r = rollups.c
    mine = [r.grain == grain, r.bucket_unix_ns == bucket, r.process_id == process]
    new = [windows.c.id.in_([number for number, _ in late])]
    rows = {
        t.name: union_all(SOURCES[t.name](new), piece_rows(t, mine))
        for t in (window_sums, drop_sums, device_sums, cause_sums)
    }
    devices = Devices()
    before = from_pieces(connection, mine, devices, histograms=True)
    kernels = from_windows(connection, new, (), devices, histograms=True)
    _write(connection, (grain, bucket, process), rows, Sums.joined([before, kernels]).reduced(), devices)
    connection.execute(delete(kernel_blocks).where(kernel_blocks.c.window_id.in_([number for number, _ in late])))


def _write(
    connection: Connection, piece: tuple[int, int, int], rows: dict[str, Any], kernels: Sums, devices: Devices
) -> None:
    """Replace the sums of a piece by those of rows and kernels."""
    summed = {name: connection.execute(_summed(name, of)).all() for name, of in rows.items()}
    for table in ROLLED:
        t = table.c
        key = zip((t.grain, t.bucket_unix_ns, t.process_id), piece, strict=True)
        connection.execute(delete(table).where(*(column == value for column, value in key)))
    for table in (window_sums, drop_sums, device_sums, cause_sums):
        names = (*_KEY, *(column.name for column in table.c if column.name not in _KEY))
        flat = [x for row in summed[table.name] for x in (*piece, *map(_whole, row))]
        bulk.insert(connection, table, names, flat)
    names = (*_KEY, "device_id", "rows", "sums", "histograms")
    bulk.insert(connection, kernel_sums, names, list(chain.from_iterable(_blocks(piece, kernels, devices))))


def _blocks(piece: tuple[int, int, int], kernels: Sums, devices: Devices) -> Iterator[tuple[Any, ...]]:
    """A row of ``kernel_sums`` for each device that has kernels."""
    for number, device in enumerate(devices.rows):
        own = kernels.of_device(number)
        if len(own) and own.histograms is not None:
            yield (*piece, device.id, len(own), pack(own.columns), own.histograms.pack())


def _whole(value: Any) -> Any:
    """Sums of estimates come as floats that are whole numbers."""
    return int(value) if isinstance(value, float) else value


def _summed(name: str, of: Select[Any] | CompoundSelect[Any]) -> Select[Any]:
    """The sums of a table's rows, columns in its order without the piece."""
    rows = of.subquery()
    c = rows.c
    if name == cause_sums.name:
        return causes_summed(rows, (c.device_id,))
    if name == drop_sums.name:
        return select(c.devices_id, c.reason, func.sum(c["count"])).group_by(c.devices_id, c.reason)
    if name == device_sums.name:
        times = [f(c[f"{prefix}{n}"]) for n in TIMES for prefix, f in (("", func.sum), ("est_", total))]
        return select(c.device_id, func.sum(c.windows), *times).group_by(c.device_id)
    names = [column.name for column in window_sums.c if not column.primary_key]
    return select(c.devices_id, *aggregates(rows, names)).group_by(c.devices_id)
