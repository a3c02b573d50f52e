"""Where a device waited, the slow way: written from the design's text (§6), sharing nothing with the reader.

Time is cut at every boundary of an event; each slice of a gap is asked what the launching thread was in. What the
text leaves open is decided here as ``ARCHITECTURE.md`` says, each place marked OPEN.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

DRAINED, QUEUE, SILENT = 200_000, 50_000, 1_000_000  # ns: 200 µs, 50 µs, 1 ms
RECORDS = {"kernel", "Kernel", "concurrent_kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}
COPIES = {"gpu_memcpy", "Memcpy"}
MOVED = COPIES | {"gpu_memset", "Memset"}  # OPEN: a memset is no compute, and so counts with copies
OPS, CALLS = {"cpu_op", "Operator"}, {"cuda_runtime", "cuda_driver", "Runtime"}
ITEMS = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"}
WAITS = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "CtxSynchronize", "ThreadSynchronize")
COLLECTIVES = ("c10d::", "nccl:", "gloo:", "mpi:", "ucc:", "hccl:", "record_param_comms")
COLLECTIVE_KERNELS = (
    "nccl", "rccl", "allreduce", "all_reduce", "allgather", "all_gather", "reducescatter", "reduce_scatter",
    "alltoall", "all_to_all", "cross_device_reduce", "shmem", "sendrecv", "lamport",
)  # fmt: skip


class Event(NamedTuple):
    """One event with exact times."""

    category: str
    name: str
    start: int
    end: int
    thread: tuple[Any, Any]
    args: Mapping[str, Any]


@dataclass
class Answer:
    """What one device did: cause → the parts of the gaps due to it, in the order of the gaps."""

    span: int
    busy: int
    parts: dict[str, list[int]]
    exposed_copy: int = 0
    exposed_communication: int = 0

    def take(self, gap: Mapping[str, int]) -> None:
        """Adds the parts of one gap."""
        for cause, part in gap.items():
            if part:
                self.parts[cause].append(part)

    @property
    def causes(self) -> dict[str, tuple[int, int, int]]:
        """Cause → total, count, longest."""
        return {c: (sum(p), len(p), max(p)) for c, p in self.parts.items() if p}


def slow_timelines(text: bytes, bounds: tuple[int, int] | None = None) -> dict[int, Answer]:
    """Device index → its answer; ``bounds`` of the window on the trace's own clock in ns, where they are known."""
    events = [event_of(e) for e in json.loads(text, parse_float=Decimal)["traceEvents"] if e.get("ph") == "X"]
    records: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.category in RECORDS:
            records[int(event.args.get("device", event.thread[0]))].append(event)
    host = SlowHost(events)
    hull = bounds or hull_of(events)
    return {device: answer_of(own, host, hull) for device, own in records.items()}


def slow_cpu_timeline(text: bytes) -> Answer:
    """The answer for a window without a device: busy while any thread runs an op, idle by what any thread was in."""
    events = [event_of(e) for e in json.loads(text, parse_float=Decimal)["traceEvents"] if e.get("ph") == "X"]
    ops = [e for e in events if e.category in OPS]
    low, high = hull_of(events) or (0, 0)
    low, high = min([low, *(e.start for e in ops)]), max([high, *(e.end for e in ops)])
    loading = [e for e in events if e.category == "user_annotation" and is_loader(e.name)]
    collective = [e for e in events if e.category == "user_annotation" and e.name.startswith(COLLECTIVES)]
    answer = Answer(high - low, 0, defaultdict(list))
    cuts = {low, high} | {t for e in events for t in (e.start, e.end) if low < t < high}
    gap: Counter[str] = Counter()
    for a, b in pairwise(sorted(cuts)):
        inside = [any(e.start <= a and b <= e.end for e in some) for some in (ops, loading, collective)]
        if inside[0]:
            answer.busy += b - a
            answer.take(gap)
            gap = Counter()
        else:
            gap["input" if inside[1] else "communication" if inside[2] else "host"] += b - a
    answer.take(gap)
    return answer


