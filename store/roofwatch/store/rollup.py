"""Sums of a process's hour and day: which pieces are out of date, and bringing them up to date.

A window that is stored makes the pieces that it falls into stale, in the same transaction; an answer takes stale
pieces from what they are made of, so it is exact at any moment. A piece is summed up once its process has come to the
next hour, a few in each transaction of ingest, and later ones by ``sweep``. A window of a piece whose windows are no
longer kept is added to its sums.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select, delete, func, select, union_all, update
from sqlalchemy.exc import OperationalError

from roofwatch.store import bulk, kernel_hours, rollup_groups
from roofwatch.store.blocks import pack
from roofwatch.store.days import in_days
from roofwatch.store.gather import Devices, from_pieces, from_windows
from roofwatch.store.given_up import GivenUp, Piece
from roofwatch.store.identity import node_id
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
MOST = 1 << 62  # a sum is stored as at most that

_ROWS = (window_sums, drop_sums, device_sums, cause_sums)
Arrived = Sequence[tuple[int, "UnpackedWindow"]]  # with the number of each window
_KEY = ("grain", "bucket_unix_ns", "process_id")
_log = logging.getLogger(__name__)


def changed(connection: Connection, arrived: Arrived, broken: GivenUp) -> None:
    """Make the pieces of stored windows stale; of pieces whose windows are no longer kept, add to the sums.

    What is stale already is left alone: no sum of a node or of all holds it, and what it is made of is there. Sums that
    cannot be added to (``broken``) stay as they are: what comes late is then stored and in no sum.
    """
    left = _of_fresh(connection, arrived)
    for grain in (DAY_S, HOUR_S):  # where only a day's sums are kept there is no hour to make stale
        if not left:
            return
        pieces: dict[tuple[int, int], list[tuple[int, UnpackedWindow]]] = defaultdict(list)
        for number, w in left:
            pieces[bucket_of(w.window.start_unix_ns, grain), w.process_id].append((number, w))
        nodes = {node_id(w.window.process.node) for _, w in left}
        rollup_groups.forget(connection, grain, {bucket for bucket, _ in pieces}, nodes)
        gone = _make_stale(connection, grain, pieces)
        for piece in gone:
            _safely_add(connection, (grain, *piece), pieces[piece], broken)
        left = [one for piece, of in pieces.items() if piece not in gone for one in of]


def _of_fresh(connection: Connection, arrived: Arrived) -> Arrived:
    """The windows whose hour or day is not stale yet: the first of an hour, and late ones."""
    pieces = {
        (grain, bucket_of(w.window.start_unix_ns, grain), w.process_id) for _, w in arrived for grain in (HOUR_S, DAY_S)
    }
    fresh = set(bulk.lacking(connection, rollups, _KEY, list(chain.from_iterable(pieces)), "t.stale"))
    return [
        (number, w)
        for number, w in arrived
        if fresh
        and any((grain, bucket_of(w.window.start_unix_ns, grain), w.process_id) in fresh for grain in (HOUR_S, DAY_S))
    ]


def _make_stale(connection: Connection, grain: int, pieces: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Gives the pieces of which nothing finer is kept; these stay as they are."""
    flat = list(chain.from_iterable((grain, bucket, process, True, True) for bucket, process in pieces))
    names = (*_KEY, "stale", "finer")
    suffix = "ON CONFLICT (grain,bucket_unix_ns,process_id) DO UPDATE SET stale=(rollups.stale OR rollups.finer)"
    found = bulk.insert_returning(connection, rollups, names, flat, (*_KEY, "finer"), suffix)
    return {(bucket, process) for _, bucket, process, finer in found if not finer}


def close(
    connection: Connection, arrived: Arrived, newest: dict[int, int], waiting: dict[int, int], broken: GivenUp
) -> None:
    """Sum up what processes left: ``newest`` is the hour each has come to, ``waiting`` those with something to do.

    ``broken`` are the pieces that cannot be summed up: they stay stale, and are not tried again.
    """
    if len(newest) > KNOWN_MOST or len(waiting) > KNOWN_MOST:
        newest.clear()
        waiting.clear()  # what it says that is to be summed up ``sweep`` finds by itself
    came: dict[int, int] = {}
    for _, w in arrived:
        came[w.process_id] = max(came.get(w.process_id, 0), bucket_of(w.window.start_unix_ns, HOUR_S))
    for process, hour in came.items():
        if hour > newest.get(process, -1):
            newest[process] = waiting[process] = hour
    if not waiting:
        return
    hour = next(iter(waiting.values()))
    of = [process for process, its in waiting.items() if its == hour][:AT_ONCE]
    pieces = _stale(connection, [rollups.c.process_id.in_(of)], hour, AT_ONCE, broken)
    _build_all(connection, pieces, broken)
    if len(pieces) < AT_ONCE:
        for process in of:
            del waiting[process]


