"""Roof times and ridges of signatures, by the set of peaks of the devices that ran them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from roofwatch.store.gather import ROWS
from roofwatch.store.queries.scope import IN_LIST, among
from roofwatch.store.schema import roofs

Known = dict[int, float | None]  # by signature


def ahead(connection: Connection, wanted: set[int]) -> None:
    """Say that ``roofs_of`` will be asked, where another engine reads them meanwhile."""
    if connection.dialect.name == ROWS:
        from roofwatch.store.clickhouse import plain  # noqa: PLC0415  # an extra

        plain.roofs_ahead(connection, wanted, IN_LIST)


def roofs_of(connection: Connection, wanted: set[int]) -> dict[tuple[int, int], tuple[float | None, float | None]]:
    """Roof time of a call, and ridge, by signature and set of peaks."""
    found = _columns(connection, wanted)
    return {(s, p): (roof_ns, ridge) for s, p, roof_ns, ridge in zip(*(of.tolist() for of in found), strict=True)}


def by_peaks(connection: Connection, wanted: set[int]) -> dict[int, tuple[Known, Known]]:
    """The same of each set of peaks: roof times, and ridges. Of thousands of roofs a tuple each takes too long."""
    signature, peaks, roof_ns, ridge = _columns(connection, wanted)
    found = {}
    for one in np.unique(peaks).tolist():
        rows = peaks == one
        of, times, ridges = (column[rows].tolist() for column in (signature, roof_ns, ridge))
        found[one] = dict(zip(of, times, strict=True)), dict(zip(of, ridges, strict=True))
    return found


def _columns(connection: Connection, wanted: set[int]) -> list[Any]:
    """Signature, set of peaks, roof time of a call, ridge; None, or masked, where unknown."""
    if connection.dialect.name == ROWS:
        from roofwatch.store.clickhouse import plain  # noqa: PLC0415  # an extra

        return plain.roofs_of(connection, wanted, IN_LIST)
    r = roofs.c
    query = select(r.signature_id, r.peaks_id, r.roof_ns, r.ridge)
    rows = connection.execute(among(query, r.signature_id, wanted)).all()
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return [np.array(of, np.int64) for of in columns[:2]] + [np.array(of, object) for of in columns[2:]]
