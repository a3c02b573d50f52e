"""``compare``: two filters side by side, the same work on both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, or_, select

from roofwatch.model.comparison import compare as compared
from roofwatch.model.comparison_sides import PER, STEP, Counts, Side, basis
from roofwatch.model.comparison_work import TEXTS
from roofwatch.model.errors import IncompleteError, UsageError
from roofwatch.model.record import Peak, Peaks, Vendor
from roofwatch.model.timeline import TimelineSum
from roofwatch.store.filter import Asked, Filter
from roofwatch.store.queries import kernels, timeline
from roofwatch.store.queries.coverage import figures
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.plan import plain_rows, plan, rows_of
from roofwatch.store.queries.regression_windows import shared
from roofwatch.store.queries.scope import IN_LIST, windows_of
from roofwatch.store.rollup_sources import total
from roofwatch.store.schema import device_sums, devices, processes, windows

NAMED = 5  # device models in a sentence
CHUNK = 2000  # windows named in one statement

_STEPLESS = or_(windows.c.steps.is_(None), windows.c.steps <= 0)
_SILENT = or_(windows.c.padding_batches.is_(None), windows.c.padding_batches <= 0)


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
    scopes = {"left": asked.scope, "right": asked.other}
    counts = {name: _counts(connection, f) for name, f in scopes.items()}
    nothing: dict[str, Any] = {"empty": [], "problem": None, "summary": None, "warnings": [], "rows": []}
    empty = [name for name, found in counts.items() if not found.pairs]
    if empty:
        return nothing | {"empty": empty}
    try:
        unit = basis(counts["left"], counts["right"], per)
        left, right = (_side(connection, f, name, counts[name], unit) for name, f in scopes.items())
        told = compared(left, right, unit, normalise=normalise, limit=asked.limit)
    except IncompleteError as error:  # on the wire it would be a failure of the store
        return nothing | {"problem": str(error)}
    if common := shared(connection, asked.scope, asked.other):
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


def _counts(connection: Connection, f: Filter) -> Counts:
    """What there is to divide by. How many windows do not tell it, only windows say that are still kept."""
    found = figures(connection, f)
    rows = plain_rows(plan(connection, f), f, device_sums)
    pairs = connection.scalar(select(func.sum(rows.c.windows)))
    told = _kept(connection, f).values()
    kept, stepless, silent = (sum(column) for column in zip(*told, strict=True)) if told else (0, 0, 0)
    whole = kept == (found["windows"] or 0)
    return Counts(
        windows=found["windows"] or 0,
        pairs=int(pairs or 0),
        steps=found["steps"] or 0,
        calls=found["padding_batches"] or 0,
        tokens=found["padding_real_tokens"] or 0,
        stepless=stepless if whole else None,
        silent=silent if whole else None,
        python_events=found["python_events"] or 0,
    )


def _kept(connection: Connection, f: Filter) -> dict[int, tuple[int, int, int]]:
    """Of each process the windows that are still kept: all, those without steps, those that tell no padding."""

    def find() -> dict[int, tuple[int, int, int]]:
        owner = windows.c.process_id
        sums = (func.sum(case((one, 1), else_=0)) for one in (_STEPLESS, _SILENT))
        rows = connection.execute(windows_of(f, owner, func.count(), *sums).group_by(owner))
        return {process: (count, int(stepless), int(silent)) for process, count, stepless, silent in rows}

    return once(connection, f, "kept", find)


def _side(connection: Connection, f: Filter, name: str, counts: Counts, per: str) -> Side:
    device, vendor = _device(connection, f, name)
    apart = per == STEP and bool(counts.stepless)
    return Side(
        counts=counts,
        device=device,
        vendor=vendor,
        peaks=_peaks(connection, kernels.leading_peaks(connection, f)),
        sums=kernels.all_sums(connection, f),
        time=_stepping(connection, f) if apart else timeline.sums(connection, f, ()).get((), TimelineSum()),
        stepless_ns=_stepless_ns(connection, f) if apart else 0,
        models=frozenset(_distinct(connection, f, processes.c.model)),
        worlds=frozenset(_distinct(connection, f, processes.c.world_size)),
    )


def _device(connection: Connection, f: Filter, name: str) -> tuple[str, Vendor]:
    """The one device model of a side: times of several are never merged."""
    rows = rows_of(plan(connection, f), f, device_sums).c
    found = connection.execute(select(rows.model, rows.vendor).distinct().order_by(rows.model)).all()
    if len(found) > 1:
        models = ", ".join(model for model, _ in found[:NAMED]) + (" and more" if len(found) > NAMED else "")
        raise UsageError(f"the {name} side ran on several device models, choose one with device=NAME: {models}")
    return found[0].model, Vendor(found[0].vendor)


def _distinct(connection: Connection, f: Filter, column: ColumnElement[Any]) -> set[Any]:
    """What the processes that have windows tell."""
    of, found = list(_kept(connection, f)), set[Any]()
    for low in range(0, len(of), IN_LIST):
        some = processes.c.id.in_(of[low : low + IN_LIST])
        found.update(connection.scalars(select(column).where(some, column.is_not(None)).distinct()))
    return found


def _stepping(connection: Connection, f: Filter) -> TimelineSum:
    """The timeline of the windows that tell steps."""
    found = TimelineSum()
    telling = list(connection.scalars(windows_of(f, windows.c.id).where(~_STEPLESS)))
    for low in range(0, len(telling), CHUNK):
        found.merge(timeline.sums(connection, f, (), telling[low : low + CHUNK]).get((), TimelineSum()))
    return found


def _stepless_ns(connection: Connection, f: Filter) -> int:
    """Device time of the others, of all devices of each: a process runs on devices of one model."""
    return int(connection.scalar(windows_of(f, total(windows.c.device_time_ns)).where(_STEPLESS)) or 0)


def _peaks(connection: Connection, leading: int | None) -> Peaks:
    """The ceilings by which most of the side's time was judged."""
    if leading is None:
        return Peaks()
    text = connection.scalar(select(devices.c.peaks).where(devices.c.peaks_id == leading).limit(1))
    told = json.loads(text or "{}").get("peaks") or {}
    flops = {(p, u): _peak(item) for (p, _, u), item in ((k.partition("/"), v) for k, v in told["flops"].items())}
    return Peaks(flops, _peak(told["bandwidth"]) if told.get("bandwidth") else None)


def _peak(item: Mapping[str, Any]) -> Peak:
    return Peak(float(item["value"]), str(item["source"]))