def sweep(connection: Connection, now_ns: int, broken: GivenUp | None = None, most: int = AT_ONCE) -> int:
    """Sum up pieces that ended some minutes ago, the oldest first; how many there were, at most ``most``."""
    broken = GivenUp() if broken is None else broken
    pieces = _stale(connection, [], now_ns - GRACE_NS, most, broken)
    _build_all(connection, pieces, broken)
    return len(pieces) or rollup_groups.sweep(connection, now_ns - GRACE_NS, broken)


def _build_all(connection: Connection, pieces: Sequence[Piece], broken: GivenUp) -> None:
    """Those of one time together: a statement costs more than what it reads."""
    together: dict[tuple[int, int], list[int]] = defaultdict(list)
    for grain, bucket, process in pieces:
        together[grain, bucket].append(process)
    for (grain, bucket), of in together.items():
        if _failed(connection, grain, bucket, of):
            for process in of:
                if why := _failed(connection, grain, bucket, [process]):
                    broken.add((grain, bucket, process))
                    _log.warning("a sum of process %016x cannot be made: %s", process, why)
    rollup_groups.renew(connection, pieces, broken)
    kernel_hours.renew(connection, [(bucket, process) for grain, bucket, process in pieces if grain == HOUR_S], broken)


def _failed(connection: Connection, grain: int, bucket: int, of: Sequence[int]) -> str:
    """Why pieces could not be summed up, "" where they are: a damaged block must not hold up ingest and all others."""
    point = connection.begin_nested()
    try:
        build(connection, grain, bucket, of)
    except (OperationalError, MemoryError):  # no disk, a lock: not the piece's fault, and the next try may succeed
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, what the piece is made of is still there
        point.rollback()
        return str(error)
    point.commit()
    return ""


def _stale(
    connection: Connection, of: Sequence[ColumnElement[bool]], until_ns: int, most: int, broken: GivenUp
) -> list[Piece]:
    """Stale pieces that ended before a time: hours, then the days whose hours are all up to date."""
    r, hour = rollups.c, rollups.alias("hour")
    found: list[Piece] = []
    waits = select(hour.c.grain).where(
        hour.c.stale, hour.c.grain == HOUR_S, hour.c.process_id == r.process_id,
        hour.c.bucket_unix_ns.between(r.bucket_unix_ns, r.bucket_unix_ns + (DAY_S - 1) * SECOND_NS),
    )  # fmt: skip
    for grain, more in ((HOUR_S, ()), (DAY_S, (~waits.exists(),))):
        ended = r.bucket_unix_ns <= until_ns - grain * SECOND_NS
        query = select(r.grain, r.bucket_unix_ns, r.process_id).where(
            r.stale, r.grain == grain, r.finer, ended, r.bucket_unix_ns >= broken.before_ns, *of, *more
        )
        rows = connection.execute(query.order_by(r.bucket_unix_ns).limit(most - len(found) + len(broken)))
        found += [(g, b, p) for g, b, p in rows if (g, b, p) not in broken][: most - len(found)]
        if len(found) >= most:
            break
    return found


def build(connection: Connection, grain: int, bucket: int, of: Sequence[int]) -> None:
    """The sums of an hour or a day of some processes anew, from their windows or their hours."""
    r, w, end = rollups.c, windows.c, bucket + grain * SECOND_NS
    devices = Devices(by_process=True)
    if grain == HOUR_S:
        where = [w.process_id.in_(of), w.start_unix_ns >= bucket, w.start_unix_ns < end, in_days(w.id, bucket, end)]
        rows = {table.name: SOURCES[table.name](where) for table in _ROWS}
        kernels = from_windows(connection, where, (), devices, histograms=True)
    else:
        where = [r.process_id.in_(of), r.grain == HOUR_S, r.bucket_unix_ns >= bucket, r.bucket_unix_ns < end]
        rows = {table.name: piece_rows(table, where) for table in _ROWS}
        kernels = from_pieces(connection, where, devices, histograms=True)
    _write(connection, grain, bucket, of, rows, kernels, devices)
    mine = (r.grain == grain, r.bucket_unix_ns == bucket, r.process_id.in_(of))
    connection.execute(update(rollups).where(*mine).values(stale=False))


