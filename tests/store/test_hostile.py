"""Hostile segments: what would break a sum, a query or an answer later is refused at the door."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
from store_builders import COPY, GEMM, NORM, segment_of, stat, window_of

from roofwatch.model.record import Window
from roofwatch.proto import codec
from roofwatch.proto.codec import WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import unpack
from roofwatch.store.unpack import Unpacker


def small(name: str) -> Window:
    """A window of two kernels."""
    return window_of(name, [stat(GEMM, [1000, 2000], roof_ns=100.0), stat(NORM, [50])])


def changed(change: Callable[[pb.Segment], object], window: Window | None = None) -> pb.SegmentEnvelope:
    """A segment changed before it was sealed."""
    message = codec.segment([window or small("a")])
    change(message)
    return codec.seal(message, "agent-a", "boot-a", 1)


def with_signature(**more: object) -> Callable[[pb.Segment], object]:
    """Replace the segment's windows by one with this signature."""

    def change(message: pb.Segment) -> None:
        signature = dataclasses.replace(COPY, **more)
        message.CopyFrom(codec.segment([window_of("a", [stat(signature, [1])])]))

    return change


def ledger(**figures: int) -> Callable[[pb.Segment], object]:
    """Replace figures of the first window's ledger, whose device time is 3050 ns."""
    return lambda m: m.windows[0].ledger.MergeFrom(pb.Ledger(**figures))  # type: ignore[arg-type]


def with_graph(**figures: float) -> Callable[[pb.Segment], object]:
    """Give the first window a graph."""
    return lambda m: m.windows[0].graphs.append(pb.Graph(launches=1, records=1, **figures))  # type: ignore[arg-type]


def with_cause(**figures: int) -> Callable[[pb.Segment], object]:
    """Give the first device, idle for 100 ns, this cause alone."""

    def change(message: pb.Segment) -> None:
        message.windows[0].devices[0].CopyFrom(pb.DeviceWindow(span_ns=1100, busy_ns=1000))
        message.windows[0].devices[0].causes.append(pb.IdleCause(cause="sync", **figures))  # type: ignore[arg-type]

    return change


def with_state(**figures: object) -> Callable[[pb.Segment], object]:
    """Tell how the window's process stands."""
    return lambda m: m.states.append(pb.ProcessState(**figures))  # type: ignore[arg-type]


def budget(**figures: float) -> Callable[[pb.Segment], object]:
    """Give the first window an account."""
    return lambda m: m.windows[0].budget.MergeFrom(pb.BudgetState(**figures))  # type: ignore[arg-type]


