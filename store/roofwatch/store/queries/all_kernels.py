"""All kernels of a filter as sums, one row a signature, evidence, bound and model with the same peaks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from roofwatch.model.answer_rows import StatSum
from roofwatch.model.comparison_sums import KernelSums
from roofwatch.model.record import Vendor
from roofwatch.store.filter import Filter
from roofwatch.store.gather import OfDevice
from roofwatch.store.queries import roofs
from roofwatch.store.queries.described import described
from roofwatch.store.queries.gathered import gathered
from roofwatch.store.queries.memo import once
from roofwatch.store.schema import BOUNDS, EVIDENCES
from roofwatch.store.sums import COLUMN, Sums


class Told(NamedTuple):
    """Devices that are one for an answer."""

    model: str
    vendor: str
    peaks_id: int


def known(connection: Connection, f: Filter, *, spread: bool = False) -> tuple[Sums, list[Told]]:
    """All kernels of a filter, one row as ``merge`` has them."""
    return once(connection, f, "kernels", lambda: merge(*gathered(connection, f, spread=spread)))


def merge(found: Sums, of: Sequence[OfDevice]) -> tuple[Sums, list[Told]]:
    """One row a signature, evidence, bound and model with the same peaks; the rows of a signature are together."""
    told = sorted({Told(d.model, d.vendor, d.peaks_id) for d in of})
    number = np.array([told.index(Told(d.model, d.vendor, d.peaks_id)) for d in of], np.int64)
    return Sums(found.columns, number[found.device]).reduced(), told


def all_sums(connection: Connection, f: Filter) -> list[StatSum]:
    """The sums of all kernels, without histograms; those of a row are together."""
    merged, told = known(connection, f)
    wanted = set(merged.columns[0].tolist())
    roofs.ahead(connection, wanted)
    names, roofs_of_peaks = described(connection, wanted), roofs.by_peaks(connection, wanted)
    vendors = [Vendor(kind.vendor) for kind in told]
    by_kind = [roofs_of_peaks.get(kind.peaks_id, ({}, {})) for kind in told]
    kinds = merged.device.tolist()
    signature, evidence, bound, formula, total, est, step, calls, step_calls, _, _, low, high = merged.columns.tolist()
    times = [by_kind[kind][0].get(s) for kind, s in zip(kinds, signature, strict=True)]
    columns = (  # of thousands of rows: none of them is taken apart
        [names[s] for s in signature], [told[kind].model for kind in kinds], calls, total, list(map(float, est)), low,
        high, [BOUNDS[b] for b in bound], [EVIDENCES[e] for e in evidence],
        [None if ns is None else ns * n for ns, n in zip(times, calls, strict=True)],
        [by_kind[kind][1].get(s) for kind, s in zip(kinds, signature, strict=True)], repeat(None),
        [None if b < 0 else BOUNDS[b] for b in formula], [vendors[kind] for kind in kinds], step_calls, step,
    )  # fmt: skip
    return list(map(StatSum._make, zip(*columns, strict=False)))


def columns(connection: Connection, f: Filter) -> KernelSums:
    """The same as columns: where there are thousands, and none of them is looked at alone."""
    merged, told = known(connection, f)
    wanted = set(merged.columns[0].tolist())
    names, roofs_of_peaks = described(connection, wanted), roofs.by_peaks(connection, wanted)
    by_kind = [roofs_of_peaks.get(kind.peaks_id, ({}, {}))[0] for kind in told]
    signature, _, bound, _, total, _, step, calls, step_calls, *_ = merged.columns.tolist()
    times = [by_kind[kind].get(s) for kind, s in zip(merged.device.tolist(), signature, strict=True)]
    return KernelSums(
        [names[s] for s in signature], [BOUNDS[b] for b in bound], total, calls, step, step_calls,
        [None if ns is None else ns * n for ns, n in zip(times, calls, strict=True)],
    )  # fmt: skip


def roofs_ahead(connection: Connection, f: Filter) -> None:
    """Say that ``columns`` will be asked for."""
    merged, _ = known(connection, f)
    roofs.ahead(connection, set(merged.columns[0].tolist()))


def leading_peaks(connection: Connection, f: Filter) -> int | None:
    """The set of peaks by which most of the kernels' time was judged; None where there is none."""
    merged, told = known(connection, f)
    by_kind, time = np.zeros(len(told), np.int64), dict[int, int]()
    np.add.at(by_kind, merged.device, merged.columns[COLUMN["total_ns"]])
    for kind in np.unique(merged.device).tolist():
        time[told[kind].peaks_id] = time.get(told[kind].peaks_id, 0) + int(by_kind[kind])
    return max(time, key=lambda one: (time[one], one)) if time else None
