"""The report of a diagnosis: where the time went, the kernels worth touching, what helps each, the next command.

The keys are documented in ``docs/answers.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from roofwatch.model import advice_commands
from roofwatch.model.advice import MISTAKES
from roofwatch.model.advice_causes import Wanted, fixes
from roofwatch.model.advice_kernels import helps
from roofwatch.model.advice_vendors import in_words_of
from roofwatch.model.answer import ratio
from roofwatch.model.answer_rows import ROW_KEYS, StatSum, rows, sums_of
from roofwatch.model.diagnosis import (
    DISPATCH,
    EXPOSED,
    Key,
    Part,
    Standing,
    Tally,
    Verdict,
    cannot_say,
    share_of_ns,
    standing,
    tally,
    verdict,
    worth_touching,
)
from roofwatch.model.diagnosis_mistakes import Conditions, mistakes
from roofwatch.model.histogram import Histogram
from roofwatch.model.record import Bound, Cause, Phase, Vendor, Window
from roofwatch.model.timeline import TimelineSum, sum_of

SLOW = 4.0  # medians: calls of one signature vary by less, but for what holds them up
MOSTLY = 0.5  # of device time in graphs: then graphs are no advice; of winnable time in slow calls: then it is theirs
SMALL = 0.01  # of the span: what is to be won for less needs no warning
UNKNOWN_SHOWN = 5  # of the rows whose roof is unknown: their share is what matters
# First causes of which the host's own profile tells more than any device's does.
_ON_THE_HOST = frozenset({"input", "host", "sync", "launch_bound", DISPATCH})

KERNEL_KEYS = (
    *ROW_KEYS, "precision", "unit", "rank", "winnable_share", "cumulative_share", "slow_share", "advice", "command",
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
    training: bool = True  # whether a backward pass or an optimizer was seen, where phases are told
    pid: int | None = None  # of the one process that it is about
    peers: Mapping[str, Any] | None = None  # of its job: waiting for late ranks told from moving bytes
    source: str | None = None  # the file, or the uid of the latest window, that another tool could open

    @property
    def vendor(self) -> Vendor | None:
        """The one vendor whose tools look deeper; an accelerator's before a CPU's."""
        found = sorted({v for v in self.vendors.values() if v is not Vendor.CPU})
        if found:
            return found[0] if len(found) == 1 else None
        return Vendor.CPU if Vendor.CPU in self.vendors.values() else None

    @property
    def in_graphs(self) -> bool:
        """Whether device graphs launch most of the work already."""
        return (self.conditions.graph_share or 0.0) > MOSTLY

    @property
    def cpu(self) -> bool:
        """Whether the CPU is the device."""
        return self.vendor is Vendor.CPU


def is_training(phases: AbstractSet[Phase]) -> bool:
    """Whether a backward pass or an optimizer was seen; where no phase is told nobody knows, and it may be."""
    return not phases - {Phase.NONE} or bool(set(phases) & {Phase.BACKWARD, Phase.OPTIMIZER})


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
    steady = time.steady()
    worth = worth_touching(standings, limit)
    whole = sum(s.est_ns for s in standings)
    kernels = _kernels(worth, sums, scene, whole, (share_of_ns(time, counted), counted))
    names = {s.key: sums[s.key][0].signature.kernel for s in standings if s.key in sums}
    found = [*_outliers(kernels), *mistakes(scene.conditions, steady, standings, names, cpu=scene.cpu)]
    return {
        "verdict": told.as_json(),
        "time": time.as_json(),
        "startup": _startup(time),
        "steady": steady.as_json(),
        "causes": _causes(steady, told, scene),
        "unmeasured": list(scene.conditions.unmeasured),
        "unjudged": _unjudged(standings, sums, scene, told),
        "commands": _commands(told, scene, kernels),
        "warnings": [{**one, "text": _text(one["mistake"], scene)} for one in found],
        "rows": kernels,
    }


def _outliers(kernels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Ranked rows that a few slow calls put there."""
    return [
        {
            "mistake": "slow_calls",
            "rank": row["rank"],
            "kernel": row["kernel"],
            "share": row["slow_share"],
            "median_ns": row["p50_ns"],
            "longest_ns": row["max_ns"],
        }
        for row in kernels
        if (row["slow_share"] or 0.0) > MOSTLY and (row["winnable_share"] or 0.0) >= SMALL
    ]