def _safely_add(connection: Connection, piece: Piece, late: Arrived, broken: GivenUp) -> None:
    """A damaged block of sums must not make segments be refused that are whole."""
    if piece in broken:
        return
    point = connection.begin_nested()
    try:
        _add(connection, *piece, late)
    except (OperationalError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the windows are stored
        point.rollback()
        broken.add(piece)
        _log.warning("%d late windows of process %016x cannot be added to its sums: %s", len(late), piece[2], error)
    else:
        point.commit()


def _add(connection: Connection, grain: int, bucket: int, process: int, late: Arrived) -> None:
    """New windows to the sums of a piece."""
    r = rollups.c
    mine = [r.grain == grain, r.bucket_unix_ns == bucket, r.process_id == process]
    numbers = [number for number, _ in late]
    new = [windows.c.id.in_(numbers)]
    rows = {table.name: union_all(SOURCES[table.name](new), piece_rows(table, mine)) for table in _ROWS}
    devices = Devices(by_process=True)
    before = from_pieces(connection, mine, devices, histograms=True)
    kernels = from_windows(connection, new, (), devices, histograms=True)
    _write(connection, grain, bucket, [process], rows, Sums.joined([before, kernels]).reduced(), devices)
    if grain == HOUR_S:
        kernel_hours.renew(connection, [(bucket, process)], ())
    connection.execute(delete(kernel_blocks).where(kernel_blocks.c.window_id.in_(numbers)))


def _write(
    connection: Connection,
    grain: int,
    bucket: int,
    of: Sequence[int],
    rows: dict[str, Any],
    kernels: Sums,
    devices: Devices,
) -> None:
    """Replace sums by those of rows and kernels."""
    summed = {name: connection.execute(_summed(name, found)).all() for name, found in rows.items()}
    for table in ROLLED:
        t = table.c
        connection.execute(delete(table).where(t.grain == grain, t.bucket_unix_ns == bucket, t.process_id.in_(of)))
    for table in _ROWS:
        names = (*_KEY, *(column.name for column in table.c if column.name not in _KEY))
        flat = [x for row in summed[table.name] for x in (grain, bucket, *map(_whole, row))]
        bulk.insert(connection, table, names, flat)
    blocks = chain.from_iterable(_blocks(grain, bucket, kernels, devices))
    bulk.insert(connection, kernel_sums, (*_KEY, "device_id", "rows", "sums", "histograms"), list(blocks))


def _blocks(grain: int, bucket: int, kernels: Sums, devices: Devices) -> Iterator[tuple[Any, ...]]:
    """A row of ``kernel_sums`` for each process and device that have kernels."""
    for number, device in enumerate(devices.rows):
        own = kernels.where(kernels.device == number)
        if len(own) and own.histograms is not None:
            yield (grain, bucket, device.process_id, device.id, len(own), pack(own.columns), own.histograms.pack())


def _whole(value: Any) -> Any:
    """Sums come as floats that are whole numbers, or more than any engine's integers."""
    return min(int(value), MOST) if isinstance(value, float) else value


def _summed(name: str, of: Select[Any] | CompoundSelect[Any]) -> Select[Any]:
    """The sums of a table's rows, columns in its order from the process on."""
    rows = of.subquery()
    c = rows.c
    if name == cause_sums.name:
        return causes_summed(rows, (c.process_id, c.device_id))
    if name == drop_sums.name:
        by = (c.process_id, c.devices_id, c.reason)
        return select(*by, total(c["count"])).group_by(*by)
    if name == device_sums.name:
        times = [total(c[f"{prefix}{n}"]) for n in TIMES for prefix in ("", "est_")]
        return select(c.process_id, c.device_id, func.sum(c.windows), *times).group_by(c.process_id, c.device_id)
    names = [column.name for column in window_sums.c if not column.primary_key]
    return select(c.process_id, c.devices_id, *aggregates(rows, names)).group_by(c.process_id, c.devices_id)
