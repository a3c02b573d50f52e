"""Windows whose bounds are known: what was taken is the span, not what happened in it. Times are microseconds."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collectors.base import Limits
from roofwatch.collectors.kineto.bounds import CLOCK_SLACK_NS
from roofwatch.collectors.registry import read
from roofwatch.model.errors import RoofwatchError

BASE = 1_700_000_000_000_000_000
H100 = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_018_279_936}]
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.fixture
def taken(tmp_path):
    """Reads a trace as the window from ``begin`` to ``end`` microseconds on its own clock."""

    def run(trace: Any, begin: float, end: float, base: int = BASE):
        path = tmp_path / "some.trace"
        path.write_bytes(trace if isinstance(trace, bytes) else trace.text())
        return read(path, Limits(), bounds=(base + round(begin * 1000), base + round(end * 1000)))

    return run


def spent(device) -> tuple[float, float, dict[str, float]]:
    """Span, busy, and cause → idle, in microseconds; busy and the causes are the span to the nanosecond."""
    assert 0 <= device.busy_ns <= device.span_ns
    assert all(c.total_ns > 0 for c in device.causes)
    assert sum(c.total_ns for c in device.causes) == device.span_ns - device.busy_ns
    return device.span_ns / 1000, device.busy_ns / 1000, {c.cause.value: c.total_ns / 1000 for c in device.causes}


def empty(trace):
    """What a recorder writes that has heard nothing."""
    return trace.add("Trace", "PyTorch Profiler (0)", 0, 120_000)


def test_the_gap_before_the_first_op(trace, taken, read_trace) -> None:
    """One op from 50 to 90 ms in a window of 100: busy 40, host 60, a call of a step. A file knows only the 40."""
    trace.op("aten::mm", 50_000, 40_000)
    profile = taken(trace, 0, 100_000)

    assert spent(profile.devices[0]) == (100_000, 40_000, {"host": 60_000})
    assert (profile.start_unix_ns, profile.duration_ns, profile.steps) == (BASE, 100_000_000, None)
    assert [(g.step_calls, g.step_ns) for g in profile.groups] == [(1, 40_000_000)]
    assert profile.dropped == {}
    assert spent(read_trace(trace).devices[0]) == (40_000, 40_000, {})
    assert read_trace(trace).duration_ns == 40_000_000


def test_loading_right_after_the_step(trace, taken) -> None:
    """The loader's next from 1 to 48 ms, before any op: 47 input, 60 - 47 = 13 host."""
    trace.note(LOADER, 1_000, 47_000).op("aten::mm", 50_000, 40_000)

    assert spent(taken(trace, 0, 100_000).devices[0]) == (100_000, 40_000, {"input": 47_000, "host": 13_000})


def test_the_profilers_own_steps_do_not_narrow_the_window(trace, taken) -> None:
    """A range ``ProfilerStep#7`` from 50 to 90 ms is the job's own; the window stays 100, its steps the hook's."""
    profile = taken(trace.note("ProfilerStep#7", 50_000, 40_000).op("aten::mm", 60_000, 10_000), 0, 100_000)

    assert spent(profile.devices[0]) == (100_000, 10_000, {"host": 90_000})
    assert profile.steps is None


def test_an_op_in_flight_at_the_cut(trace, taken) -> None:
    """An op from 95 to 130 ms in a window of 100: span 130, busy 35. It began inside, so it is one of the steps'."""
    profile = taken(trace.op("aten::mm", 95_000, 35_000), 0, 100_000)

    assert spent(profile.devices[0]) == (130_000, 35_000, {"host": 95_000})
    assert (profile.duration_ns, profile.groups[0].step_calls) == (100_000_000, 1)


def test_a_window_in_which_nothing_happened(trace, taken, read_trace) -> None:
    """No op in 100 ms: a CPU that was idle for 100 ms. As a file it stays a sentence."""
    profile = taken(empty(trace), 0, 100_000)

    assert [device.vendor for device in profile.devices] == ["cpu"]
    assert spent(profile.devices[0]) == (100_000, 0, {"host": 100_000})
    assert (profile.groups, profile.events_read, profile.duration_ns) == ([], 1, 100_000_000)
    assert (profile.has_host_events, profile.steps, profile.dropped) == (False, None, {})
    with pytest.raises(RoofwatchError, match="neither a device record nor an operator"):
        read_trace(trace)


def test_nothing_but_a_loader(trace, taken) -> None:
    """Only the loader's next, from 10 to 70 ms and begun again at 90: 60 + 10 input, 30 host."""
    trace.note(LOADER, 10_000, 60_000).note(LOADER, 90_000, 40_000)

    assert spent(taken(trace, 0, 100_000).devices[0]) == (100_000, 0, {"input": 70_000, "host": 30_000})


