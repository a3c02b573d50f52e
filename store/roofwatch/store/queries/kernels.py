"""``top`` and ``roofline``: kernels by estimated device time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from roofwatch.model.answer_rows import StatSum, rows
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Phase, Signature, Vendor
from roofwatch.store.filter import Filter
from roofwatch.store.gather import Devices, OfDevice, from_groups, from_pieces, from_windows
from roofwatch.store.queries.coverage import cost, summary
from roofwatch.store.queries.groups import grouped
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.plan import plan, rows_of, windows_only
from roofwatch.store.queries.scope import among, device_matches, device_sets_of, owners
from roofwatch.store.rollup_sources import Conditions
from roofwatch.store.schema import BOUNDS, EVIDENCES, device_sums, devices, roofs, signatures, texts, windows
from roofwatch.store.sums import Sums

# Columns of a signature that are fields of the record as they are.
PLAIN = ("shapes", "dtypes", "arguments", "formula", "precision", "unit", "flops", "bytes", "flops_max")

Key = tuple[int, str]  # signature, device model: what a row of an answer is


@dataclass(frozen=True, slots=True)
class SignaturePart:
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
    parts = parts_of(connection, f)
    return {
        "summary": summary(connection, f),
        "cost": cost(connection, f),
        "device_models": sorted({model for _, model in parts}),
        "rows": _rows(connection, f, parts, _ranked(parts), limit),
    }


def roofline(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """Rows of the kernels that have an intensity (shares are of all), and the devices with their peaks."""
    parts = parts_of(connection, f)
    query = select(signatures.c.id).where(signatures.c.flops.is_not(None), signatures.c.bytes > 0)
    placed = set(connection.scalars(query))
    ranked = [key for key in _ranked(parts) if key[0] in placed]
    return {
        "summary": summary(connection, f),
        "cost": cost(connection, f),
        "devices": devices_with_peaks(connection, f),
        "rows": _rows(connection, f, parts, ranked, limit),
    }


def parts_of(connection: Connection, f: Filter, where: Conditions = ()) -> dict[Key, list[SignaturePart]]:
    """The sums of every row, without what describes it; ``where`` as in ``gathered``."""
    if where:
        return parts_from(*gathered(connection, f, where=where))
    return parts_from(*once(connection, f, "kernels", lambda: gathered(connection, f)))


def gathered(
    connection: Connection,
    f: Filter,
    *,
    histograms: bool = False,
    wanted: Collection[int] | None = None,
    where: Conditions = (),
    known: Devices | None = None,
) -> tuple[Sums, list[OfDevice]]:
    """The kernels of a filter, one row a device, signature, bound and evidence; of ``wanted`` signatures only.

    ``where`` limits the windows further (columns of ``windows``): then they are read one by one. ``known`` says what is
    one device; unless that is by process, hours and days may come from sums of a node or of the fleet, whose devices
    stand for all of their model, vendor and peaks.
    """
    chosen, known = windows_only(f) if where else plan(connection, f), known or Devices()
    parts = []
    if chosen.has_windows:
        own = [chosen.windows, *owners(f), *device_sets_of(f, windows.c.devices_id), *where]
        parts.append(from_windows(connection, own, device_matches(f), known, histograms=histograms, wanted=wanted))
    of = None if known.by_process or not chosen.has_pieces else grouped(connection, f, chosen)
    if of is not None:
        chosen, told = of.rest, device_matches(f)
        found = from_groups(connection, of.buckets, [of.group], told, known, histograms=histograms, wanted=wanted)
        parts.append(found)
    if chosen.has_pieces:
        own = [chosen.pieces, *owners(f), *device_matches(f)]
        parts.append(from_pieces(connection, own, known, histograms=histograms, wanted=wanted))
    return Sums.joined(parts), known.rows


def parts_from(found: Sums, of: Sequence[OfDevice]) -> dict[Key, list[SignaturePart]]:
    """The sums of rows that ``gathered`` gives; devices of one model with the same peaks are one."""
    told = sorted({(d.model, d.vendor, d.peaks_id) for d in of})
    number = np.array([told.index((d.model, d.vendor, d.peaks_id)) for d in of], np.int64)
    merged = Sums(found.columns, number[found.device]).reduced()
    parts: dict[Key, list[SignaturePart]] = defaultdict(list)
    for kind, row in zip(merged.device.tolist(), merged.columns.T.tolist(), strict=True):
        model, vendor, peaks = told[kind]
        signature, evidence, bound, formula, total, est, step, calls, step_calls, _, _, low, high = row
        parts[signature, model].append(
            SignaturePart(
                (signature, model), peaks, bound, evidence, None if formula < 0 else formula, vendor, calls, total,
                float(est), low, high, step_calls, step,
            )
        )  # fmt: skip
    return parts


def _ranked(parts: dict[Key, list[SignaturePart]]) -> list[Key]:
    """By estimated time, in the order of ``model.answer_rows.rows``."""
    return sorted(parts, key=lambda key: (-sum(p.est_ns for p in parts[key]), key))


def _rows(
    connection: Connection, f: Filter, parts: dict[Key, list[SignaturePart]], ranked: Sequence[Key], limit: int
) -> list[dict[str, Any]]:
    found = sums_of(connection, f, parts, ranked[:limit] if limit else ranked)
    whole = sum(p.est_ns for group in parts.values() for p in group)
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
    roof = roofs_of(connection, wanted)
    merged = _histograms(connection, f, wanted) if histograms else {}
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


def described(connection: Connection, wanted: set[int]) -> dict[int, Signature]:
    """Signatures by id."""
    kernel, op, module = texts.alias("kernel"), texts.alias("op"), texts.alias("module")
    s = signatures.c
    query = (
        select(s.id, kernel.c.value, op.c.value, module.c.value, s.kind, s.phase, *(s[name] for name in PLAIN))
        .join(kernel, kernel.c.id == s.kernel_id)
        .outerjoin(op, op.c.id == s.op_id)
        .outerjoin(module, module.c.id == s.module_id)
    )
    found = {}
    for identity, name, op_name, module_name, kind, phase, *rest in connection.execute(among(query, s.id, wanted)):
        plain = dict(zip(PLAIN, rest, strict=True))
        found[identity] = Signature(name, Kind(kind), op_name, Phase(phase), module_name, **plain)
    return found


def roofs_of(connection: Connection, wanted: set[int]) -> dict[tuple[int, int], tuple[float | None, float | None]]:
    """Roof time of a call, and ridge, by signature and set of peaks."""
    r = roofs.c
    query = select(r.signature_id, r.peaks_id, r.roof_ns, r.ridge)
    return {
        (s, p): (roof_ns, ridge) for s, p, roof_ns, ridge in connection.execute(among(query, r.signature_id, wanted))
    }


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
