"""``diagnose``: the funnel as a report, from what a filter means."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from roofwatch.model.answer import cost_share, ratio
from roofwatch.model.diagnosis import Key, Part, Standing, standing
from roofwatch.model.diagnosis_mistakes import Conditions
from roofwatch.model.diagnosis_report import Calls, Scene, chosen, is_training, report
from roofwatch.model.record import Padding, Phase, Trigger, Vendor
from roofwatch.model.timeline import TimelineSum
from roofwatch.store.days import came
from roofwatch.store.filter import Filter
from roofwatch.store.gather import OfDevice
from roofwatch.store.queries import kernels, peers, roofs
from roofwatch.store.queries.coverage import cost, coverage, figures
from roofwatch.store.queries.gathered import gathered
from roofwatch.store.queries.scope import among, windows_of
from roofwatch.store.queries.timeline import sums
from roofwatch.store.schema import BOUNDS, NO_KERNELS, processes, signatures, texts, windows
from roofwatch.store.sums import COLUMN, Sums

PEERS_MOST = peers.Most(windows=200, collectives=6_000)  # the latest: 0.05 s, and who is late now counts
SILENT_NS, SILENT_WINDOWS = 180_000_000_000, 2  # without a window: then its pid is nothing to attach to
INTERVAL_MOST_NS = 600_000_000_000  # that is reckoned with
UID_DIGITS = 12  # of a window's uid in a command: enough among billions
_TAKEN = windows.c.trigger != Trigger.IMPORTED  # by an agent
COMMUNICATING = 0.05  # of the span: below it nobody needs to know who was late, and to find out takes seconds


def diagnose(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """The report; ``limit`` kernels are worth a row."""
    found, of = gathered(connection, f, spread=True)
    parts = kernels.parts_from(found, of)
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
        calls=_calls(connection, found, of, shown),
        conditions=_conditions(connection, f, kernels.unmeasured_from(found, of)),
        training=is_training(_phases(connection, parts)),
        pid=_pid(connection, f),
        peers=_peers(connection, f, time),
        source=_latest(connection, f) if Vendor.ASCEND in vendors.values() else None,
    )
    return report(time, standings, kernels.sums_of(connection, f, parts, shown), scene, limit)


def _latest(connection: Connection, f: Filter) -> str | None:
    """The uid of the latest window, as far as a command needs it."""
    latest = windows_of(f, windows.c.uid).order_by(windows.c.start_unix_ns.desc(), came(windows.c.id).desc()).limit(1)
    uid = connection.execute(latest).scalar()
    return None if uid is None else bytes(uid).hex()[:UID_DIGITS]


def _standings(
    connection: Connection, parts: dict[Key, list[kernels.SignaturePart]], vendors: dict[str, Vendor]
) -> list[Standing]:
    roof = roofs.roofs_of(connection, {key[0] for key in parts})
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


def _calls(connection: Connection, found: Sums, of: Sequence[OfDevice], shown: Collection[Key]) -> dict[str, Calls]:
    """Calls of every kernel by its name, on the device models of the rows that are shown."""
    models = {key[1] for key in shown}
    wanted = np.array([device.model in models for device in of], np.bool_)
    rows = found.where(wanted[found.device] & ~np.isin(found.columns[COLUMN["bound"]], NO_KERNELS))
    names = _kernel_names(connection, set(rows.columns[0].tolist()))
    calls: dict[str, Calls] = {}
    columns = [rows.columns[COLUMN[name]].tolist() for name in ("signature_id", "calls", "stepping_calls", "steps")]
    for signature, count, inside, steps in zip(*columns, strict=True):
        before = calls.get(names[signature], Calls(0))
        calls[names[signature]] = Calls(before.calls + count, before.step_calls + inside, before.steps + steps)
    return calls


def _kernel_names(connection: Connection, of: set[int]) -> dict[int, str]:
    s = signatures.c
    query = select(s.id, texts.c.value).join(texts, texts.c.id == s.kernel_id)
    return {row.id: row.value for row in connection.execute(among(query, s.id, of))}


def _conditions(connection: Connection, f: Filter, unmeasured: list[dict[str, Any]]) -> Conditions:
    """How the windows were taken."""
    found = figures(connection, f)
    seen, lost = coverage(connection, f), cost(connection, f)
    padding = ("batches", "real_tokens", "padded_tokens", "real_squared", "padded_squared")
    return Conditions(
        windows=found["windows"] or 0,
        steps=found["steps"],
        early_windows=found["early_windows"] or 0,
        python_events=found["python_events"] or 0,
        events=found["events_read"] or 0,
        waits=found["waits"],
        wait_ns=found["wait_ns"],
        longest_wait_ns=found["longest_wait_ns"],
        shapeless_windows=found["shapeless_windows"] or 0,
        opless_windows=found["opless_windows"] or 0,
        backlog_share=ratio(seen.backlog_ns, seen.device_time_ns),
        graph_share=ratio(seen.graph_ns, seen.device_time_ns),
        padding=_padding([found[f"padding_{name}"] for name in padding]),
        cost_share=cost_share(lost),
        cost_windows=lost["windows"],
        graph_loose_share=ratio(seen.graph_ns - seen.graph_attributed_ns, seen.device_time_ns),
        unmeasured=unmeasured,
        live=_live(connection, f),
    )


def _phases(connection: Connection, of: Collection[Key]) -> set[Phase]:
    """The phases that any kernel was launched in."""
    s, wanted = signatures.c, {key[0] for key in of}
    found = connection.execute(among(select(s.id, s.phase), s.id, wanted))
    return {Phase(phase) for signature, phase in found if signature in wanted}


def _pid(connection: Connection, f: Filter) -> int | None:
    """The one process that the filter means, while it may be running; None for several, a file's, or one long silent.

    No agent tells that a process ended: another may have its pid by now.
    """
    last, every = func.max(windows.c.start_unix_ns), func.max(windows.c.interval_ns)
    taken = windows_of(f, processes.c.pid, last, every).where(_TAKEN)
    found = connection.execute(taken.group_by(processes.c.id, processes.c.pid).limit(2)).all()
    if len(found) != 1:
        return None
    pid, last_unix_ns, interval_ns = found[0]
    silent_ns = max(SILENT_NS, SILENT_WINDOWS * min(interval_ns or 0, INTERVAL_MOST_NS))
    return int(pid) if pid and last_unix_ns >= time.time_ns() - silent_ns else None


def _live(connection: Connection, f: Filter) -> bool:
    """Whether an agent took any of the windows."""
    return bool(connection.execute(windows_of(f, windows.c.id).where(_TAKEN).limit(1)).all())


def _peers(connection: Connection, f: Filter, time: TimelineSum) -> dict[str, Any] | None:
    """The job whose ranks waited longest for each other, where communication is in the way and ranks were seen."""
    shares = time.shares()
    if (shares["communication"] or 0.0) + (shares["exposed_communication"] or 0.0) < COMMUNICATING:
        return None
    jobs = peers.peers(connection, f, most=PEERS_MOST)["jobs"]
    return jobs[0] if jobs and jobs[0]["matched_share"] else None


def _padding(sums: Sequence[int | None]) -> Padding | None:
    if any(figure is None for figure in sums):
        return None
    batches, real, padded, real_squared, padded_squared = (figure or 0 for figure in sums)
    return Padding(batches, real, padded, real_squared, padded_squared)
