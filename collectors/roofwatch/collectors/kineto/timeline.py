"""Where a device waited: busy, idle, and the causes of idle, which add up to idle exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import KERNEL
from roofwatch.collectors.kineto.examples import Examples, neighbours, place, short
from roofwatch.collectors.kineto.gaps import Gaps, gaps_of, taken
from roofwatch.collectors.kineto.intervals import joined, length, outside, union
from roofwatch.collectors.kineto.link import launches_of
from roofwatch.collectors.kineto.startup import startup_of
from roofwatch.collectors.kineto.waits import WAITS, Waits
from roofwatch.model.record import Cause, IdleCause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.bounds import Taken
    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.intervals import Spans
    from roofwatch.collectors.kineto.link import Host, Launches
    from roofwatch.collectors.kineto.waits import ThreadWaits

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

# After a blocking call returns, the host runs some ops before the device has work again; 200 µs are a few ops' worth
# of eager launching. A longer while after it is the launching's own slowness.
DRAINED_NS = 200_000
# From the call to the kernel's start a device takes 3 to 20 µs; beyond 50 µs something else is in the way.
LAUNCH_GAP_NS = 50_000
MAX_THREADS = 1000  # asked for each device, those that launched before most gaps; keeps a hostile trace quick
_CAUSES = tuple(Cause)
_CPU_WAITS = ((Cause.INPUT, calls.is_input), (Cause.COMMUNICATION, calls.is_communication_call))


def host_hull(columns: Columns, host: Host) -> tuple[int, int] | None:
    """The window's bounds where known, else the hull of the profiler's steps, else of the host's ops."""
    if len(host.step_starts):
        return int(host.step_starts.min()), int(host.step_ends.max())
    if len(columns.ops):
        return int(columns.ops["start"].min()), int(columns.ops["end"].max())
    return None


def with_timelines(
    devices: Sequence[RawDevice],
    position: Ints,
    columns: Columns,
    host: Host,
    launches: Launches,
    collective: Mask,
    *,
    returned: Ints | None = None,
) -> tuple[int, int, int]:
    """Fills in span, busy, causes and exposed times of devices; ``position`` names the device of each record.

    Returns how often the host waited in blocking calls within the span, how long in all, and the longest, in ns.

    ``collective``: which records communicate. ``returned``: when the launch of each record was over, where that is not
    when its call returned (a queue stands between).
    """
    hull = host_hull(columns, host)
    waits = Waits(columns, host, launches)
    sort = columns.device["sort"]
    copy = sort != KERNEL  # a memset, too, is no compute that could hide anything, and no kernel to tune
    compute = (sort == KERNEL) & ~collective
    spans = []
    for index, device in enumerate(devices):
        (rows,) = np.nonzero(position == index)
        start, end = taken(columns.device["start"], rows), taken(columns.device["end"], rows)
        low, high = int(start.min()), int(end.max())
        if hull is not None:
            low, high = min(low, hull[0]), max(high, hull[1])
        device.exposed_communication_ns = _exposed(start, end, collective[rows], compute[rows])
        device.exposed_copy_ns = _exposed(start, end, copy[rows], compute[rows] | collective[rows])
        busy = union(start, end)
        device.span_ns, device.busy_ns, idle = high - low, length(busy), outside(busy, low, high)
        del busy, start, end  # as long as all that follows
        gaps = gaps_of(rows, idle, columns, launches)
        if returned is not None and len(gaps.following):
            later = np.where(gaps.following >= 0, returned[gaps.following], gaps.returned)
            gaps = replace(gaps, returned=np.maximum(gaps.returned, later))
        shares, split = _shares(gaps, waits, low, high)
        begun = startup_of(rows, gaps, shares, columns, (low, high), stepped=len(host.step_starts) > 0)
        spans.append((low, high))
        device.causes = _causes(shares, Examples(columns, launches, waits, gaps, split, (low, high)).of, begun)
    return waits.blocked(min(low for low, _ in spans), max(high for _, high in spans)) if spans else (0, 0, 0)