HOSTILE: dict[str, tuple[Callable[[pb.Segment], object], str]] = {
    "total beyond limit": (lambda m: m.windows[0].kernels.total_ns.__setitem__(0, 1 << 63), "total_ns"),
    "calls beyond limit": (lambda m: m.windows[0].kernels.calls.__setitem__(0, (1 << 64) - 1), "calls"),
    "no such device": (lambda m: m.windows[0].kernels.device.__setitem__(0, 7), "device"),
    "no such signature": (lambda m: m.windows[0].kernels.signature.__setitem__(0, 7), "signature: 7 is out of range"),
    "kernel twice": (lambda m: m.windows[0].kernels.signature.__setitem__(1, 0), "twice in a window"),
    "short column": (lambda m: m.windows[0].kernels.step_ns.pop(), "unequal lengths"),
    "short roofs": (lambda m: m.windows[0].kernels.roof_ns.pop(), "kernel columns of unequal lengths"),
    "infinite roof": (lambda m: m.windows[0].kernels.roof_ns.__setitem__(0, math.inf), "roof_ns"),
    "roof without end": (lambda m: m.windows[0].kernels.roof_ns.__setitem__(0, 1e308), "roof_ns"),
    "ridge without end": (lambda m: m.windows[0].kernels.ridge.__setitem__(0, 1e300), "ridge"),
    "peak without end": (lambda m: setattr(m.dictionary.devices[0].bandwidth, "value", 1e300), "peak"),
    "negative ridge": (lambda m: m.windows[0].kernels.ridge.__setitem__(0, -1.0), "ridge"),
    "histogram beyond time": (lambda m: m.windows[0].kernels.histogram_low.__setitem__(0, 1 << 31), "histogram_low"),
    "histogram lengths": (lambda m: m.windows[0].kernels.histogram_length.__setitem__(0, 9), "histogram columns"),
    "start before 1970": (lambda m: setattr(m.windows[0], "start_unix_ns", -5), "starts at -5"),
    "spent without end": (budget(spent_share=math.inf), "a budget or what is spent"),
    "spent is no number": (budget(budget_share=math.nan), "a budget or what is spent"),
    "charged beyond limit": (budget(charged_ns=-(1 << 62)), "a budget's times"),
    "negative interval": (budget(interval_ns=-1), "an interval"),
    "state of no process": (with_state(process=7, unix_ns=1), "list index out of range"),
    "state before 1970": (with_state(unix_ns=-1), "the time of a state"),
    "skipped beyond limit": (with_state(unix_ns=1, skipped={"busy": 1 << 60}), "windows not taken"),
    "skipped for too many reasons": (with_state(unix_ns=1, skipped={str(i): 1 for i in range(99)}), "99 reasons"),
    "skipped for no text": (with_state(unix_ns=1, skipped={"a" * 99_999: 1}), "a text"),
    "negative duration": (lambda m: setattr(m.windows[0], "duration_ns", -5), "duration_ns"),
    "negative steps": (lambda m: setattr(m.windows[0], "steps", -7), "steps"),
    "negative device time": (lambda m: setattr(m.windows[0].ledger, "device_time_ns", -1), "ledger"),
    "busier than its span": (lambda m: setattr(m.windows[0].devices[0], "busy_ns", 1 << 40), "busy for"),
    "negative span": (lambda m: setattr(m.windows[0].devices[0], "span_ns", -9), "device's times"),
    "infinite peak": (lambda m: setattr(m.dictionary.devices[0].bandwidth, "value", math.inf), "peak"),
    "linked beyond all": (ledger(linked_ns=3051), "3051 ns linked is out of range, of 3050"),
    "backlog beyond all": (ledger(backlog_ns=3051), "backlog is out"),
    "classifiable beyond all": (ledger(classifiable_ns=3051), "classifiable is out"),
    "classified twice": (ledger(classifiable_ns=3000, classified_ns=2000, named_ns=1001), "named is out"),
    "more known than there is": (ledger(model_ns=10, model_known_ns=11), "model of known FLOPs is out"),
    "more disagreed than compared": (ledger(compared_ns=10, disagreed_ns=11), "disagreed is out"),
    "graphs beyond all": (with_graph(total_ns=3051), "more time in graphs"),
    "graph attributed beyond itself": (with_graph(total_ns=5, attributed_ns=6), "more time in graphs"),
    "graph more than certain": (with_graph(total_ns=5, attributed_ns=5, confidence=1.5), "confidence"),
    "causes beyond idle": (with_cause(total_ns=101, count=1, longest_ns=101), "causes of 101 ns of 100 ns idle"),
    "start-up beyond a cause": (with_cause(total_ns=5, count=1, longest_ns=5, startup_ns=6), "start-up"),
    "a stretch beyond its cause": (with_cause(total_ns=5, count=1, longest_ns=6), "stretch longer"),
    "exposed beyond busy": (lambda m: setattr(m.windows[0].devices[0], "exposed_copy_ns", 1 << 40), "exposed"),
    "text with a null": (lambda m: setattr(m.windows[0], "collector", "a\0b"), "text"),
    "endless text": (lambda m: setattr(m.dictionary.processes[0], "job", "x" * 70_000), "text"),
    "no host": (lambda m: setattr(m.dictionary.nodes[0], "host", ""), "node without a name"),
    "shapes that are not JSON": (with_signature(shapes="[[1,2"), "Expecting"),
    "shapes without end": (with_signature(shapes="[" * 60_000), "recursion"),
    "shapes of infinity": (with_signature(shapes="[1e999]"), "1e999"),
    "shapes of NaN": (with_signature(dtypes="[NaN]"), "NaN"),
    "shapes that are a number": (with_signature(shapes="5"), "no JSON list"),
    "dtypes that are an object": (with_signature(dtypes="{}"), "no JSON list"),
    "arguments that are nothing": (with_signature(arguments="null"), "no JSON object"),
    "arguments that are no JSON": (with_signature(arguments="{a"), "Expecting"),
    "a ridge of nothing": (lambda m: m.windows[0].kernels.ridge.__setitem__(0, 0.0), "ridge"),
    "a peak of nothing": (lambda m: setattr(m.dictionary.devices[0].bandwidth, "value", 0.0), "peak"),
    "a peak next to nothing": (lambda m: setattr(m.dictionary.devices[0].bandwidth, "value", 1e-300), "peak"),
    "negative FLOPs": (with_signature(flops=-5), "negative"),
    "kernel without a name": (with_signature(kernel=""), "without a name"),
}


@pytest.mark.parametrize(("change", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_segment_is_refused(change: Callable[[pb.Segment], object], reason: str) -> None:
    """What would break a sum, a query or an answer later is refused now, with its reason."""
    with pytest.raises(WireError, match=reason):
        Unpacker().unpack(changed(change))


def test_too_many_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of kernels is bounded before they are unpacked."""
    monkeypatch.setattr(unpack, "MAX_ROWS", 1)
    with pytest.raises(WireError, match="segment of 2 kernels: the limit is 1"):
        Unpacker().unpack(segment_of([small("a")], 1))


def test_known_signature_is_still_checked() -> None:
    """A signature that was seen before is compared by content: its id cannot be given to another kernel."""
    unpacker = Unpacker()
    unpacker.unpack(segment_of([window_of("a", [stat(GEMM, [5])])], 1))
    message = codec.segment([window_of("b", [stat(NORM, [5])])])
    message.dictionary.signatures.id[0] = GEMM.id
    with pytest.raises(WireError, match="is not the hash of its content"):
        unpacker.unpack(codec.seal(message, "agent-a", "boot-a", 2))
