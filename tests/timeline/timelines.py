"""A small language of host and device spans that writes Kineto traces.

    Timeline().op("aten::mm", (85, 96)).launch("gemm", call=90, runs=(100, 200)).sync((210, 300))

Times are microseconds from the window's base, spans are (begin, end). What is said of a thread must nest, records of a
stream follow one another, and a record begins no earlier than its launch: anything else is a mistake in a test and is
refused when the trace is written.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

BASE_NS = 1_700_000_000_000_000_000
PROCESS, MAIN = 100, 100
CALL = 5  # µs that a call takes where only its begin is given
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
Span = tuple[float, float]
PREFIX = {"nvidia": "cuda", "amd": "hip"}
DEVICES = {
    "nvidia": {"name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_018_279_936},
    "amd": {"name": "AMD Instinct MI300X", "numSms": 304, "totalGlobalMem": 206_141_652_992},
}
COPIES = {
    "HtoD": ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)"),
    "DtoH": ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH (Device -> Pageable)"),
    "DtoD": ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
}


@dataclass
class Timeline:
    """A trace in the making; every method adds something and returns the timeline."""

    vendor: str = "nvidia"
    checked: bool = True
    events: list[dict[str, Any]] = field(default_factory=list)

    # What a thread does.

    def op(self, name: str, span: Span, *, thread: int = MAIN) -> Self:
        """An operator."""
        return self._add("cpu_op", name, span, thread, {})

    def note(self, name: str, span: Span, *, thread: int = MAIN) -> Self:
        """An annotation: a range of ``record_function``."""
        return self._add("user_annotation", name, span, thread, {})

    def step(self, number: int, span: Span, *, thread: int = MAIN) -> Self:
        """A step of the profiler."""
        return self.note(f"ProfilerStep#{number}", span, thread=thread)

    def loader(self, span: Span, *, thread: int = MAIN, name: str = LOADER) -> Self:
        """A data loader's next."""
        return self.note(name, span, thread=thread)

    def call(self, name: str, span: Span | float, *, thread: int = MAIN, correlation: int | None = None) -> Self:
        """A call of the runtime by its whole name."""
        args = {"correlation": self._next() if correlation is None else correlation}
        return self._add("cuda_runtime", name, _span(span), thread, args)

    def sync(self, span: Span, *, what: str = "DeviceSynchronize", thread: int = MAIN) -> Self:
        """A wait for the device, a stream or an event."""
        return self.call(PREFIX[self.vendor] + what, span, thread=thread)

    # What a thread launches.

    def launch(
        self,
        kernel: str,
        *,
        call: Span | float,
        runs: Span,
        api: str = "LaunchKernel",
        thread: int = MAIN,
        device: int = 0,
        stream: int = 7,
    ) -> Self:
        """A kernel and the call that launched it."""
        number = self._next()
        self.call(PREFIX[self.vendor] + api, call, thread=thread, correlation=number)
        return self._record("kernel", kernel, runs, number, device, stream)

    def copy(
        self,
        way: str,
        *,
        call: Span | float,
        runs: Span,
        pinned: bool = True,
        api: str = "MemcpyAsync",
        thread: int = MAIN,
        device: int = 0,
        stream: int = 7,
    ) -> Self:
        """A copy ("HtoD", "DtoH", "DtoD") and its call."""
        number = self._next()
        self.call(PREFIX[self.vendor] + api, call, thread=thread, correlation=number)
        return self._record("gpu_memcpy", COPIES[way][not pinned], runs, number, device, stream)

    def memset(self, *, call: Span | float, runs: Span, thread: int = MAIN, device: int = 0, stream: int = 7) -> Self:
        """A memset and its call."""
        number = self._next()
        self.call(f"{PREFIX[self.vendor]}MemsetAsync", call, thread=thread, correlation=number)
        return self._record("gpu_memset", "Memset (Device)", runs, number, device, stream)

    def item(self, span: Span, *, runs: Span, thread: int = MAIN, device: int = 0) -> Self:
        """``tensor.item()`` of a tensor on the device: a copy to the host and the wait for it, 1 µs inside the op."""
        begin, end = span
        self.op("aten::item", span, thread=thread).op("aten::_local_scalar_dense", (begin + 1, end - 1), thread=thread)
        self.copy("DtoH", call=(begin + 2, begin + 7), runs=runs, pinned=False, thread=thread, device=device)
        return self.sync((begin + 8, end - 1), what="StreamSynchronize", thread=thread)

    def collective(
        self, name: str, span: Span, *, runs: Span, thread: int = MAIN, device: int = 0, stream: int = 20
    ) -> Self:
        """A collective of NCCL, e.g. "all_reduce": its host call, which launches its kernel 2 µs before it ends."""
        self.note(f"nccl:{name}", span, thread=thread)
        kernel = f"ncclDevKernel_{name.title().replace('_', '')}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        return self.launch(
            kernel, call=(span[1] - 2, span[1] - 1), runs=runs, thread=thread, device=device, stream=stream
        )

    def graph(
        self,
        kernels: Iterable[tuple[str, Span]],
        *,
        call: Span | float,
        thread: int = MAIN,
        device: int = 0,
        stream: int = 7,
    ) -> Self:
        """A graph launch; all its kernels have the correlation of the one call."""
        number = self._next()
        self.call(f"{PREFIX[self.vendor]}GraphLaunch", call, thread=thread, correlation=number)
        for kernel, runs in kernels:
            self._record("kernel", kernel, runs, number, device, stream)
        return self

    def backlog(self, kernel: str, runs: Span, *, device: int = 0, stream: int = 7) -> Self:
        """A kernel whose launch lies before the window."""
        return self._record("kernel", kernel, runs, self._next(), device, stream)

    def unlaunched(self, kernel: str, runs: Span, *, device: int = 0, stream: int = 7) -> Self:
        """A kernel that does not tell what launched it."""
        return self._record("kernel", kernel, runs, None, device, stream)

    # The trace.

    def shifted(self, by: float) -> Timeline:
        """The same, later."""
        events = [
            {**e, "begin": e["begin"] + round(by * 1000), "end": e["end"] + round(by * 1000)} for e in self.events
        ]
        return Timeline(self.vendor, self.checked, events)

    def ordered(self, order: Sequence[int]) -> Timeline:
        """The same events, written in another order."""
        return Timeline(self.vendor, self.checked, [self.events[i] for i in order])

    def document(self) -> dict[str, Any]:
        """The trace as Kineto writes it.

        Raises:
            ValueError: the spans cannot be those of real threads and streams; the message names the first such one.
        """
        if self.checked:
            _check(self.events)
        devices = sorted({e["args"]["device"] for e in self.events if "device" in e["args"]})
        meta = {"ph": "M", "name": "process_name", "pid": PROCESS, "tid": 0, "ts": 0, "args": {"name": "python"}}
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": device, **DEVICES[self.vendor]} for device in devices],
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": [meta, *map(_written, self.events)],
            "traceName": "timeline.json",
        }

    def text(self) -> bytes:
        """The trace as a file."""
        return json.dumps(self.document(), indent=1).encode()

    def _next(self) -> int:
        taken = (e["args"].get("correlation") or 0 for e in self.events)
        return max(taken, default=0) + 1

    def _record(self, cat: str, name: str, runs: Span, number: int | None, device: int, stream: int) -> Self:
        args = {"device": device, "stream": stream} | ({} if number is None else {"correlation": number})
        return self._add(cat, name, runs, (device, stream), args)

    def _add(self, cat: str, name: str, span: Span, place: Any, args: dict[str, Any]) -> Self:
        begin, end = (round(time * 1000) for time in span)
        if not 0 <= begin <= end:
            raise ValueError(f"{name}: {span} is no span of the window")
        self.events.append({"cat": cat, "name": name, "begin": begin, "end": end, "place": place, "args": args})
        return self


