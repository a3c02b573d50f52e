"""The classic mistakes that the data itself can show, each with its figures; the texts are in ``model.advice``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.diagnosis import Standing
from roofwatch.model.record import Bound, Cause, Padding, Window
from roofwatch.model.timeline import TimelineSum
from roofwatch.model.unmeasured import WORTH_A_WORD, of_window

# Steps in which a job compiles, tunes its algorithms and grows its memory: torch.compile's last recompilation and
# cuDNN's search are over by the tenth in the jobs that we know.
EARLY_STEPS = 10
FIRST_STEP = 1.5  # first step ÷ median of the others: steps vary by a tenth or two, compilation is many times longer
ONE_GAP = 0.25  # of the span in one stretch: a wait that comes back has several
WAITING = 0.02  # of the span: smaller waits do not decide how a table is sorted
TUNED = 0.7  # roof fraction from which "the largest" is not "the one to work on"
PADDED = 0.1  # of the tokens: below it padding explains no kernel's time
COSTLY = 0.01  # of the job's time: the most that profiling may cost it
BACKLOG = 0.1  # of device time: less hides no kernel that matters
SHORT_WAITS = 0.25  # of the idle time after them: then launching again is what takes the time
ROOFLESS = 0.1  # of the kernels' time: where less has no roof, shapes that are missing explain little
FEW = 0.5  # of the windows: fewer are not why most kernels lack a roof
LOOSE_GRAPHS = 0.05  # of device time: kernels of graphs that nothing is known about


@dataclass(frozen=True, slots=True)
class Conditions:
    """How what is diagnosed was recorded. Zero and None where that is not known.

    ``early_windows`` began in the first ``EARLY_STEPS`` steps of their process; ``step_ns`` are the lengths of the
    steps of one window, in order; ``python_events`` are Python functions on its host threads.
    """

    windows: int = 1
    steps: int | None = None
    early_windows: int = 0
    step_ns: tuple[int, ...] = ()
    python_events: int = 0
    events: int = 0
    waits: int | None = None  # the host's own blocking calls, where they were measured
    wait_ns: int | None = None
    longest_wait_ns: int | None = None
    shapeless_windows: int = 0  # with operators, without their input shapes, and most of their time not classified
    opless_windows: int = 0  # the same without any operator of the host, whose shapes an Ascend kernel does not need
    backlog_share: float | None = None  # of device time: launched before the window
    graph_share: float | None = None  # of device time: in graphs
    padding: Padding | None = None
    cost_share: float | None = None
    cost_windows: int = 0  # that it is measured in
    graph_loose_share: float | None = None  # of device time: in graphs, and tied to no op
    unmeasured: Sequence[Mapping[str, Any]] = ()  # ``model.unmeasured``: device models without peaks
    live: bool = False  # an agent took them: nobody who reads the answer set up their profiler

    def waits_are_short(self, time: TimelineSum) -> bool:
        """Whether the host's waits are too short to be the idle time that comes after them."""
        sync = time.causes.get(Cause.SYNC)
        return self.wait_ns is not None and sync is not None and self.wait_ns < SHORT_WAITS * sync.total_ns


def conditions_of(window: Window) -> Conditions:
    """Of one window that is not in a store, less what only its source tells."""
    ledger, graphs = window.ledger, window.graphs
    unclear = 2 * ledger.classified_ns < ledger.classifiable_ns
    loose_ns = sum(graph.total_ns - graph.attributed_ns for graph in graphs)
    return Conditions(
        steps=window.steps,
        python_events=ledger.python_events or 0,
        events=ledger.events_read,
        waits=ledger.waits,
        wait_ns=ledger.wait_ns,
        longest_wait_ns=ledger.longest_wait_ns,
        shapeless_windows=int(unclear and ledger.has_host_events and not window.shapes_recorded),
        opless_windows=int(unclear and not ledger.has_host_events and not window.shapes_recorded),
        backlog_share=ratio(ledger.backlog_ns, ledger.device_time_ns),
        padding=window.padding,
        graph_share=ratio(sum(graph.total_ns for graph in graphs), ledger.device_time_ns),
        graph_loose_share=ratio(loose_ns, ledger.device_time_ns),
        unmeasured=of_window(window),
    )


def mistakes(
    conditions: Conditions, time: TimelineSum, standings: Sequence[Standing], kernel_of: dict[Any, str], *, cpu: bool
) -> list[dict[str, Any]]:
    """What to beware of, as ``{"mistake": name, figure: value, …}``."""
    return [
        *_peaks(conditions),
        *_recording(conditions),
        *_shapeless(conditions, standings),
        *_start(conditions, time),
        *([] if cpu else _host_time(conditions, time)),
        *_raw_time(standings, kernel_of),
    ]


