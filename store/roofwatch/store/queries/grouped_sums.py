"""``top --by``: rows of kernels added up by cell: a group, or a group in one stretch of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from roofwatch.model.grouping import GroupSum
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Phase
from roofwatch.store.blocks import Ints
from roofwatch.store.queries.grouped_rows import Floats, Known, Laid
from roofwatch.store.schema import BOUND_CODES, BOUNDS, EVIDENCES

_KINDS, _PHASES = list(Kind), list(Phase)
Roofs = Mapping[tuple[int, int], tuple[float | None, float | None]]  # (signature, peaks) → roof of a call in ns, ridge


def summed(
    rows: Laid, cell: Ints, histograms: Sequence[Histogram], known: Mapping[int, Known], roofs: Roofs
) -> list[GroupSum]:
    """One sum a cell, as many as there are histograms; each has a row."""
    cells = len(histograms)
    begins = np.searchsorted(np.sort(cell), np.arange(cells))
    order = np.argsort(cell, kind="stable")
    figures = {
        "calls": np.add.reduceat(rows.column("calls")[order], begins),
        "total_ns": np.add.reduceat(rows.column("total_ns")[order], begins),
        "min_ns": np.minimum.reduceat(rows.column("min_ns")[order], begins),
        "max_ns": np.maximum.reduceat(rows.column("max_ns")[order], begins),
        "est_ns": _added(cell, rows.est, cells),
        **_roofed(rows, cell, cells, _roof_ns(rows, roofs)),
    }
    parts = _parts(rows, cell, cells, known)
    columns = [values.tolist() for values in figures.values()]
    plain: list[dict[str, Any]] = [dict(zip(figures, values, strict=True)) for values in zip(*columns, strict=True)]
    models = [rows.groups[int(group)].model for group in rows.group[order[begins]]]
    return [
        GroupSum(
            device=models[i],
            histogram=histograms[i],
            **plain[i],
            **parts[i],
        )
        for i in range(cells)
    ]


def _roof_ns(rows: Laid, roofs: Roofs) -> Floats:
    """The roof of a call of each row; NaN where unknown."""
    peaks, of = np.unique(rows.peaks, return_inverse=True)
    ids, at = np.unique(rows.signature, return_inverse=True)
    pairs, inverse = np.unique(at * len(peaks) + of, return_inverse=True)
    named = [(int(ids[pair // len(peaks)]), int(peaks[pair % len(peaks)])) for pair in pairs.tolist()]
    told = [roofs.get(pair, (None, None))[0] for pair in named]
    found: Floats = np.array([np.nan if roof is None else roof for roof in told])[inverse]
    return found


def _roofed(rows: Laid, cell: Ints, cells: int, roof_ns: Floats) -> dict[str, npt.NDArray[Any]]:
    """What needs each signature by itself, as ``answer_rows.rows`` has it: its roof fraction, and what it could win."""
    signatures, at = np.unique(rows.signature, return_inverse=True)
    kernels, kernel = np.unique(cell * len(signatures) + at, return_inverse=True)
    of, its_cell = len(kernels), kernels // len(signatures)
    known = ~np.isnan(roof_ns)
    attainable = _added(kernel, np.where(known, roof_ns, 0.0) * rows.column("calls"), of)
    measured = _added(kernel, np.where(known, rows.column("total_ns"), 0.0), of)
    est = _added(kernel, np.where(known, rows.est, 0.0), of)
    judged = (measured > 0) & ~_on_the_host(rows, known, kernel, of)
    fraction: Floats = np.divide(attainable, measured, out=np.zeros(of), where=judged)

    def of_cells(values: Floats) -> Floats:
        return _added(its_cell, np.where(judged, values, 0.0), cells)

    return {
        "signatures": np.bincount(its_cell, minlength=cells),
        "roofed_ns": of_cells(est),
        "attainable_ns": of_cells(est * fraction),
        "winnable_ns": of_cells(est * np.maximum(0.0, 1.0 - fraction)),
    }


def _added(cell: Ints, values: Floats, cells: int) -> Floats:
    found: Floats = np.bincount(cell, values, cells).astype(np.float64)
    return found


def _on_the_host(rows: Laid, known: npt.NDArray[np.bool_], kernel: Ints, of: int) -> npt.NDArray[np.bool_]:
    """Whether a kernel is work of the host, which has no roof, as its leading part has it (``answer_rows.leading``)."""
    order = np.lexsort((-rows.column("total_ns"), ~known, kernel))
    leading = order[np.searchsorted(kernel[order], np.arange(of))]
    host: npt.NDArray[np.bool_] = rows.column("bound")[leading] == BOUND_CODES[Bound.HOST]
    return host


def _parts(rows: Laid, cell: Ints, cells: int, known: Mapping[int, Known]) -> list[dict[str, Any]]:
    """Of each cell the estimated time by bound, evidence, kind and phase."""
    ids, at = np.unique(rows.signature, return_inverse=True)
    kind = np.array([_KINDS.index(known[i].kind) for i in ids.tolist()])[at]
    phase = np.array([_PHASES.index(known[i].phase) for i in ids.tolist()])[at]
    bounds, evidences = ([names[i] for i in range(len(names))] for names in (BOUNDS, EVIDENCES))
    by = {
        "bounds": _by(rows.est, cell, cells, rows.column("bound"), bounds),
        "evidences": _by(rows.est, cell, cells, rows.column("evidence"), evidences),
        "kinds": _by(rows.est, cell, cells, kind, _KINDS),
        "phases": _by(rows.est, cell, cells, phase, _PHASES),
    }
    return [{name: found[i] for name, found in by.items()} for i in range(cells)]


def _by(est: Floats, cell: Ints, cells: int, code: Ints, names: Sequence[StrEnum]) -> list[dict[StrEnum, float]]:
    found: list[dict[StrEnum, float]] = [{} for _ in range(cells)]
    pairs, inverse = np.unique(cell * len(names) + code, return_inverse=True)
    for pair, value in zip(pairs.tolist(), np.bincount(inverse, est).tolist(), strict=True):
        of, which = divmod(pair, len(names))
        found[of][names[which]] = value
    return found