def event_of(event: Mapping[str, Any]) -> Event:
    """An event of the trace."""
    start, length = Decimal(event["ts"]) * 1000, Decimal(event["dur"]) * 1000
    assert start == int(start)
    assert length == int(length)
    category, thread = event.get("cat", ""), (event["pid"], event["tid"])
    return Event(category, event["name"], int(start), int(start + length), thread, event.get("args", {}))


def hull_of(events: Iterable[Event]) -> tuple[int, int] | None:
    """Hull of the profiler's steps, else of the host's ops."""
    events = list(events)
    own = [e.end for e in events if e.category == "Trace" and e.name.startswith("PyTorch Profiler (")]
    recorded = [*own, *(e.end for e in events if e.category in RECORDS | CALLS)] if own else []
    events = [e for e in events if e.category in OPS | {"user_annotation"}]
    steps = [e for e in events if e.name.startswith("ProfilerStep#")]
    chosen = steps or [e for e in events if e.category in OPS]
    if steps and recorded:  # OPEN: a step that goes on after the recording ends with it
        until = max(recorded)
        return min(e.start for e in steps), max(max(e.start, min(e.end, until)) for e in steps)
    return (min(e.start for e in chosen), max(e.end for e in chosen)) if chosen else None


def active(spans: Iterable[tuple[int, int]], low: int, high: int) -> list[tuple[int, int, int]]:
    """(from, to, how many spans cover it) over [low, high), cut wherever that changes."""
    change: Counter[int] = Counter()
    for start, end in spans:
        change[start] += 1
        change[end] -= 1
    result, count, at = [], 0, low
    for time in sorted(change):
        if low <= at < time:
            result.append((at, min(time, high), count))
        count += change[time]
        at = max(low, time)
    if at < high:
        result.append((at, high, count))
    return result


def answer_of(records: list[Event], host: SlowHost, hull: tuple[int, int] | None) -> Answer:
    """The answer for one device."""
    low, high = min(r.start for r in records), max(r.end for r in records)
    if hull:
        low, high = min(low, hull[0]), max(high, hull[1])
    gaps: list[list[int]] = []
    busy = 0
    for start, end, count in active([(r.start, r.end) for r in records], low, high):
        if count:
            busy += end - start
        elif gaps and gaps[-1][1] == start:
            gaps[-1][1] = end
        else:
            gaps.append([start, end])
    answer = Answer(high - low, busy, defaultdict(list))
    starting: dict[int, list[Event]] = defaultdict(list)
    for record in records:
        starting[record.start].append(record)
    begun = {c: min(r.start for r in records if r.args.get("correlation") == c) for c in shared(records)}
    for start, end in gaps:
        parts = explain(start, end, starting[end], Frame(host, records, begun, low, high))
        assert sum(parts.values()) == end - start
        answer.take(parts)
    copies = [r for r in records if r.category in MOVED]
    kernels = [r for r in records if r.category.lower().endswith("kernel")]
    collectives = [r for r in kernels if any(word in r.name.lower() for word in COLLECTIVE_KERNELS)]
    compute = without(kernels, collectives)
    answer.exposed_communication = alone(collectives, compute, low, high)
    answer.exposed_copy = alone(copies, compute + collectives, low, high)  # OPEN: what both do counts once
    return answer


def shared(records: list[Event]) -> set[int]:
    """Correlations of several records: those of one graph launch."""
    count = Counter(r.args.get("correlation") for r in records)
    return {c for c, times in count.items() if times > 1 and isinstance(c, int)}


def without(events: list[Event], others: list[Event]) -> list[Event]:
    """The events that are not among the others."""
    ids = {id(e) for e in others}
    return [e for e in events if id(e) not in ids]


def alone(events: list[Event], others: list[Event], low: int, high: int) -> int:
    """How long some of ``events`` run and none of ``others``."""
    own = active([(e.start, e.end) for e in events], low, high)
    beside = active([(e.start, e.end) for e in others], low, high)
    starts = [start for start, _, _ in beside]
    total = 0
    for start, end, count in own:
        if count:
            at = bisect_right(starts, start) - 1
            while at < len(beside) and beside[at][0] < end:
                if not beside[at][2]:
                    total += min(end, beside[at][1]) - max(start, beside[at][0])
                at += 1
    return total


