"""Where a device waited: busy, idle, and the causes of idle, which add up to idle exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import KERNEL, MEMCPY
from roofwatch.collectors.kineto.intervals import joined, length, outside, union
from roofwatch.collectors.kineto.link import launches_of
from roofwatch.collectors.kineto.waits import WAITS, Waits
from roofwatch.model.record import Cause, IdleCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.bounds import Taken
    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.link import Host, Launches

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

# After a blocking call returns, the host runs some ops before the device has work again; 200 µs are a few ops' worth
# of eager launching. A longer while after it is the launching's own slowness.
DRAINED_NS = 200_000
# From the call to the kernel's start a device takes 3 to 20 µs; beyond 50 µs something else is in the way.
LAUNCH_GAP_NS = 50_000
MAX_THREADS = 1000  # asked for each device, those that launched before most gaps; keeps a hostile trace quick
_EXAMPLE_CHARACTERS = 160
_CAUSES = tuple(Cause)


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Idle stretches of one device. ``thread`` -1: not known who launched; ``launch``: when the next record was."""

    start: Ints
    end: Ints
    following: Ints  # row of the record that ends the gap, -1 at the end of the window
    thread: Ints
    launch: Ints
    queued: Mask  # surely launched before the gap
    in_graph: Mask  # between two records of one graph launch


def host_hull(columns: Columns, host: Host) -> tuple[int, int] | None:
    """The window's bounds where known, else the hull of the profiler's steps, else of the host's ops."""
    if len(host.step_starts):
        return int(host.step_starts.min()), int(host.step_ends.max())
    if len(columns.ops):
        return int(columns.ops["start"].min()), int(columns.ops["end"].max())
    return None


def with_timelines(
    devices: Sequence[RawDevice], position: Ints, columns: Columns, host: Host, launches: Launches
) -> None:
    """Fills in span, busy, causes and exposed times of devices; ``position`` names the device of each record."""
    hull = host_hull(columns, host)
    waits = Waits(columns, host, launches)
    names = columns.names.values_seen
    sort, name = columns.device["sort"], columns.device["name"]
    collective = (sort == KERNEL) & calls.mask(names, calls.is_communication_kernel)[name]
    copy = sort == MEMCPY
    compute = ~collective & ~copy
    for index, device in enumerate(devices):
        (rows,) = np.nonzero(position == index)
        start, end = columns.device["start"][rows], columns.device["end"][rows]
        low, high = int(start.min()), int(end.max())
        if hull is not None:
            low, high = min(low, hull[0]), max(high, hull[1])
        busy = union(start, end)
        gaps = _gaps_of(rows, outside(busy, low, high), columns, launches)
        shares = _shares(gaps, waits, low, high)
        device.span_ns = high - low
        device.busy_ns = length(busy)
        device.causes = _causes(gaps, shares, [names[i] for i in name[gaps.following].tolist()])
        device.exposed_copy_ns = _exposed(start, end, copy[rows], compute[rows])
        device.exposed_communication_ns = _exposed(start, end, collective[rows], compute[rows])


def with_cpu_timeline(device: RawDevice, columns: Columns, host: Host) -> None:
    """The same for a window without a device: busy is the union of ops over all threads.

    Idle is ``input`` where a thread was in a data loader's next, ``communication`` where one was in a collective's
    call, and ``host`` elsewhere: Python, or work that records no ops.
    """
    hull = host_hull(columns, host)
    if hull is None:
        return
    ops, notes = columns.ops, columns.notes
    low, high = hull
    if len(ops):
        low, high = min(low, int(ops["start"].min())), max(high, int(ops["end"].max()))
    busy = union(ops["start"], ops["end"])
    idle = outside(busy, low, high)
    names = columns.names.values_seen
    shares = {cause: np.zeros(len(idle[0]), dtype=np.int64) for cause in _CAUSES}
    rest = idle[1] - idle[0]
    covered = (np.empty(0, dtype=np.int64),) * 2
    for cause, test in ((Cause.INPUT, calls.is_input), (Cause.COMMUNICATION, calls.is_communication_call)):
        chosen = calls.mask(names, test)[notes["name"]]
        wider = joined([covered, (notes["start"][chosen], notes["end"][chosen])])
        shares[cause] = _overlap(wider, idle) - _overlap(covered, idle)
        rest = rest - shares[cause]
        covered = wider
    shares[Cause.HOST] = rest
    unknown = np.full(len(rest), -1, dtype=np.int64)
    no = np.zeros(len(rest), dtype=np.bool_)
    device.span_ns, device.busy_ns = high - low, length(busy)
    device.causes = _causes(_Gaps(*idle, unknown, unknown, unknown, no, no), shares, [""] * len(rest))


def unused(vendor: str, columns: Columns, host: Host, window: Taken) -> RawDevice:
    """A device without a record and a process that launched nothing for it: idle from bound to bound.

    The thread with the most events is asked about it, as if its next launch followed the window; ``host`` where no
    thread has any.
    """
    device = RawDevice(vendor, "", span_ns=window.end - window.start)
    threads = np.concatenate([table["thread"] for table in (columns.ops, columns.host, columns.notes)])
    start, end = np.array([window.start]), np.array([window.end])
    none, no = np.array([-1]), np.array([False])
    thread = np.array([np.argmax(np.bincount(threads))]) if len(threads) else none
    gaps = _Gaps(start, end, following=none, thread=thread, launch=end, queued=no, in_graph=no)
    shares = {Cause.HOST: end - start}
    if len(threads):
        shares = _shares(gaps, Waits(columns, host, launches_of(columns)), window.start, window.end)
    device.causes = _causes(gaps, shares, [""])
    return device