def test_what_was_lost_is_not_idle(trace, taken) -> None:
    """A cut file, a list without events, an event without a time, launches without records: errors with bounds too."""
    whole = empty(trace).text()
    bad = json.loads(whole)
    bad["traceEvents"].append({"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": "?", "dur": 1})
    launching = json.loads(whole)
    launching["traceEvents"].append(
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 7.0, "dur": 1.0,
         "args": {"correlation": 1}}
    )  # fmt: skip
    for data in (whole[:-20], b'{"traceEvents": []}', json.dumps(bad).encode(), json.dumps(launching).encode()):
        with pytest.raises(RoofwatchError):
            taken(data, 0, 100_000)


@pytest.mark.parametrize(
    ("begin", "op", "span", "counted"),
    [
        (0, 7_050_000, 110_000, True),  # 7 s late: moved so that the op's begin is the end; it runs on for 10 ms
        (7_000_000, 50_000, 100_000, True),  # 7 s early: moved to begin with the op
        (10_000, 5_000, 100_000, False),  # 5 ms early: the start was noted late
        (0, 100_700, 110_000, False),  # begun 0.7 ms after the end was noted
        (CLOCK_SLACK_NS // 1000, 0, 100_000, False),  # exactly the slack
        (CLOCK_SLACK_NS // 1000 + 1, 0, 100_000, True),  # and 1 µs more
    ],
)
def test_clocks_that_disagree(trace, taken, begin, op, span, counted) -> None:
    """A window of 100 ms with one op of 10 that begins outside it: busy 10, and never less span than was taken."""
    profile = taken(trace.op("aten::mm", op, 10_000), begin, begin + 100_000)

    assert spent(profile.devices[0]) == (span, 10_000, {"host": span - 10_000})
    assert profile.groups[0].step_calls == 1
    assert profile.dropped == ({"clock_disagreement": 1} if counted else {})
    assert (profile.start_unix_ns, profile.duration_ns) == (BASE + begin * 1000, 100_000_000)


def test_ops_on_both_sides_of_the_bounds(trace, taken) -> None:
    """Ops 0-10 and 290-300 ms around bounds of 100-200: the longer of the two is believed, span 300, busy 20."""
    profile = taken(trace.op("aten::mm", 0, 10_000).op("aten::mm", 290_000, 10_000), 100_000, 200_000)

    assert spent(profile.devices[0]) == (300_000, 20_000, {"host": 280_000})
    assert profile.dropped == {"clock_disagreement": 1}


def test_a_clock_that_does_not_tell_its_zero(trace, taken) -> None:
    """No base: the bounds' length is kept and the disagreement counted; no events, and nothing is to disagree."""
    del trace.fields["baseTimeNanoseconds"]
    nothing = taken(empty(trace), 0, 100_000)
    assert spent(nothing.devices[0]) == (100_000, 0, {"host": 100_000})
    assert nothing.dropped == {}

    profile = taken(trace.op("aten::mm", 500, 10_000), 0, 100_000)
    assert spent(profile.devices[0]) == (100_000, 10_000, {"host": 90_000})
    assert (profile.dropped, profile.start_unix_ns) == ({"clock_disagreement": 1}, BASE)


def one_kernel(trace):
    """An op 5000-5020, its launch 5005-5010, its kernel 5015-6015."""
    return trace.op("aten::mm", 5_000, 20).call("cudaLaunchKernel", 5_005, 5, 1).kernel("k", 5_015, 1_000, 1)


def test_gaps_at_both_ends_of_a_device(trace, taken, read_trace) -> None:
    """In a window of 10 ms: 0-5000 silent host, 5 launch bound, 10 launch gap, busy 1000, 6015-10000 host: 3985.

    As a file the span is 5000-6015.
    """
    profile = taken(one_kernel(trace), 0, 10_000)

    assert spent(profile.devices[0]) == (10_000, 1_000, {"host": 8_985, "launch_gap": 10, "launch_bound": 5})
    assert spent(read_trace(trace).devices[0]) == (1_015, 1_000, {"launch_gap": 10, "launch_bound": 5})
    assert profile.unused is None


def test_the_first_batch_of_a_window_is_input(trace, taken) -> None:
    """The loader's next 100-4900 before the first launch: 4800 input; 100 before and 100 after it are launching."""
    profile = taken(one_kernel(trace.note(LOADER, 100, 4_800)), 0, 10_000)

    expected = {"input": 4_800, "host": 3_985, "launch_bound": 205, "launch_gap": 10}
    assert spent(profile.devices[0]) == (10_000, 1_000, expected)


def test_records_that_outlast_the_bounds(trace, taken) -> None:
    """Bounds 1000-11000; backlog runs 500-1300, a kernel launched at 10990 runs 10995-13000: span 500-13000.

    Busy 800 + 2005; idle 1300-10995: host until the op at 10970, 20 launch bound, 5 launch gap. In the steps: only
    what was launched inside, though it runs on after them.
    """
    trace.kernel("old", 500, 800, 77).op("aten::mm", 10_970, 40)
    trace.call("cudaLaunchKernel", 10_990, 5, 1).kernel("new", 10_995, 2_005, 1)
    profile = taken(trace, 1_000, 11_000)

    assert spent(profile.devices[0]) == (12_500, 2_805, {"host": 9_670, "launch_bound": 20, "launch_gap": 5})
    assert {g.kernel: (g.backlog, g.step_calls, g.step_ns) for g in profile.groups} == {
        "old": (True, 0, 0), "new": (False, 1, 2_005_000),
    }  # fmt: skip
    assert profile.duration_ns == 10_000_000


def test_what_was_launched_after_the_cut_is_left_out(trace, taken) -> None:
    """A recorder that goes on to 40 ms tells of kernels launched at 10.5 and 35: not of this window, and counted."""
    one_kernel(trace).call("cudaLaunchKernel", 10_500, 5, 2).kernel("late", 10_510, 400, 2)
    trace.call("cudaLaunchKernel", 35_000, 5, 3).kernel("late", 35_010, 400, 3)
    profile = taken(trace, 0, 10_000)

    assert spent(profile.devices[0])[:2] == (10_000, 1_000)
    assert [g.kernel for g in profile.groups] == ["k"]
    assert profile.dropped == {"after_window": 2}


def test_records_alone_say_when_the_window_was(trace, taken) -> None:
    """Without any host event: a kernel at 2-3 ms is inside, one 7 s away moves the bounds next to it."""
    inside = taken(trace.kernel("k", 2_000, 1_000, 1), 0, 10_000)
    assert spent(inside.devices[0])[:2] == (10_000, 1_000)
    far = taken(trace, 7_000_000, 7_010_000)
    assert spent(far.devices[0])[:2] == (11_000, 1_000)
    assert (inside.dropped, far.dropped) == ({}, {"clock_disagreement": 1})


def test_a_device_for_which_nothing_was_launched(trace, taken, read_trace) -> None:
    """A trace that names an H100, with one op on the host, 10-20 ms of 100: the H100 was idle, 90 host, 10 launching.

    A trace that names no device is that of a CPU; a file says nothing of what is not in it.
    """
    trace.op("aten::sort", 10_000, 10_000)
    assert taken(trace, 0, 100_000).unused is None
    trace.fields["deviceProperties"] = H100

    assert spent(taken(trace, 0, 100_000).unused) == (100_000, 0, {"host": 90_000, "launch_bound": 10_000})
    assert read_trace(trace).unused is None


def test_an_unused_device_waits_for_what_the_host_did(trace, taken) -> None:
    """Loader 10-60 ms on the thread with the most events, another thread elsewhere: 50 input, 50 host. No event: host.

    A synchronize 70-80 that returns inside makes the rest of the launching part sync, here nothing.
    """
    assert spent(taken(empty(trace), 0, 100_000).unused) == (100_000, 0, {"host": 100_000})
    trace.note(LOADER, 10_000, 50_000).call("cudaDeviceSynchronize", 70_000, 10_000, 5)
    trace.note(LOADER, 0, 100_000, tid=9)

    expected = {"input": 50_000, "sync": 10_000, "host": 40_000}
    assert spent(taken(trace, 0, 100_000).unused) == (100_000, 0, expected)


events = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 90)), max_size=8)