@dataclass
class Frame:
    """What the gaps of a device have in common."""

    host: SlowHost
    records: list[Event]
    begun: Mapping[int, int]  # correlation of a graph launch → start of its first record
    low: int
    high: int


def explain(start: int, end: int, following: list[Event], frame: Frame) -> Counter[str]:
    """Cause → its part of the gap [start, end)."""
    host = frame.host
    following = [r for r in following if r.end > r.start]
    if not following:  # the window's end. OPEN: ask the thread whose record ended last, as if it launched next
        known = [(r.end, r.start, host.launch_of(r)) for r in frame.records if host.launch_of(r)]
        if not known:
            return Counter(unknown=end - start)
        thread = host.thread(max(known, key=last_first)[2].thread, frame)
        return slices(thread, start, end, "sync" if thread.drained(start, end) else "launch_bound")
    # OPEN: of several records that begin together the one launched first; a launch that is not known comes last.
    record = min(following, key=lambda r: (host.launch_time(r), r.args.get("correlation", -1)))
    if frame.begun.get(record.args.get("correlation"), end) <= start:  # inside one graph launch
        return Counter(unknown=end - start)
    launch = host.launch_of(record)
    if launch is None:
        queued = host.is_backlog(record) and end - start <= QUEUE
        return Counter({"launch_gap" if queued else "unknown": end - start})
    thread = host.thread(launch.thread, frame)
    begins = min(max(launch.start, start), end)
    parts = slices(thread, start, begins, "sync" if thread.drained(start, begins) else "launch_bound")
    if end - begins <= QUEUE:
        return parts + Counter(launch_gap=end - begins)
    # OPEN: what the text does not name is the launch call itself; a long one is the host's doing.
    returns = min(max(launch.end, begins), end)
    parts += slices(thread, begins, returns, "launch_bound")
    return parts + Counter({"launch_gap" if end - returns <= QUEUE else "unknown": end - returns})


def last_first(known: tuple[int, int, Event]) -> tuple[int, int, int, int]:
    """Order of records by end, then start, then launch."""
    end, start, launch = known
    return end, start, launch.start, launch.args["correlation"]


def slices(thread: SlowThread, start: int, end: int, otherwise: str) -> Counter[str]:
    """A part of a gap, slice by slice: the first thing that the thread was in, else ``otherwise``."""
    near = {cause: thread.overlapping(cause, start, end) for cause in thread.spans}
    cuts = {start, end} | {t for spans in near.values() for span in spans for t in span if start < t < end}
    parts: Counter[str] = Counter()
    for a, b in pairwise(sorted(cuts)):
        inside = [c for c in thread.spans if any(s <= a and b <= e for s, e in near[c])]
        parts[inside[0] if inside else otherwise] += b - a  # OPEN: a silence is host before anything else
    return parts


class SlowThread:
    """What one thread was in. ``spans`` in the order of the text, and host last."""

    def __init__(self, events: list[Event], spans: Mapping[str, list[tuple[int, int]]], returns: list[int]) -> None:
        self.events = [(e.start, e.end) for e in events] + [s for c in ("input", "communication") for s in spans[c]]
        self.spans = dict(spans)
        self.returns = returns
        self._arrays: dict[str, Any] = {}

    def between(self, low: int, high: int) -> SlowThread:
        """With the stretches of the window in which the thread has no event; one without length is an event too."""
        silent, at = [], low
        for start, end in [*sorted(self.events), (high, high)]:
            if min(start, high) - at > SILENT:
                silent.append((at, min(start, high)))
            at = max(at, end)
        self.spans["host"] = silent
        return self

    def drained(self, start: int, until: int) -> bool:
        """Whether a blocking call returned in this part of a gap or up to 200 µs before it."""
        return any(start - DRAINED <= time <= until for time in self.returns)

    def overlapping(self, cause: str, start: int, end: int) -> list[tuple[int, int]]:
        """The spans of a cause that touch a gap."""
        if cause not in self._arrays:
            self._arrays[cause] = np.array(self.spans[cause], dtype=np.int64).reshape(-1, 2)
        array = self._arrays[cause]
        return [(int(s), int(e)) for s, e in array[(array[:, 0] < end) & (array[:, 1] > start)]]