def with_cpu_timeline(device: RawDevice, columns: Columns, host: Host) -> None:
    """The same for a window without a device: busy is the union of ops over all threads.

    Idle is ``input`` where a thread was in a data loader's next, ``communication`` where one was in a collective's
    call, and ``host`` elsewhere: Python, or work that records no ops. Nothing is ``sync`` or ``copy``: a CPU waits
    for no device, and ``aten::item`` is an op like any other.
    """
    hull = host_hull(columns, host)
    if hull is None:
        return
    ops = columns.ops
    low, high = hull
    if len(ops):
        low, high = min(low, int(ops["start"].min())), max(high, int(ops["end"].max()))
    names = columns.names.values_seen
    # The oldest writers recorded annotations as ops: they are where the thread was, not work.
    work = ~calls.mask(names, lambda name: calls.is_step(name) or calls.is_optimizer(name) or calls.is_input(name))
    worked = work[ops["name"]]
    busy = union(ops["start"][worked], ops["end"][worked])
    idle = outside(busy, low, high)
    shares = {cause: np.zeros(len(idle[0]), dtype=np.int64) for cause in _CAUSES}
    shares[Cause.HOST] = idle[1] - idle[0]
    found = {cause: _named(columns, names, test) for cause, test in _CPU_WAITS}
    covered = (np.empty(0, dtype=np.int64),) * 2
    for cause, (start, end, _) in found.items():
        wider = joined([covered, (start, end)])
        shares[cause] = _overlap(wider, idle) - _overlap(covered, idle)
        shares[Cause.HOST] = shares[Cause.HOST] - shares[cause]
        covered = wider
    device.span_ns, device.busy_ns = high - low, length(busy)
    device.causes = _causes(shares, lambda cause, at: _cpu_example(columns, found.get(cause), idle, at, low))


def unused(vendor: str, columns: Columns, host: Host, window: Taken) -> RawDevice:
    """A device without a record and a process that launched nothing for it: idle from bound to bound.

    The thread with the most events is asked about it, as if its next launch followed the window; ``host`` where no
    thread has any.
    """
    device = RawDevice(vendor, "", span_ns=window.end - window.start)
    start, end = np.array([window.start]), np.array([window.end])
    none, no = np.array([-1]), np.array([False])
    gaps = Gaps(start, end, none, thread=_busiest(columns), launch=end, returned=end, queued=no, in_graph=no)
    launches = launches_of(columns)
    waits = Waits(columns, host, launches)
    shares, split = {Cause.HOST: end - start}, end
    if gaps.thread[0] >= 0:
        shares, split = _shares(gaps, waits, window.start, window.end)
    examples = Examples(columns, launches, waits, gaps, split, (window.start, window.end))
    device.causes = _causes(shares, examples.of)
    return device


def _busiest(columns: Columns) -> Ints:
    """The thread with the most events, of equal ones that with the earliest; -1 without any."""
    tables = (columns.ops, columns.host, columns.notes)
    threads, starts = (np.concatenate([table[key] for table in tables]) for key in ("thread", "start"))
    if not len(threads):
        return np.array([-1])
    counts = np.bincount(threads)
    among = np.flatnonzero(counts[threads] == counts.max())
    return np.array([threads[among[np.argmin(starts[among])]]])


def _named(columns: Columns, names: Sequence[str], test: calls.Test) -> tuple[Ints, Ints, Ints]:
    """Starts, ends and name ids of the annotations of a sort, and of the ops that a loader's next once was."""
    notes, ops = columns.notes, columns.ops
    chosen = calls.mask(names, test)
    of_ops = (chosen & calls.mask(names, calls.is_input))[ops["name"]]
    of_notes = chosen[notes["name"]]
    start, end, name = (np.append(notes[key][of_notes], ops[key][of_ops]) for key in ("start", "end", "name"))
    return start, end, name