def _peaks(conditions: Conditions) -> Iterator[dict[str, Any]]:
    """The device model that lacks its peaks for most of the time, where that is why kernels have no roof."""
    for one in conditions.unmeasured[:1]:
        if (one["share"] or 0.0) >= WORTH_A_WORD:
            mistake = "peaks_since" if one["measured_share"] else "no_peaks"
            yield {"mistake": mistake, "device": one["model"] or "an unnamed device", "share": one["share"]}


def _recording(conditions: Conditions) -> Iterator[dict[str, Any]]:
    if conditions.python_events:
        yield {"mistake": "stacks", "python_events": conditions.python_events, "events": conditions.events}
    if conditions.cost_share is not None and conditions.cost_share > COSTLY:
        yield {
            "mistake": "overhead",
            "share": conditions.cost_share,
            "measured": conditions.cost_windows,
            "windows": conditions.windows,
        }
    padding = conditions.padding
    padded = None if padding is None else ratio(padding.padded_tokens - padding.real_tokens, padding.padded_tokens)
    if padded is not None and padded > PADDED:
        yield {"mistake": "padding", "share": padded}
    if conditions.graph_loose_share is not None and conditions.graph_loose_share > LOOSE_GRAPHS:
        yield {"mistake": "graphs", "share": conditions.graph_loose_share}
    if conditions.backlog_share is not None and conditions.backlog_share > BACKLOG:
        yield {"mistake": "backlog", "share": conditions.backlog_share}


def _shapeless(conditions: Conditions, standings: Sequence[Standing]) -> Iterator[dict[str, Any]]:
    """Windows without operators or shapes, where these are why kernels have no roof: a few of many windows are not.

    Nor are shapes missed where the device's peaks are.
    """
    inside = [s for s in standings if not s.outside and s.bound is not Bound.HOST]
    lacking = sum(one["est_ns"] for one in conditions.unmeasured)
    roofless = ratio(sum(s.unknown_ns for s in inside) - lacking, sum(s.est_ns for s in inside))
    if roofless is not None and roofless < ROOFLESS:
        return
    for mistake, without in (("no_ops", conditions.opless_windows), ("no_shapes", conditions.shapeless_windows)):
        if without >= FEW * conditions.windows and without:
            yield {"mistake": mistake, "without": without, "windows": conditions.windows}


def _start(conditions: Conditions, time: TimelineSum) -> Iterator[dict[str, Any]]:
    first, *others = conditions.step_ns or (0,)
    if len(others) > 1 and first > FIRST_STEP * median(others):
        yield {"mistake": "no_warm_up", "first_ns": first, "median_ns": round(median(others))}
    if conditions.early_windows:
        figures = {"early": conditions.early_windows, "windows": conditions.windows, "steps": EARLY_STEPS}
        yield {"mistake": "early_windows", **figures}
    if conditions.windows == 1 and conditions.steps == 1:
        yield {"mistake": "one_iteration", "steps": 1}
    longest = max((c.longest_ns for c in time.causes.values()), default=0)
    share = ratio(longest, time.sampled.span_ns)
    if conditions.windows == 1 and share is not None and share > ONE_GAP:
        yield {"mistake": "one_gap", "longest_ns": longest, "share": share}


def _host_time(conditions: Conditions, time: TimelineSum) -> Iterator[dict[str, Any]]:
    """A profiler's table is sorted by host time unless told otherwise, and there a wait is work.

    The waits are the host's own, measured in its calls: idle time says how long the device waited, which is another
    thing.
    """
    share = None if conditions.wait_ns is None else ratio(conditions.wait_ns, time.sampled.span_ns)
    if share is not None and share > WAITING:
        figures = {"count": conditions.waits, "total_ns": conditions.wait_ns, "longest_ns": conditions.longest_wait_ns}
        yield {"mistake": "host_time", **figures, "share": share}


def _raw_time(standings: Sequence[Standing], kernel_of: dict[Any, str]) -> Iterator[dict[str, Any]]:
    """Whether the largest kernel is one that has little to win."""
    inside = [s for s in standings if not s.outside]
    largest = max(inside, key=lambda s: s.est_ns, default=None)
    if largest is None or largest.fraction is None or largest.fraction < TUNED or not largest.judged:
        return
    best = max(inside, key=lambda s: s.winnable_ns)
    if best.key != largest.key and best.winnable_ns > largest.winnable_ns and largest.key in kernel_of:
        yield {
            "mistake": "raw_time",
            "kernel": kernel_of[largest.key],
            "time_share": ratio(largest.est_ns, sum(s.est_ns for s in inside)),
            "winnable_share": ratio(largest.winnable_ns, largest.est_ns),
        }
