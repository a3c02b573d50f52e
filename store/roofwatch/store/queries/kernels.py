"""``top`` and ``roofline``: kernels by estimated device time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import CTE, Connection, and_, func, select

from roofwatch.model.answer_rows import StatSum, rows
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Phase, Signature, Vendor
from roofwatch.store.filter import Filter
from roofwatch.store.histograms import add_to
from roofwatch.store.queries.coverage import cost, summary
from roofwatch.store.queries.scope import among, devices_of
from roofwatch.store.schema import BOUNDS, EVIDENCES, devices, kernel_stats, roofs, signatures, texts

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


def parts_of(connection: Connection, f: Filter) -> dict[Key, list[SignaturePart]]:
    """The sums of every row, without what describes it."""
    scope, k = devices_of(f), kernel_stats.c
    query = (
        select(
            k.signature_id,
            scope.c.model,
            scope.c.peaks_id,
            k.bound,
            k.evidence,
            k.formula_bound,
            scope.c.vendor,
            func.sum(k.calls),
            func.sum(k.total_ns),
            func.sum(k.total_ns * scope.c.weight),
            func.min(k.min_ns),
            func.max(k.max_ns),
            func.sum(k.step_calls),
            func.sum(k.step_ns),
        )
        .select_from(scope)
        .join(kernel_stats, of_device(scope))
        .group_by(k.signature_id, scope.c.model, scope.c.vendor, scope.c.peaks_id, k.bound, k.evidence, k.formula_bound)
    )
    parts = defaultdict(list)
    for signature, model, peaks, bound, evidence, formula, vendor, *sums in connection.execute(query):
        calls, total, est, low, high, step_calls, step = sums
        parts[signature, model].append(
            SignaturePart(
                (signature, model), peaks, bound, evidence, formula, vendor, int(calls), int(total), float(est), low,
                high, int(step_calls), int(step),
            )
        )  # fmt: skip
    return parts


def of_device(scope: CTE) -> Any:
    """Joins the kernels of a scope's devices."""
    return and_(kernel_stats.c.window_id == scope.c.window_id, kernel_stats.c.device == scope.c.position)


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
    described = _signatures(connection, wanted)
    roof = roofs_of(connection, wanted)
    merged = _histograms(connection, f, wanted) if histograms else {}
    sums: dict[Key, list[StatSum]] = defaultdict(list)
    for key in shown:
        for i, p in enumerate(parts[key]):
            roof_ns, ridge = roof.get((key[0], p.peaks_id), (None, None))
            sums[key].append(
                StatSum(
                    signature=described[key[0]],
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


def _signatures(connection: Connection, wanted: set[int]) -> dict[int, Signature]:
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
    scope, k = devices_of(f), kernel_stats.c
    query = select(k.signature_id, scope.c.model, k.histogram).select_from(scope).join(kernel_stats, of_device(scope))
    buckets: dict[Key, dict[int, int]] = defaultdict(dict)
    for signature, model, blob in connection.execute(among(query, k.signature_id, wanted)):
        if signature in wanted:
            add_to(buckets[signature, model], blob)
    return {key: Histogram.from_buckets(counts) for key, counts in buckets.items()}


def devices_with_peaks(connection: Connection, f: Filter) -> list[dict[str, Any]]:
    """One device a set of peaks, without what tells it from its like."""
    scope = devices_of(f)
    query = select(func.min(scope.c.device_id)).group_by(scope.c.model, scope.c.peaks_id)
    described = connection.scalars(select(devices.c.peaks).where(devices.c.id.in_(query)).order_by(devices.c.model))
    return [{**json.loads(text), "uuid": None, "index": None} for text in described]