def _span(call: Span | float) -> Span:
    return call if isinstance(call, tuple) else (call, call + CALL)


def _written(event: dict[str, Any]) -> dict[str, Any]:
    place = event["place"]
    pid, tid = place if isinstance(place, tuple) else (PROCESS, place)
    begin, length = event["begin"], event["end"] - event["begin"]
    times = {"ts": begin / 1000, "dur": length / 1000}
    return {
        "ph": "X",
        "cat": event["cat"],
        "name": event["name"],
        "pid": pid,
        "tid": tid,
        **times,
        "args": event["args"],
    }


def _check(events: list[dict[str, Any]]) -> None:
    places = defaultdict(list)
    for event in events:
        places[event["place"]].append(event)
    for place, own in places.items():
        on_device = isinstance(place, tuple)
        open_until: list[dict[str, Any]] = []
        for event in sorted(own, key=lambda e: (e["begin"], e["end"] if on_device else -e["end"])):
            while open_until and open_until[-1]["end"] <= event["begin"]:
                open_until.pop()
            if open_until and (on_device or event["end"] > open_until[-1]["end"]):
                raise ValueError(f"{event['name']} overlaps {open_until[-1]['name']} on {place}")
            open_until.append(event)
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    for event in events:
        launch = calls.get(event["args"].get("correlation")) if isinstance(event["place"], tuple) else None
        if launch is not None and event["begin"] < launch["begin"]:
            raise ValueError(f"{event['name']} runs before it is launched")
