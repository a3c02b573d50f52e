"""``top`` and ``roofline``: kernels by estimated device time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, select

from roofwatch.model.answer_rows import StatSum, rows
from roofwatch.model.histogram import Histogram
from roofwatch.model.record import Device, Vendor
from roofwatch.model.unmeasured import Ran, unmeasured
from roofwatch.store.blocks import Ints
from roofwatch.store.filter import Filter
from roofwatch.store.gather import OfDevice
from roofwatch.store.identity import peaks_id
from roofwatch.store.queries import roofs
from roofwatch.store.queries.all_kernels import Told, known, merge
from roofwatch.store.queries.coverage import cost, summary
from roofwatch.store.queries.described import described
from roofwatch.store.queries.fresh import ahead
from roofwatch.store.queries.gathered import gathered
from roofwatch.store.queries.plan import plan
from roofwatch.store.queries.plan_rows import rows_of
from roofwatch.store.rollup_sources import Conditions
from roofwatch.store.schema import BOUNDS, EVIDENCES, device_sums, devices, signatures
from roofwatch.store.sums import COLUMN, Sums

Key = tuple[int, str]  # signature, device model: what a row of an answer is
_NO_ROOF = (None, None)


class SignaturePart(NamedTuple):
    """Sums of one signature on one device model with the same peaks, bound and evidence."""

    key: Key
    peaks_id: int
    bound: int
    evidence: int
    formula_bound: int | None
    vendor: str
    calls: int
    total_ns: int
    est_ns: float
    min_ns: int
    max_ns: int
    step_calls: int
    step_ns: int


def top(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """Rows of all kernels; with where the devices waited, and what profiling cost."""
    ahead(connection, f)
    merged, told = known(connection, f, spread=True)
    keys, order = _ranked(merged, told)
    shown = [keys[i] for i in (order[:limit] if limit else order)]
    roofs.ahead(connection, {signature for signature, _ in shown})
    parts = _parts(_of(merged, told, shown), told)
    return {
        "summary": summary(connection, f),
        "cost": cost(connection, f),
        "device_models": sorted({told[kind].model for kind in set(merged.device.tolist())}),
        "unmeasured": _unmeasured(merged, told),
        "rows": _rows(connection, f, parts, shown, _whole(merged, told)),
    }


def _unmeasured(merged: Sums, told: Sequence[Told]) -> list[dict[str, Any]]:
    """Device models whose peaks nobody knows, with the time of their kernels."""
    times = zip(told, _est_by_device(merged, len(told)), strict=True)
    return unmeasured(_ran(*kind, ns) for kind, ns in times)


def _est_by_device(sums: Sums, kinds: int) -> list[float]:
    est = sums.columns[COLUMN["est_ns"]].astype(np.float64)
    found: list[float] = np.bincount(sums.device, est, kinds).tolist()
    return found


def _ran(model: str, vendor: str, peaks: int, est_ns: float) -> Ran:
    none = peaks_id(Device(Vendor(vendor), model))
    return Ran(model, Vendor(vendor), peaks != none, est_ns)


def unmeasured_of(connection: Connection, f: Filter) -> list[dict[str, Any]]:
    """Device models whose peaks nobody knows (``model.unmeasured``)."""
    return _unmeasured(*known(connection, f))


def unmeasured_from(found: Sums, of: Sequence[OfDevice]) -> list[dict[str, Any]]:
    """Device models whose peaks nobody knows (``model.unmeasured``), of what ``gathered`` gives."""
    return unmeasured(
        _ran(one.model, one.vendor, one.peaks_id, ns)
        for one, ns in zip(of, _est_by_device(found, len(of)), strict=True)
    )


def roofline(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """Rows of the kernels that have an intensity (shares are of all), and the devices with their peaks."""
    merged, told = known(connection, f)
    query = select(signatures.c.id).where(signatures.c.flops.is_not(None), signatures.c.bytes > 0)
    placed = set(connection.scalars(query))
    keys, order = _ranked(merged, told)
    ranked = [keys[i] for i in order if keys[i][0] in placed]
    shown = ranked[:limit] if limit else ranked
    parts = _parts(_of(merged, told, shown), told)
    return {
        "summary": summary(connection, f),
        "cost": cost(connection, f),
        "devices": devices_with_peaks(connection, f),
        "rows": _rows(connection, f, parts, shown, _whole(merged, told)),
    }


def parts_of(connection: Connection, f: Filter, where: Conditions = ()) -> dict[Key, list[SignaturePart]]:
    """The sums of every row, without what describes it; ``where`` as in ``gathered``."""
    if where:
        return parts_from(*gathered(connection, f, where=where))
    return _parts(*known(connection, f))


def parts_from(found: Sums, of: Sequence[OfDevice]) -> dict[Key, list[SignaturePart]]:
    """The sums of rows that ``gathered`` gives; devices of one model with the same peaks are one."""
    return _parts(*merge(found, of))


def _parts(merged: Sums, told: Sequence[Told]) -> dict[Key, list[SignaturePart]]:
    parts: dict[Key, list[SignaturePart]] = defaultdict(list)
    for kind, row in zip(merged.device.tolist(), merged.columns.T.tolist(), strict=True):
        model, vendor, peaks = told[kind]
        signature, evidence, bound, formula, total, est, step, calls, step_calls, _, _, low, high = row
        key = signature, model
        parts[key].append(
            SignaturePart(
                key, peaks, bound, evidence, None if formula < 0 else formula, vendor, calls, total,
                float(est), low, high, step_calls, step,
            )
        )  # fmt: skip
    return parts


def _models(told: Sequence[Told]) -> tuple[list[str], Ints]:
    """The device models, ascending, and of each kind of device which it is."""
    names = sorted({kind.model for kind in told})
    return names, np.array([names.index(kind.model) for kind in told], np.int64)


def _ranked(merged: Sums, told: Sequence[Told]) -> tuple[list[Key], list[int]]:
    """The keys of answer rows, and their order by estimated time, as ``model.answer_rows.rows`` has it."""
    if not len(merged):
        return [], []
    names, model = _models(told)
    signature, of = merged.columns[0], model[merged.device]
    order = np.lexsort((of, signature))
    signature, of = signature[order], of[order]
    begins = np.flatnonzero((np.diff(signature, prepend=-1) != 0) | (np.diff(of, prepend=-1) != 0))
    est = np.add.reduceat(merged.columns[COLUMN["est_ns"]][order].astype(np.float64), begins)
    keys = [(s, names[m]) for s, m in zip(signature[begins].tolist(), of[begins].tolist(), strict=True)]
    ranks: list[int] = np.argsort(-est, kind="stable").tolist()  # of equal ones by key, in whose order they are
    return keys, ranks


def _of(merged: Sums, told: Sequence[Told], shown: Sequence[Key]) -> Sums:
    """The rows of some keys."""
    wanted = np.array(sorted({signature for signature, _ in shown}), np.int64)
    rows = merged.where(np.isin(merged.columns[0], wanted))
    keys = set(shown)
    pairs = zip(rows.columns[0].tolist(), rows.device.tolist(), strict=True)
    return rows.where(np.array([(signature, told[kind].model) in keys for signature, kind in pairs], np.bool_))


def _whole(merged: Sums, told: Sequence[Told]) -> float:
    """The estimated time of all rows; added in one order wherever they come from, for it may be no whole float."""
    _, model = _models(told)
    order = np.lexsort((model[merged.device], merged.columns[0]))
    return float(sum(merged.columns[COLUMN["est_ns"]][order].astype(np.float64).tolist()))


def _rows(
    connection: Connection, f: Filter, parts: dict[Key, list[SignaturePart]], shown: Sequence[Key], whole: float
) -> list[dict[str, Any]]:
    found = sums_of(connection, f, parts, shown)
    return rows([one for sums in found.values() for one in sums], whole=whole)


def sums_of(
    connection: Connection,
    f: Filter,
    parts: dict[Key, list[SignaturePart]],
    shown: Sequence[Key],
    *,
    histograms: bool = True,
) -> dict[Key, list[StatSum]]:
    """The sums of some rows, with signature, roof and, where asked for, histogram (its percentiles are what costs)."""
    wanted = {key[0] for key in shown}
    names = described(connection, wanted)
    merged = _histograms(connection, f, wanted) if histograms else {}
    roof = roofs.roofs_of(connection, wanted)  # last: ``top`` asked ahead for them
    sums: dict[Key, list[StatSum]] = defaultdict(list)
    for key in shown:
        for i, p in enumerate(parts[key]):
            roof_ns, ridge = roof.get((key[0], p.peaks_id), (None, None))
            sums[key].append(
                StatSum(
                    signature=names[key[0]],
                    device=key[1],
                    calls=p.calls,
                    total_ns=p.total_ns,
                    est_ns=p.est_ns,
                    min_ns=p.min_ns,
                    max_ns=p.max_ns,
                    bound=BOUNDS[p.bound],
                    evidence=EVIDENCES[p.evidence],
                    formula_bound=None if p.formula_bound is None else BOUNDS[p.formula_bound],
                    vendor=Vendor(p.vendor),
                    step_calls=p.step_calls,
                    step_ns=p.step_ns,
                    roof_total_ns=None if roof_ns is None else roof_ns * p.calls,
                    ridge=ridge,
                    histogram=merged.get(key) if i == 0 else None,  # merged over all parts already
                )
            )
    return sums


def _histograms(connection: Connection, f: Filter, wanted: set[int]) -> dict[Key, Histogram]:
    """Histograms merged over windows: only of what is shown, since merging is what costs."""
    found, of = gathered(connection, f, histograms=True, wanted=wanted)
    if found.histograms is None:
        return {}
    pairs = zip(found.columns[0].tolist(), (of[d].model for d in found.device.tolist()), strict=True)
    numbers: dict[Key, int] = {}
    group = np.array([numbers.setdefault(key, len(numbers)) for key in pairs], np.int64)
    return dict(zip(numbers, found.histograms.merged(group, len(numbers)).each(), strict=True))


def devices_with_peaks(connection: Connection, f: Filter) -> list[dict[str, Any]]:
    """One device a set of peaks, without what tells it from its like."""
    rows = rows_of(plan(connection, f), f, device_sums)
    query = select(func.min(rows.c.device_id)).group_by(rows.c.model, rows.c.peaks_id)
    described = connection.scalars(select(devices.c.peaks).where(devices.c.id.in_(query)).order_by(devices.c.model))
    return [{**json.loads(text), "uuid": None, "index": None} for text in described]