def _exposed(start: Ints, end: Ints, kind: Mask, compute: Mask) -> int:
    """How long records of a kind run while no compute runs beside them."""
    beside = union(start[compute], end[compute])
    return length(joined([beside, (start[kind], end[kind])])) - length(beside)


def _overlap(spans: tuple[Ints, Ints], gaps: tuple[Ints, Ints]) -> Ints:
    """How much of each gap lies in disjoint spans."""
    before = np.append(0, np.cumsum(spans[1] - spans[0]))

    def until(time: Ints) -> Ints:
        at = np.searchsorted(spans[0], time, side="right")
        whole: Ints = before[at]
        if not len(spans[0]):
            return whole
        last = np.maximum(at - 1, 0)
        return whole - np.where(at > 0, np.maximum(spans[1][last] - time, 0), 0)

    return until(gaps[1]) - until(gaps[0])


def _gaps_of(rows: Ints, idle: tuple[Ints, Ints], columns: Columns, launches: Launches) -> _Gaps:
    start, end, correlation = (columns.device[key][rows] for key in ("start", "end", "correlation"))
    filled = end > start  # an empty record ends no gap
    by_start = np.flatnonzero(filled)[np.argsort(start[filled], kind="stable")]
    by_end = np.flatnonzero(filled)[np.argsort(end[filled], kind="stable")]
    at = np.searchsorted(start[by_start], idle[1])
    has_next = at < len(by_start)
    following = np.where(has_next, by_start[np.minimum(at, len(by_start) - 1)], -1) if len(by_start) else at * 0 - 1
    before = np.searchsorted(end[by_end], idle[0], side="right") - 1
    previous = np.where(before >= 0, by_end[np.maximum(before, 0)], -1) if len(by_end) else before
    row = np.where(following >= 0, rows[following], -1)
    thread = np.where(row >= 0, launches.thread[row], -1)
    known = thread >= 0
    last = _last_known_thread(rows, start, launches)
    same = correlation[following] == correlation[previous]
    return _Gaps(
        start=idle[0],
        end=idle[1],
        following=row,
        thread=np.where(row >= 0, thread, last),
        launch=np.where(row < 0, idle[1], np.where(known, launches.time[row], idle[0])),
        queued=(row >= 0) & launches.backlog[row],
        in_graph=(following >= 0) & (previous >= 0) & same & (correlation[following] >= 0),
    )


def _last_known_thread(rows: Ints, start: Ints, launches: Launches) -> int:
    """The thread that launched the device's last record with a known launch: it is asked about the window's end."""
    threads = launches.thread[rows]
    known = np.flatnonzero(threads >= 0)
    return int(threads[known[np.argmax(start[known])]]) if len(known) else -1


def _shares(gaps: _Gaps, waits: Waits, low: int, high: int) -> dict[Cause, Ints]:
    """How much of each gap is due to each cause; over the causes they add up to the gaps."""
    shares = {cause: np.zeros(len(gaps.start), dtype=np.int64) for cause in _CAUSES}
    asked = (gaps.thread >= 0) & ~gaps.in_graph & ~gaps.queued
    threads, counts = np.unique(gaps.thread[asked], return_counts=True)
    threads = threads[np.argsort(-counts, kind="stable")[:MAX_THREADS]]
    asked &= np.isin(gaps.thread, threads)
    split = np.where(asked, np.clip(gaps.launch, gaps.start, gaps.end), gaps.start)
    for thread in threads.tolist():
        (mine,) = np.nonzero(asked & (gaps.thread == thread))
        of_thread = waits.of_thread(thread, low, high)
        start, until = gaps.start[mine], split[mine]
        left = until - start
        for layer, cause in enumerate(WAITS):
            part = of_thread.layers.within(layer, start, until)
            shares[cause][mine] += part
            left -= part
        drained = of_thread.returned(start - DRAINED_NS, until)
        shares[Cause.SYNC][mine] += np.where(drained, left, 0)
        shares[Cause.LAUNCH_BOUND][mine] += np.where(drained, 0, left)
    after = gaps.end - split
    short = (asked | gaps.queued) & ~gaps.in_graph & (after <= LAUNCH_GAP_NS)
    shares[Cause.LAUNCH_GAP] += np.where(short, after, 0)
    shares[Cause.UNKNOWN] += np.where(short, 0, after)
    return shares


def _causes(gaps: _Gaps, shares: dict[Cause, Ints], following: Sequence[str]) -> tuple[IdleCause, ...]:
    """Totals, counts and longest stretches; a cause's example is the kernel that its longest stretch waited for."""
    result = []
    for cause, share in shares.items():
        if not share.any():
            continue
        longest = int(np.argmax(share))
        name = following[longest][:_EXAMPLE_CHARACTERS] if gaps.following[longest] >= 0 else None
        result.append(
            IdleCause(cause, int(share.sum()), int((share > 0).sum()), int(share[longest]), name and f"before {name}")
        )
    return tuple(sorted(result, key=lambda one: -one.total_ns))