@settings(max_examples=150, deadline=None)
@given(events, events, st.integers(0, 400), st.integers(0, 200))
def test_never_negative_never_lost(ops, kernels, begin, length) -> None:
    """Any ops and kernels (launched 3 ms before) against any bounds, in ms: all of it adds up, no span is shorter."""
    made = [{"ph": "X", "cat": "Trace", "name": "t", "pid": 0, "tid": 0, "ts": 0, "dur": 1}]
    common = {"ph": "X", "pid": 1, "tid": 1}
    made += [{**common, "cat": "cpu_op", "name": "a", "ts": ts * 1000, "dur": dur * 1000} for ts, dur in ops]
    for index, (ts, dur) in enumerate(kernels):
        args = {"correlation": index, "device": 0}
        launch = {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts * 1000, "dur": 5, "args": args}
        made += [
            launch,
            {**common, "cat": "kernel", "name": "k", "ts": ts * 1000 + 3000, "dur": dur * 1000, "args": args},
        ]
    file = io.BytesIO(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": made}).encode())
    profile = read(file, bounds=(BASE + begin * 10**6, BASE + (begin + length) * 10**6))

    for device in [*profile.devices, *([profile.unused] if profile.unused else [])]:
        assert device.span_ns >= length * 10**6
        assert 0 <= device.busy_ns <= device.span_ns
        assert sum(c.total_ns for c in device.causes) == device.span_ns - device.busy_ns
        assert all(0 < c.longest_ns <= c.total_ns for c in device.causes)
