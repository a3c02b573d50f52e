"""The report of a diagnosis: where the time went, the kernels worth touching, what helps each, the next command.

The keys are documented in ``docs/answers.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofwatch.model import advice_commands
from roofwatch.model.advice import MISTAKES, fixes
from roofwatch.model.advice_kernels import helps
from roofwatch.model.answer import ratio
from roofwatch.model.answer_rows import ROW_KEYS, StatSum, rows, sums_of
from roofwatch.model.diagnosis import (
    EXPOSED,
    Key,
    Part,
    Standing,
    Tally,
    Verdict,
    cannot_say,
    standing,
    tally,
    verdict,
    worth_touching,
)
from roofwatch.model.diagnosis_mistakes import Conditions, mistakes
from roofwatch.model.record import Bound, Cause, Vendor, Window
from roofwatch.model.timeline import TimelineSum, sum_of

UNKNOWN_SHOWN = 5  # of the rows whose roof is unknown: their share is what matters
# First causes of which the host's own profile tells more than any device's does.
_ON_THE_HOST = frozenset({"input", "host", "sync", "launch_bound"})

KERNEL_KEYS = (
    *ROW_KEYS, "precision", "unit", "rank", "winnable_share", "cumulative_share", "advice", "command",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Calls:
    """How often kernels of a name were called: in all, and inside the steps of the windows that hold them."""

    calls: int
    step_calls: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """What a report tells beside the kernels: whose they are and how they were recorded."""

    vendors: Mapping[str, Vendor] = field(default_factory=dict)  # by device model
    precisions: Mapping[str, frozenset[str]] = field(default_factory=dict)  # of matrix units, by device model
    calls: Mapping[str, Calls] = field(default_factory=dict)  # by kernel name
    conditions: Conditions = field(default_factory=Conditions)
    pid: int | None = None  # of the one process that it is about
    peers: Mapping[str, Any] | None = None  # of its job: waiting for late ranks told from moving bytes

    @property
    def vendor(self) -> Vendor | None:
        """The one vendor whose tools look deeper; an accelerator's before a CPU's."""
        found = sorted({v for v in self.vendors.values() if v is not Vendor.CPU})
        if found:
            return found[0] if len(found) == 1 else None
        return Vendor.CPU if Vendor.CPU in self.vendors.values() else None

    @property
    def cpu(self) -> bool:
        """Whether the CPU is the device."""
        return self.vendor is Vendor.CPU


def parts_of(sums: Sequence[StatSum]) -> list[Part]:
    """The parts of one row."""
    return [Part(s.bound, s.total_ns, s.est_ns, s.roof_total_ns) for s in sums]


def chosen(standings: Sequence[Standing], limit: int) -> tuple[list[Standing], list[Standing]]:
    """The rows that a report shows: those worth touching, and the largest of unknown roof."""
    return worth_touching(standings, limit), cannot_say(standings, UNKNOWN_SHOWN)


def report(
    time: TimelineSum, standings: Sequence[Standing], sums: Mapping[Key, Sequence[StatSum]], scene: Scene, limit: int
) -> dict[str, Any]:
    """All of an answer but ``query`` and ``coverage``; ``sums`` holds those of ``chosen`` at least."""
    counted = tally(standings)
    told = verdict(time, counted)
    worth = worth_touching(standings, limit)
    whole = sum(s.est_ns for s in standings)
    scale = (told.kernels_share or 0.0) + (told.op_overhead_share or 0.0)
    kernels = _kernels(worth, sums, scene, whole, _Scale(scale, counted))
    names = {s.key: sums[s.key][0].signature.kernel for s in standings if s.key in sums}
    return {
        "verdict": told.as_json(),
        "time": time.as_json(),
        "causes": _causes(time, told, scene),
        "unjudged": _unjudged(standings, sums, scene, told),
        "commands": _commands(told, scene, kernels),
        "warnings": [
            {**found, "text": MISTAKES[found["mistake"]]}
            for found in mistakes(scene.conditions, time, standings, names, cpu=scene.cpu)
        ],
        "rows": kernels,
    }


@dataclass(frozen=True, slots=True)
class _Scale:
    """From device time of kernels to shares of the span: ``share`` of it is all of theirs."""

    share: float
    tally: Tally

    def of_span(self, ns: float) -> float | None:
        found = ratio(ns, self.tally.kernels_ns)
        return None if found is None else found * self.share


def _causes(time: TimelineSum, told: Verdict, scene: Scene) -> list[dict[str, Any]]:
    """What is in the way, with its evidence and the usual fixes. ``share`` holds what is exposed, and op overhead."""
    parts, found = time.parts(), []
    for name, share in told.causes.items():
        cause = Cause(name)
        idle = time.causes.get(cause)
        found.append(
            {
                "cause": name,
                "share": share,
                "idle_ns": parts[name],
                "exposed_ns": parts.get(EXPOSED.get(cause, ""), 0),
                "count": idle.count if idle else 0,
                "longest_ns": idle.longest_ns if idle else 0,
                "example": idle.example if idle else None,
                "peers": dict(scene.peers) if scene.peers and cause is Cause.COMMUNICATION else None,
                "fixes": list(fixes(name, cpu=scene.cpu)),
            }
        )
    return found


def _kernels(
    worth: Sequence[Standing], sums: Mapping[Key, Sequence[StatSum]], scene: Scene, whole: float, scale: _Scale
) -> list[dict[str, Any]]:
    found, so_far = [], 0.0
    total = scale.tally.winnable_ns - scale.tally.overhead_winnable_ns
    for rank, s in enumerate(worth, 1):
        so_far += s.winnable_ns
        signature = sums[s.key][0].signature
        (row,) = rows(sums[s.key], whole=whole)
        found.append(
            {
                **row,
                "precision": signature.precision,
                "unit": signature.unit,
                "rank": rank,
                "winnable_share": scale.of_span(s.winnable_ns),
                "cumulative_share": ratio(so_far, total),
                "advice": helps(
                    signature,
                    s.bound,
                    s.fraction,
                    cpu=s.cpu,
                    precisions=scene.precisions.get(s.key[1], frozenset()),
                ),
                "command": _ranked(rank, _deeper(f"kernel{rank}", s, row, scene)),
            }
        )
    return found


def _ranked(rank: int, command: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if command is None else {**command, "rank": rank}


def _deeper(name: str, s: Standing, row: Mapping[str, Any], scene: Scene) -> dict[str, Any] | None:
    """The command that looks at one row's kernel."""
    names = {name: calls.calls for name, calls in scene.calls.items()}
    selector, selected = advice_commands.selector_of(row["kernel"], names)
    of_name = [scene.calls[name] for name in selected]
    steps = max((calls.steps for calls in of_name), default=0)
    seen = sum(calls.calls for calls in of_name)
    launch = advice_commands.launch_of(
        sum(calls.step_calls for calls in of_name) / steps if steps else None,
        max(1, seen // max(1, scene.conditions.windows)),
        row["calls"] / seen if seen else 1.0,
    )
    vendor = scene.vendors.get(s.key[1])
    return advice_commands.of_kernel(vendor, name, s.bound, selector, launch, scene.pid)


def _unjudged(
    standings: Sequence[Standing], sums: Mapping[Key, Sequence[StatSum]], scene: Scene, told: Verdict
) -> dict[str, Any]:
    """What cannot be said, and of the largest the command that measures where they stand."""
    every = cannot_say(standings)
    whole = sum(s.est_ns for s in standings)
    listed = []
    for i, s in enumerate(every[:UNKNOWN_SHOWN], 1):
        (row,) = rows(sums[s.key], whole=whole)
        listed.append({**row, "command": _deeper(f"unknown{i}", s, row, scene)})
    est = sum(s.est_ns for s in every)
    return {
        "rows_count": len(every),
        "est_ns": round(est),
        "share": ratio(est, whole),
        "span_share": told.unknown_roof_share,
        "rows": listed,
    }


def _commands(told: Verdict, scene: Scene, kernels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The host's profile where the host is in the way, the system's timeline, and each kernel's."""
    graphs = (scene.conditions.graph_loose_share or 0.0) > 0
    timeline = advice_commands.of_timeline(scene.vendor, graphs=graphs)
    host = advice_commands.of_host(scene.pid) if told.first_cause in _ON_THE_HOST or scene.cpu else None
    own = [row["command"] for row in kernels]
    found = [*([host, timeline] if told.first_cause == str(Cause.INPUT) else [timeline, host]), *own]
    return [one for one in found if one is not None]


def of_window(window: Window, conditions: Conditions, limit: int) -> dict[str, Any]:
    """The report of one window that is not in a store."""
    grouped: dict[Key, list[StatSum]] = {}
    for s in sums_of(window):
        grouped.setdefault((s.signature.id, s.device), []).append(s)
    devices = {d.device.model: d.device for d in window.devices}
    vendors = {model: device.vendor for model, device in devices.items()}
    standings = [standing(k, parts_of(g), cpu=vendors.get(k[1]) is Vendor.CPU) for k, g in grouped.items()]
    precisions = {
        model: frozenset(precision for precision, unit in device.peaks.flops if unit == "matrix")
        for model, device in devices.items()
    }
    calls: dict[str, Calls] = {}
    for stat in window.kernels:
        if stat.bound in {Bound.COPY, Bound.COMMUNICATION}:
            continue
        before = calls.get(stat.signature.kernel, Calls(0))
        calls[stat.signature.kernel] = Calls(
            before.calls + stat.calls, before.step_calls + stat.step_calls, window.steps or 0
        )
    scene = Scene(vendors, precisions, calls, conditions)  # its process has ended, most likely: no pid
    return report(sum_of(window), standings, grouped, scene, limit)