def _text(mistake: str, scene: Scene) -> str:
    """What a mistake means, of windows that an agent took where that is another thing."""
    live = f"{mistake}_live"
    return in_words_of(scene.vendor, MISTAKES[live if scene.conditions.live and live in MISTAKES else mistake])


def _causes(time: TimelineSum, told: Verdict, scene: Scene) -> list[dict[str, Any]]:
    """What is in the way, with its evidence and the usual fixes. ``share`` holds what is exposed, too."""
    parts, found = time.parts(), []
    for name, share in told.causes.items():
        idle = None if name == DISPATCH else time.causes.get(Cause(name))
        exposed = "" if name == DISPATCH else EXPOSED.get(Cause(name), "")
        wanted = Wanted(
            vendor=scene.vendor,
            training=scene.training,
            in_graphs=scene.in_graphs,
            waits_short=name == Cause.SYNC and scene.conditions.waits_are_short(time),
            example=idle.example if idle else None,
        )
        found.append(
            {
                "cause": name,
                "share": share,
                "idle_ns": parts.get(name, 0),
                "exposed_ns": parts.get(exposed, 0),
                "count": idle.count if idle else 0,
                "longest_ns": idle.longest_ns if idle else 0,
                "example": idle.example if idle else None,
                "peers": dict(scene.peers) if scene.peers and name == Cause.COMMUNICATION else None,
                "fixes": list(fixes(name, wanted)),
            }
        )
    return found


def _startup(time: TimelineSum) -> dict[str, Any] | None:
    """Start-up as a whole, with the example of its longest stretch; None where there is none."""
    own = {cause: c for cause, c in time.causes.items() if c.startup is not None}
    if not own:
        return None
    cause, largest = max(own.items(), key=lambda item: item[1].startup.total_ns if item[1].startup else 0)
    return {
        "total_ns": time.startup_ns,
        "share": time.startup_share,
        "cause": str(cause),
        "longest_ns": largest.longest_ns,
        "example": largest.example,
    }


def _kernels(
    worth: Sequence[Standing],
    sums: Mapping[Key, Sequence[StatSum]],
    scene: Scene,
    whole: float,
    weighed: tuple[float, Tally],
) -> list[dict[str, Any]]:
    found, so_far = [], 0.0
    of_span, counted = weighed
    total = counted.winnable_ns - counted.overhead_winnable_ns
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
                "winnable_share": s.winnable_ns * of_span,
                "cumulative_share": ratio(so_far, total),
                "slow_share": _slow_share(s, sums[s.key]),
                "advice": helps(
                    signature,
                    s.bound,
                    s.fraction,
                    vendor=scene.vendors.get(s.key[1]),
                    precisions=scene.precisions.get(s.key[1], frozenset()),
                    training=scene.training,
                    in_graphs=scene.in_graphs,
                ),
                "command": _ranked(rank, _deeper(f"kernel{rank}", s, row, scene)),
            }
        )
    return found


def _slow_share(s: Standing, sums: Sequence[StatSum]) -> float | None:
    """What share of the winnable time lies in calls that took ``SLOW`` medians and more; None without histograms.

    A kernel that is far from its roof is so in every call. Where a few calls make the mean, something else held them
    up: a preempted thread, a device shared with others, pages that were not there.
    """
    histogram = Histogram.merged(one.histogram for one in sums if one.histogram is not None)
    if not histogram.total or s.fraction is None or s.fraction >= 1.0:
        return None
    return min(1.0, histogram.beyond(SLOW) / (1.0 - s.fraction))


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
    own = [advice_commands.of_export(scene.vendor, scene.source), *(row["command"] for row in kernels)]
    found = [*([host, timeline] if told.first_cause == str(Cause.INPUT) else [timeline, host]), *own]
    return [one for one in found if one is not None]


def of_window(window: Window, conditions: Conditions, limit: int, source: str | None = None) -> dict[str, Any]:
    """The report of one window that is not in a store; ``source`` is the file that it is from."""
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
    phases = {stat.signature.phase for stat in window.kernels}
    # Its process has ended, most likely: no pid.
    scene = Scene(vendors, precisions, calls, conditions, training=is_training(phases), source=source)
    return report(sum_of(window), standings, grouped, scene, limit)
