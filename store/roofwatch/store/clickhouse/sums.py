"""Sums of hours and days on ClickHouse: the engine adds up kernels, and each attempt has a number of its own.

Rows of kernels carry the number of the attempt that wrote them; ``rollups`` says which attempt of a piece counts. So a
piece changes at one moment, and an attempt that broke is never read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, literal, select, union_all
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import Select

from roofwatch.model.answer import weight_of
from roofwatch.store import gather as shared
from roofwatch.store.blocks import FACT, SUM
from roofwatch.store.clickhouse import packed, pieces
from roofwatch.store.clickhouse.chosen import of_builds
from roofwatch.store.clickhouse.engine import client, raising, sentence, unreachable
from roofwatch.store.clickhouse.gather import summed_facts, summed_sums
from roofwatch.store.clickhouse.journal import Journal
from roofwatch.store.clickhouse.native import Arrays
from roofwatch.store.clickhouse.pieces import Key, Numbered
from roofwatch.store.clickhouse.reading import NUMBERS, text_of
from roofwatch.store.clickhouse.sink import insert
from roofwatch.store.clickhouse.spreads import SPREAD, sparse, spread
from roofwatch.store.clickhouse.tables import kernel_facts, kernel_sums
from roofwatch.store.histograms import Histograms
from roofwatch.store.rollup import GRACE_NS, _summed, _whole
from roofwatch.store.rollup_schema import HOUR_S, SECOND_NS
from roofwatch.store.rollup_sources import SOURCES, piece_rows
from roofwatch.store.schema import rollups, windows
from roofwatch.store.sums import Sums, of_windows

_log = logging.getLogger(__name__)
AT_ONCE = 500  # processes in one statement: some 200,000 groups
_ROWS, _KEY = packed.TABLES, packed.KEY


def sweep(
    connection: Connection,
    journal: Journal,
    now_ns: int,
    grace_ns: int = GRACE_NS,
    sure: Callable[[], None] = lambda: None,
) -> int:
    """Sum up pieces of one hour or day that ended some minutes ago, the oldest first; how many there were.

    ``sure`` raises where nothing may be written any more.
    What cannot be summed up is told once and left as it is, windows; it is tried again by a store that starts.
    """
    with journal.engine.connect() as kept:
        of = pieces.due(kept, now_ns - grace_ns, AT_ONCE, journal.broken)
    if not of:
        return 0
    sure()
    try:
        _sum_up(connection, journal, of)
    except DBAPIError as error:
        if unreachable(error):
            raise
        for key in of:  # which of them it is
            _alone(connection, journal, key)
    return len(of)


def _alone(connection: Connection, journal: Journal, key: Key) -> None:
    try:
        _sum_up(connection, journal, [key])
    except DBAPIError as error:
        if unreachable(error):
            raise
        journal.broken.add(key)
        what = "the hour" if key[0] == HOUR_S else "the day"
        _log.warning("%s %d of process %d cannot be summed up, and stays as it is: %s", what, *key[1:], sentence(error))


def _sum_up(connection: Connection, journal: Journal, of: Sequence[Key]) -> None:
    with journal.write() as kept:
        number, version = journal.next(kept, "build"), journal.next(kept, "version")
    grain, bucket, _ = of[0]
    build(connection, grain, bucket, [process for _, _, process in of], number)
    with journal.write() as kept:  # told before it is known here: what broke in between is built again
        told = [(g, b, p, 0, finer, number) for g, b, p, _, finer, _ in pieces.states(kept, of)]
    journal.stale.difference_update(of)
    pieces.publish(connection, told, version)
    with journal.write() as kept:
        pieces.built(kept, of, number)


def build(connection: Connection, grain: int, bucket: int, of: Sequence[int], number: int) -> None:
    """The sums of an hour or a day of some processes anew, from their windows or their hours."""
    r, w, end = rollups.c, windows.c, bucket + grain * SECOND_NS
    if grain == HOUR_S:
        where = [w.process_id.in_(of), w.start_unix_ns >= bucket, w.start_unix_ns < end]
        rows = {table.name: SOURCES[table.name](where) for table in _ROWS}
        f = kernel_facts.c
        kernels = _kernels(summed_facts(), f, grain, bucket, number)
        kernels = kernels.where(f.process_id.in_(of), f.start_unix_ns >= bucket, f.start_unix_ns < end)
        kernels = kernels.where(f.window_id.in_(select(w.id).where(*where)))  # others are of a batch that is under way
    else:
        where = [r.process_id.in_(of), r.grain == HOUR_S, r.bucket_unix_ns >= bucket, r.bucket_unix_ns < end]
        rows = {table.name: piece_rows(table, where) for table in _ROWS}
        s = kernel_sums.c
        kernels = _kernels(summed_sums(), s, grain, bucket, number)
        kernels = kernels.where(of_builds(select(r.grain).where(*where)))
    names = ("grain", "process_id", "bucket_unix_ns", "device_id", "build", *SUM, *SPREAD)
    sql = f"INSERT INTO kernel_sums ({', '.join(names)}) " + text_of(connection, kernels)
    with raising(connection, sql):
        client(connection).command(sql, settings=NUMBERS)
    _write(connection, grain, bucket, rows, number)


def _kernels(sums: dict[str, Any], c: Any, grain: int, bucket: int, number: int) -> Select[Any]:
    head = (literal(grain), c.process_id, literal(bucket), c.device_id, literal(number))
    columns = [func.toInt64(one).label(f"_{i}") for i, one in enumerate(head)]
    columns += [func.toInt64(sums[name]).label(f"_{name}") for name in SUM]
    return select(*columns, *spread(c)).group_by(c.process_id, c.device_id, *(sums[name] for name in SUM[:4]))


def _write(connection: Connection, grain: int, bucket: int, rows: dict[str, Any], number: int) -> None:
    _insert_all(
        connection, {name: _summed_rows(connection, grain, bucket, name, query) for name, query in rows.items()}, number
    )


def _insert_all(connection: Connection, rows: Mapping[str, Sequence[Sequence[Any]]], number: int) -> None:
    """The rows of tables, and as texts."""
    for name, of in rows.items():
        _insert_rows(connection, name, of, number)
    packed.write(connection, rows, number)


def _summed_rows(connection: Connection, grain: int, bucket: int, name: str, query: Any) -> list[list[Any]]:
    """The sums of rows, columns in the order of ``_names``."""
    return [[grain, bucket, *map(_whole, row)] for row in connection.execute(_summed(name, query))]


def _insert_rows(connection: Connection, name: str, rows: Sequence[Sequence[Any]], number: int) -> None:
    if rows:
        table = next(one for one in _ROWS if one.name == name)
        names = (*_KEY, *(one.name for one in table.c if one.name not in _KEY))
        columns: dict[str, Any] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        insert(connection, name, {**columns, "build": [number] * len(rows)})


def add(connection: Connection, journal: Journal, batch: int, key: Key, late: Numbered) -> None:
    """Windows of a piece of which nothing finer is kept to its sums.

    The new sums are written down before they replace the old ones, so a repetition adds nothing twice; they do that by
    one insert, since of such a piece the newest rows count (``chosen``).
    """
    with journal.write() as kept:
        found = journal.staged(kept, batch, key)
        number, version = journal.next(kept, "build"), journal.next(kept, "version")
    if found is None:
        found = _added(connection, key, late)
        with journal.write() as kept:
            journal.stage(kept, batch, key, found)
    _insert_all(connection, found["rows"], number)
    _kernels_in(connection, key, found["kernels"], number)
    with journal.write() as kept:
        state = pieces.states(kept, [key])[0]
    pieces.publish(connection, [(*state[:-1], number)], version)
    with journal.write() as kept:
        pieces.built(kept, [key], number)


def _added(connection: Connection, key: Key, late: Numbered) -> dict[str, Any]:
    """The sums of a piece with the windows: rows by table, and kernels as lists by column."""
    grain, bucket, process = key
    r = rollups.c
    mine = [r.grain == grain, r.bucket_unix_ns == bucket, r.process_id == process]
    new = [windows.c.id.in_([own for own, _ in late])]
    rows = {table.name: union_all(SOURCES[table.name](new), piece_rows(table, mine)) for table in _ROWS}
    known = shared.Devices(by_process=True)
    before = shared.from_pieces(connection, mine, known, histograms=True)
    kernels = Sums.joined([before, _of_late(known, late)]).reduced()
    devices = np.array([one.id for one in known.rows], np.int64)
    return {
        "rows": {name: _summed_rows(connection, grain, bucket, name, query) for name, query in rows.items()},
        "kernels": {"device_id": devices[kernels.device].tolist() if len(kernels) else [], **_lists(kernels)},
    }


def _lists(kernels: Sums) -> dict[str, list[Any]]:
    buckets, counts = sparse(kernels.histograms or Histograms.joined(()))
    return {
        **{name: kernels.columns[i].tolist() for i, name in enumerate(SUM)},
        "ends": buckets.ends.tolist(),
        "buckets": buckets.values.tolist(),
        "counts": counts.values.tolist(),
    }


def _of_late(known: shared.Devices, late: Numbered) -> Sums:
    """The kernels of windows as sums of their devices."""
    parts = []
    for _, w in late:
        if not w.rows:
            continue
        start = w.window.start_unix_ns
        own = [known.number(shared.OfDevice(i, "", "", 0, w.process_id, start)) for i in w.devices]
        place = w.facts.columns[FACT.index("device")]
        weights = np.array([weight_of(w.window, d) for d in w.window.devices], np.float64)
        steps = np.full(len(w.facts), w.window.steps or 0, np.int64)
        numbers = np.array(own, np.int64)
        parts.append(of_windows(w.facts.columns, numbers[place], weights[place], steps, w.facts.histograms))
    return Sums.joined(parts)


def _kernels_in(connection: Connection, key: Key, found: dict[str, list[Any]], number: int) -> None:
    rows = len(found["device_id"])
    if not rows:
        return
    ends = np.array(found["ends"], np.int64)
    columns: dict[str, Any] = {
        "grain": np.full(rows, key[0]),
        "process_id": np.full(rows, key[2]),
        "bucket_unix_ns": np.full(rows, key[1]),
        "device_id": found["device_id"],
        "build": np.full(rows, number),
        **{name: found[name] for name in SUM},
        "histogram_buckets": Arrays(ends, np.array(found["buckets"], np.int64)),
        "histogram_counts": Arrays(ends, np.array(found["counts"], np.int64)),
    }
    insert(connection, "kernel_sums", columns)
