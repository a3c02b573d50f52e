"""The sums of a side's kernels as columns: of a fleet there are thousands, and no object is made of a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from roofwatch.model.answer_rows import StatSum
from roofwatch.model.record import Bound, Signature


class KernelSums(NamedTuple):
    """Columns of ``StatSum``: a row for each signature, bound and evidence, of a file also for each device."""

    signatures: list[Signature]
    bounds: list[Bound]
    total_ns: list[int]
    calls: list[int]
    step_ns: list[int]
    step_calls: list[int]
    roof_total_ns: list[float | None]


def columns_of(sums: Iterable[StatSum]) -> KernelSums:
    """The columns of some sums."""
    rows = [(s.signature, s.bound, s.total_ns, s.calls, s.step_ns, s.step_calls, s.roof_total_ns) for s in sums]
    return KernelSums(*map(list, zip(*rows, strict=True))) if rows else KernelSums(*([] for _ in KernelSums._fields))