@dataclass
class SlowHost:
    """The host's side."""

    events: list[Event]
    calls: dict[int, Event] = field(default_factory=dict)
    threads: dict[Any, SlowThread] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for call in sorted((e for e in self.events if e.category in CALLS), key=lambda e: e.start):
            self.calls.setdefault(call.args.get("correlation", -1), call)
        launching = [c for c in self.calls.values() if any(w in c.name for w in ("Launch", "Memcpy", "Memset"))]
        ids = {r.args.get("correlation") for r in self.events if r.category in RECORDS}
        self.any_launch = bool(launching) or bool(ids & set(self.calls))
        self.pageable = {
            r.args["correlation"] for r in self.events if r.category in COPIES and "Pageable" in r.name
        }  # fmt: skip

    def launch_of(self, record: Event) -> Event | None:
        """The call that launched a record."""
        return self.calls.get(record.args.get("correlation", -2))

    def launch_time(self, record: Event) -> float:
        """When a record was launched: before everything if before the window, after everything if not known."""
        launch = self.launch_of(record)
        if launch is not None:
            return launch.start
        return float("-inf") if self.is_backlog(record) else float("inf")

    def is_backlog(self, record: Event) -> bool:
        """Whether its launch lies before the window: no call of the window has its correlation."""
        return self.any_launch and "correlation" in record.args and self.launch_of(record) is None

    def thread(self, key: Any, frame: Frame) -> SlowThread:
        """One thread's waits."""
        if (key, frame.low, frame.high) not in self.threads:
            self.threads[key, frame.low, frame.high] = self._thread(key).between(frame.low, frame.high)
        return self.threads[key, frame.low, frame.high]

    def _thread(self, key: Any) -> SlowThread:
        own = [e for e in self.events if e.thread == key and e.category not in RECORDS]
        ops, calls = [e for e in own if e.category in OPS], [e for e in own if e.category in CALLS]
        named = [e for e in own if e.category in OPS | {"user_annotation"}]
        spans: dict[str, list[tuple[int, int]]] = {c: [] for c in ("input", "copy", "sync", "communication")}
        spans["input"] = [(e.start, e.end) for e in named if is_loader(e.name)]
        spans["communication"] = [(e.start, e.end) for e in named if e.name.startswith(COLLECTIVES)]
        waiting: set[tuple[int, int]] = set()
        starts, ends = np.array([e.start for e in ops]), np.array([e.end for e in ops])
        for call in calls:
            copies, waits = "Memcpy" in call.name, is_wait(call.name)
            if not copies and not waits:
                continue
            around = [ops[i] for i in np.flatnonzero((starts <= call.start) & (call.start <= ends))] if ops else []
            items = [(e.start, e.end) for e in around if e.name in ITEMS]
            waiting.update(items)
            blocks = waits or "Async" not in call.name or call.args.get("correlation") in self.pageable
            if blocks:
                in_copy = around and max(around, key=lambda e: (e.start, -e.end)).name == "aten::copy_"
                is_copy = not items and (in_copy or not waits)
                spans["copy" if is_copy else "sync"].append((call.start, call.end))
        spans["sync"] += sorted(waiting)
        returns = [end for cause in ("copy", "sync") for _, end in spans[cause]]
        return SlowThread(ops + calls, spans, returns)


def is_loader(name: str) -> bool:
    """Whether a range is a data loader's next; one that is only named after a loader is not."""
    return name.startswith("enumerate(DataLoader)") or name.endswith(("DataLoaderIter.__next__", "_dataloader_next"))


def is_wait(name: str) -> bool:
    """Whether a call waits for the device."""
    return any(word in name for word in WAITS) or name in {"cudaFree", "hipFree"}
