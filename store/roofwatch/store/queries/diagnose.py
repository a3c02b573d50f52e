"""``diagnose``: the funnel as a report, from what a filter means."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, and_, case, func, select

from roofwatch.model.answer import ratio
from roofwatch.model.diagnosis import Key, Part, Standing, standing
from roofwatch.model.diagnosis_mistakes import EARLY_STEPS, Conditions
from roofwatch.model.diagnosis_report import Calls, Scene, chosen, is_training, report
from roofwatch.model.record import Bound, Padding, Phase, Trigger, Vendor
from roofwatch.model.timeline import TimelineSum
from roofwatch.store.filter import Filter
from roofwatch.store.queries import kernels, peers
from roofwatch.store.queries.coverage import cost, coverage
from roofwatch.store.queries.scope import devices_of, windows_of
from roofwatch.store.queries.timeline import sums
from roofwatch.store.schema import BOUNDS, kernel_stats, processes, signatures, texts, windows

COMMUNICATING = 0.05  # of the span: below it nobody needs to know who was late, and to find out takes seconds
_NO_KERNELS = [code for code, bound in BOUNDS.items() if bound in {Bound.COPY, Bound.COMMUNICATION}]


def diagnose(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """The report; ``limit`` kernels are worth a row."""
    parts = kernels.parts_of(connection, f)
    devices = kernels.devices_with_peaks(connection, f)
    vendors = {device["model"]: Vendor(device["vendor"]) for device in devices}
    standings = _standings(connection, parts, vendors)
    worth, unknown = chosen(standings, limit)
    largest = max(standings, key=lambda s: s.est_ns, default=None)
    shown = list(dict.fromkeys(s.key for s in (*worth, *unknown, *([largest] if largest else []))))
    time = sums(connection, f, ()).get((), TimelineSum())
    scene = Scene(
        vendors=vendors,
        precisions=_precisions(devices),
        calls=_calls(connection, f, shown),
        conditions=_conditions(connection, f),
        training=is_training(_phases(connection, f)),
        pid=_pid(connection, f),
        peers=_peers(connection, f, time),
    )
    return report(time, standings, kernels.sums_of(connection, f, parts, shown), scene, limit)


def _standings(
    connection: Connection, parts: dict[Key, list[kernels.SignaturePart]], vendors: dict[str, Vendor]
) -> list[Standing]:
    roof = kernels.roofs_of(connection, {key[0] for key in parts})
    found = []
    for key, group in parts.items():
        told = []
        for p in group:
            roof_ns, _ = roof.get((key[0], p.peaks_id), (None, None))
            told.append(Part(BOUNDS[p.bound], p.total_ns, p.est_ns, None if roof_ns is None else roof_ns * p.calls))
        found.append(standing(key, told, cpu=vendors.get(key[1]) is Vendor.CPU))
    return found


def _precisions(devices: list[dict[str, Any]]) -> dict[str, frozenset[str]]:
    return {
        device["model"]: frozenset(
            precision for precision, _, unit in (name.partition("/") for name in device["peaks"]["flops"])
            if unit == "matrix"
        )
        for device in devices
    }  # fmt: skip


def _calls(connection: Connection, f: Filter, shown: Collection[Key]) -> dict[str, Calls]:
    """Calls of every kernel by its name, on the device models of the rows that are shown."""
    scope, k, s, w = devices_of(f), kernel_stats.c, signatures.c, windows.c
    models = {key[1] for key in shown}
    by_window = (
        select(
            s.kernel_id,
            k.window_id,
            func.sum(k.calls).label("calls"),
            func.sum(k.step_calls).label("step_calls"),
        )
        .select_from(scope)
        .join(kernel_stats, kernels.of_device(scope))
        .join(signatures, s.id == k.signature_id)
        .where(scope.c.model.in_(models), k.bound.not_in(_NO_KERNELS))
        .group_by(s.kernel_id, k.window_id)
        .subquery()
    )
    b = by_window.c
    stepping = w.steps > 0
    query = (
        select(
            texts.c.value,
            func.sum(b.calls),
            func.sum(case((stepping, b.step_calls), else_=0)),
            func.sum(case((stepping, w.steps), else_=0)),
        )
        .select_from(by_window)
        .join(windows, w.id == b.window_id)
        .join(texts, texts.c.id == b.kernel_id)
        .group_by(texts.c.value)
    )
    return {
        name: Calls(int(calls), int(inside), int(steps)) for name, calls, inside, steps in connection.execute(query)
    }


def _conditions(connection: Connection, f: Filter) -> Conditions:
    """How the windows were taken."""
    w = windows.c
    early = and_(w.first_step.is_not(None), w.first_step < EARLY_STEPS)
    sums_of = (w.padding_batches, w.padding_real_tokens, w.padding_padded_tokens, w.padding_real_squared,
               w.padding_padded_squared)  # fmt: skip
    unclear = 2 * w.classified_ns < w.classifiable_ns
    shapeless = case((and_(unclear, w.has_host_events, ~w.shapes_recorded), 1))
    without = (func.count(shapeless), func.count(case((and_(unclear, ~w.has_host_events), 1))))
    waited = (func.sum(w.waits), func.sum(w.wait_ns), func.max(w.longest_wait_ns))
    recorded = (func.sum(w.python_events), func.sum(w.events_read))
    count, steps, started, shapes, ops, waits, wait_ns, longest, python, events, *padding = connection.execute(
        windows_of(
            f, func.count(), func.sum(w.steps), func.count(case((early, 1))), *without, *waited, *recorded,
            *map(func.sum, sums_of),
        )
    ).one()  # fmt: skip
    seen = coverage(connection, f)
    known = [None if figure is None else int(figure) for figure in padding]
    return Conditions(
        windows=count,
        steps=None if steps is None else int(steps),
        early_windows=started,
        python_events=int(python or 0),
        events=int(events or 0),
        waits=_known(waits),
        wait_ns=_known(wait_ns),
        longest_wait_ns=_known(longest),
        shapeless_windows=shapes,
        opless_windows=ops,
        backlog_share=ratio(seen.backlog_ns, seen.device_time_ns),
        graph_share=ratio(seen.graph_ns, seen.device_time_ns),
        padding=_padding(known),
        cost_share=cost(connection, f)["share"],
        graph_loose_share=ratio(seen.graph_ns - seen.graph_attributed_ns, seen.device_time_ns),
    )


def _known(figure: Any) -> int | None:
    return None if figure is None else int(figure)


def _phases(connection: Connection, f: Filter) -> set[Phase]:
    """The phases that any kernel was launched in."""
    scope = devices_of(f)
    query = (
        select(signatures.c.phase)
        .distinct()
        .select_from(scope)
        .join(kernel_stats, kernels.of_device(scope))
        .join(signatures, signatures.c.id == kernel_stats.c.signature_id)
    )
    return {Phase(phase) for phase in connection.scalars(query)}


def _pid(connection: Connection, f: Filter) -> int | None:
    """The one process that the filter means; None where it means several, or a file's, which has ended."""
    live = windows_of(f, processes.c.pid).where(windows.c.trigger != Trigger.IMPORTED)
    pids = connection.scalars(live.group_by(processes.c.id, processes.c.pid).limit(2)).all()
    return int(pids[0]) if len(pids) == 1 and pids[0] else None


def _peers(connection: Connection, f: Filter, time: TimelineSum) -> dict[str, Any] | None:
    """The job whose ranks waited longest for each other, where communication is in the way and ranks were seen."""
    shares = time.shares()
    if (shares["communication"] or 0.0) + (shares["exposed_communication"] or 0.0) < COMMUNICATING:
        return None
    jobs = peers.peers(connection, f)["jobs"]
    return jobs[0] if jobs and jobs[0]["matched_share"] else None


def _padding(sums: Sequence[int | None]) -> Padding | None:
    if any(figure is None for figure in sums):
        return None
    batches, real, padded, real_squared, padded_squared = (figure or 0 for figure in sums)
    return Padding(batches, real, padded, real_squared, padded_squared)
