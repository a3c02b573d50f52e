"""Kernels of hours and days that are known one by one (``states.py``), each by a statement as plain as can be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection

from roofwatch.store.blocks import SUM
from roofwatch.store.clickhouse import reading
from roofwatch.store.clickhouse.devices import devices_meant
from roofwatch.store.clickhouse.gather import FEW, alike_devices, sums_from
from roofwatch.store.clickhouse.native import Arrays
from roofwatch.store.clickhouse.plain import Matches
from roofwatch.store.clickhouse.reading import ALONE, kept
from roofwatch.store.clickhouse.spreads import SPREAD
from roofwatch.store.clickhouse.states import States
from roofwatch.store.gather import Devices, Models
from roofwatch.store.sums import Sums

PIECES_MOST = 4096  # that are told by their bucket and builds
READ_MOST = 20_000  # kernels of pieces, of each device one, that are read as they are
_APART = "signature_id, evidence, bound, formula_bound"
_ADDED = (
    f"{_APART}, sum(total_ns), toInt64(least(sum(toFloat64(est_ns)), {float(1 << 62)!r})), sum(step_ns), sum(calls), "
    "sum(step_calls), sum(stepping_calls), sum(steps), min(min_ns), max(max_ns)"
)


def from_states(
    connection: Connection,
    of: States,
    matches: Matches,
    known: Devices,
    *,
    histograms: bool = False,
    wanted: Collection[int] | None = None,
    spread: bool = False,
) -> Sums | None:
    """As ``gather.from_pieces``, of pieces that are known one by one, all that their owners have of a bucket.

    None where that does not tell which rows are meant, or there are many. ``spread``: histograms will be asked for,
    too.
    """
    asked = _of_states(of, wanted, histograms=histograms, spread=spread) if type(known) is Models else None
    if asked is None:
        return None
    found = kept(connection, *asked, of.told())
    if matches and len(found["device_id"]):
        there = np.unique(found["device_id"]).tolist()
        meant = devices_meant(connection, there, matches.model, matches.vendor)
        found = _where(found, np.isin(found["device_id"], np.fromiter(meant, np.int64, len(meant))))
    if len(of) <= FEW and wanted is not None:  # before histograms are made of it
        found = _where(found, np.isin(found["signature_id"], np.fromiter(wanted, np.int64, len(wanted))))
    nothing = np.zeros(len(found["device_id"]), np.int64)
    found = {**found, "process_id": nothing, "at_unix_ns": nothing}
    return sums_from(connection, found, known, None, histograms=histograms)


def ahead(connection: Connection, of: States) -> None:
    """Ask for what ``from_states`` reads of all kernels, with ``spread``: while it is sent what else is asked for."""
    if (asked := _of_states(of, None, histograms=False, spread=True)) is not None:
        reading.ahead(connection, *asked, of.told())


def _of_states(
    of: States, wanted: Collection[int] | None, *, histograms: bool, spread: bool
) -> tuple[str, Sequence[str]] | None:
    """The statement of ``from_states``, and its columns."""
    counting, few = of.counting(), len(of) <= FEW
    if counting is None or not (few or _is_little(len(of), wanted, histograms=histograms)):
        return None
    names = ("device_id", *SUM, *(SPREAD if histograms or (few and spread) else ()))
    read = f"SELECT {', '.join(names)} FROM kernel_sums WHERE {counting}"  # noqa: S608 - our own words
    if few:
        return f"{read} {ALONE}", names
    if wanted is not None:
        return f"{read} AND signature_id IN ({','.join(map(str, sorted(wanted)))})", names
    alike = alike_devices()
    kind = f"transform(device_id, {', '.join(alike)}, device_id)" if alike else "device_id"
    return f"SELECT {kind}, {_ADDED} FROM kernel_sums WHERE {counting} GROUP BY {kind}, {_APART}", names  # noqa: S608


def _is_little(pieces: int, wanted: Collection[int] | None, *, histograms: bool) -> bool:
    """Whether the engine adds up what is read, or it is of a few kernels."""
    if pieces > PIECES_MOST:
        return False
    return not histograms if wanted is None else pieces * len(wanted) <= READ_MOST


def _where(found: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: column.where(rows) if isinstance(column, Arrays) else column[rows] for name, column in found.items()}
