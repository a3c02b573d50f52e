"""``compare``: two filters side by side, the same work on both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from roofwatch.model.comparison import compare as compared
from roofwatch.model.comparison_sides import PER, STEP, Counts, Side, basis
from roofwatch.model.comparison_work import TEXTS
from roofwatch.model.errors import IncompleteError, UsageError
from roofwatch.model.record import Peak, Peaks, Vendor
from roofwatch.model.timeline import TimelineSum
from roofwatch.store.filter import Asked, Filter
from roofwatch.store.queries import all_kernels, compare_windows, timeline
from roofwatch.store.queries.compare_windows import STEPLESS, Scope
from roofwatch.store.queries.coverage import figures
from roofwatch.store.queries.fresh import ahead
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.plan import plan
from roofwatch.store.queries.plan_rows import rows_of
from roofwatch.store.queries.scope import windows_of
from roofwatch.store.queries.states import chosen_states
from roofwatch.store.rollup_sources import total
from roofwatch.store.schema import device_sums, devices, windows

NAMED = 5  # device models in a sentence
PEAKS_MOST = 1000  # sets of peaks that are remembered
CHUNK = 2000  # windows named in one statement

_PEAKS: dict[int, Peaks] = {}  # by their id, which is a hash of what they are


def compare(connection: Connection, asked: Asked) -> dict[str, Any]:
    """Both sides' rows and what explains their difference.

    ``empty`` names the sides that have no windows; ``problem`` says in a sentence why there is no answer, where a side
    does not tell the unit that was asked for, or cannot be normalised.

    Raises:
        UsageError: there is no second side, an option is none, or a side ran on several device models.
    """
    per, normalise = _options(asked.options)
    if asked.other is None:
        raise UsageError("compare takes two sides: name what is on the left and what is on the right")
    sides = dict(zip(("left", "right"), compare_windows.scopes(asked.scope, asked.other), strict=True))
    for side in sides.values():
        compare_windows.ahead(connection, side)
        ahead(connection, side.bare)
        compare_windows.owners_ahead(connection, side)
    counts = {name: _counts(connection, side) for name, side in sides.items()}
    nothing: dict[str, Any] = {"empty": [], "problem": None, "summary": None, "warnings": [], "rows": []}
    empty = [name for name, found in counts.items() if not found.pairs]
    if empty:
        return nothing | {"empty": empty}
    try:
        unit = basis(counts["left"], counts["right"], per)
        for side in sides.values():
            all_kernels.roofs_ahead(connection, side.asked)
        left, right = (_side(connection, side, name, counts[name], unit) for name, side in sides.items())
        told = compared(left, right, unit, normalise=normalise, limit=asked.limit)
    except IncompleteError as error:  # on the wire it would be a failure of the store
        return nothing | {"problem": str(error)}
    if common := compare_windows.common(connection, sides["left"], sides["right"]):
        warning = {"warning": "shared", "count": common, "text": TEXTS["shared"], "scaled": False}
        told["warnings"].insert(0, warning)
    return nothing | told


def _options(given: Mapping[str, Any]) -> tuple[str | None, bool]:
    per, normalise = given.get("per"), given.get("normalise", False)
    if per is not None and per not in PER:
        raise UsageError(f"there is no unit '{per}': compare by {', '.join(PER)}")
    if not isinstance(normalise, bool):
        raise UsageError("normalise is true or false")
    return per, normalise


def _counts(connection: Connection, side: Scope) -> Counts:
    """What there is to divide by. How many windows do not tell it, only windows say that are still kept."""
    found, pairs = figures(connection, side.asked), sum(count for *_, count in _models(connection, side.asked))
    told = compare_windows.kept(connection, side).values()
    kept, stepless, silent = (sum(column) for column in zip(*told, strict=True)) if told else (0, 0, 0)
    whole = kept == (found["windows"] or 0)
    return Counts(
        windows=found["windows"] or 0,
        pairs=pairs,
        steps=found["steps"] or 0,
        calls=found["padding_batches"] or 0,
        tokens=found["padding_real_tokens"] or 0,
        stepless=stepless if whole else None,
        silent=silent if whole else None,
        python_events=found["python_events"] or 0,
    )


def _side(connection: Connection, side: Scope, name: str, counts: Counts, per: str) -> Side:
    f = side.asked
    device, vendor = _device(connection, f, name)
    models, worlds = compare_windows.models_and_worlds(connection, side)
    apart = per == STEP and bool(counts.stepless)
    return Side(
        counts=counts,
        device=device,
        vendor=vendor,
        peaks=_peaks(connection, all_kernels.leading_peaks(connection, f)),
        sums=all_kernels.columns(connection, f),
        time=_stepping(connection, f) if apart else timeline.sums(connection, f, ()).get((), TimelineSum()),
        stepless_ns=_stepless_ns(connection, f) if apart else 0,
        models=models,
        worlds=worlds,
    )


def _device(connection: Connection, f: Filter, name: str) -> tuple[str, Vendor]:
    """The one device model of a side: times of several are never merged."""
    found = _models(connection, f)
    if len(found) > 1:
        models = ", ".join(model for model, *_ in found[:NAMED]) + (" and more" if len(found) > NAMED else "")
        raise UsageError(f"the {name} side ran on several device models, choose one with device=NAME: {models}")
    model, vendor, _ = found[0]
    return model, Vendor(vendor)


def _models(connection: Connection, f: Filter) -> Sequence[tuple[str, str, int]]:
    """Device models and vendors, ascending, with how often one of theirs was in a window."""

    def find() -> Sequence[tuple[str, str, int]]:
        chosen = plan(connection, f)
        if (of := chosen_states(connection, chosen, f)) is not None:
            from roofwatch.store.clickhouse import plain  # noqa: PLC0415  # an extra

            told = plain.models(connection, of, plain.Matches(f.device, f.vendor))
            if told is not None:
                return told
        rows = rows_of(chosen, f, device_sums).c
        query = select(rows.model, rows.vendor, func.sum(rows.windows)).group_by(rows.model, rows.vendor)
        found = connection.execute(query.order_by(rows.model, rows.vendor)).all()
        return [(model, vendor, int(count or 0)) for model, vendor, count in found]

    return once(connection, f, "models", find)


def _stepping(connection: Connection, f: Filter) -> TimelineSum:
    """The timeline of the windows that tell steps."""
    found = TimelineSum()
    telling = list(connection.scalars(windows_of(f, windows.c.id).where(~STEPLESS)))
    for low in range(0, len(telling), CHUNK):
        found.merge(timeline.sums(connection, f, (), telling[low : low + CHUNK]).get((), TimelineSum()))
    return found


def _stepless_ns(connection: Connection, f: Filter) -> int:
    """Device time of the others, of all devices of each: a process runs on devices of one model."""
    return int(connection.scalar(windows_of(f, total(windows.c.device_time_ns)).where(STEPLESS)) or 0)


def _peaks(connection: Connection, leading: int | None) -> Peaks:
    """The ceilings by which most of the side's time was judged."""
    if leading is None:
        return Peaks()
    found = _PEAKS.get(leading)
    if found is None:
        text = connection.scalar(select(devices.c.peaks).where(devices.c.peaks_id == leading).limit(1))
        if text is None:
            return Peaks()
        if len(_PEAKS) >= PEAKS_MOST:
            _PEAKS.clear()
        found = _PEAKS[leading] = _peaks_of(text)
    return found


def _peaks_of(text: str) -> Peaks:
    told = json.loads(text).get("peaks") or {}
    flops = {(p, u): _peak(item) for (p, _, u), item in ((k.partition("/"), v) for k, v in told["flops"].items())}
    return Peaks(flops, _peak(told["bandwidth"]) if told.get("bandwidth") else None)


def _peak(item: Mapping[str, Any]) -> Peak:
    return Peak(float(item["value"]), str(item["source"]))