def _cpu_example(
    columns: Columns, found: tuple[Ints, Ints, Ints] | None, idle: tuple[Ints, Ints], at: int, low: int
) -> str:
    """What some thread was in over a gap between ops, else the ops around it."""
    gap = int(idle[0][at]), int(idle[1][at])
    names = columns.names.values_seen
    if found is None:
        ops = columns.ops
        return f"{neighbours(names, (ops['start'], ops['end'], ops['name']), gap)}; {place(gap, low)}"
    start, end, name = found
    shared = np.minimum(end, gap[1]) - np.maximum(start, gap[0])
    longest = min(names[i] for i in name[shared == shared.max()])
    return f"in {short(longest)}; {place(gap, low)}"


def _exposed(start: Ints, end: Ints, kind: Mask, others: Mask) -> int:
    """How long records of a kind run while none of the others runs beside them."""
    beside = union(start[others], end[others])
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


def _shares(gaps: Gaps, waits: Waits, low: int, high: int) -> tuple[dict[Cause, Ints], Ints]:
    """How much of each gap is due to each cause, which add up to the gaps; and until when the host was looked at.

    That is until the launch call of the next record begins. Where the record begins late after that, a launch call
    that has not returned is the reason (loading a module, waiting for a lock): then it is until its return.
    """
    shares = {cause: np.zeros(len(gaps.start), dtype=np.int64) for cause in _CAUSES}
    asked = (gaps.thread >= 0) & ~gaps.in_graph & ~gaps.queued
    threads, counts = np.unique(gaps.thread[asked], return_counts=True)
    threads = threads[np.argsort(-counts, kind="stable")[:MAX_THREADS]]
    asked &= np.isin(gaps.thread, threads)
    begun = np.where(asked, np.clip(gaps.launch, gaps.start, gaps.end), gaps.start)
    slow = asked & (gaps.end - begun > LAUNCH_GAP_NS)
    split = np.where(slow, np.clip(gaps.returned, begun, gaps.end), begun)
    drained, never = np.zeros_like(slow), np.zeros_like(slow)
    for thread in threads.tolist():
        (mine,) = np.nonzero(asked & (gaps.thread == thread))
        of_thread = waits.of_thread(thread, low, high)
        drained[mine] = of_thread.returned(gaps.start[mine] - DRAINED_NS, begun[mine])
        _slice(shares, mine, (gaps.start, begun), of_thread, drained)
        _slice(shares, mine[slow[mine]], (begun, split), of_thread, never)
    after = gaps.end - split
    short = (asked | gaps.queued) & ~gaps.in_graph & (after <= LAUNCH_GAP_NS)
    shares[Cause.LAUNCH_GAP] += np.where(short, after, 0)
    shares[Cause.UNKNOWN] += np.where(short, 0, after)
    return shares, split


def _slice(shares: dict[Cause, Ints], rows: Ints, part: Spans, waits: ThreadWaits, drained: Mask) -> None:
    """Shares out parts of gaps (starts and ends by gap): what the thread was in, first match; then what is left."""
    start, until = part[0][rows], part[1][rows]
    left = until - start
    for layer, cause in enumerate(WAITS):
        inside = waits.layers.within(layer, start, until)
        shares[cause][rows] += inside
        left -= inside
    shares[Cause.SYNC][rows] += np.where(drained[rows], left, 0)
    shares[Cause.LAUNCH_BOUND][rows] += np.where(drained[rows], 0, left)


def _causes(
    shares: dict[Cause, Ints], example: Callable[[Cause, int], str], startup: Mask | None = None
) -> tuple[IdleCause, ...]:
    """Totals, counts, and of each cause's longest stretch its length and an example in words; start-up told apart."""
    result = []
    for cause, share in shares.items():
        if not share.any():
            continue
        longest = int(np.argmax(share))
        total, count = int(share.sum()), int((share > 0).sum())
        found = IdleCause(cause, total, count, int(share[longest]), example(cause, longest))
        if startup is not None and share[startup].any():
            steady = np.where(startup, 0, share)
            at = int(np.argmax(steady))
            found = replace(
                found,
                startup_ns=int(share[startup].sum()),
                startup_count=int((share[startup] > 0).sum()),
                steady_longest_ns=int(steady[at]),
                steady_example=example(cause, at) if steady[at] else None,
            )
        result.append(found)
    return tuple(sorted(result, key=lambda one: (-one.total_ns, one.cause)))
