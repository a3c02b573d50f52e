"""Causes of idle on small timelines worked out by hand. Times are microseconds in the traces, nanoseconds in answers.

The common frame: one op of thread 101 launches kernel ``first``, another launches kernel ``second``:

    op 85-96, its launch 90-95, first 100-200                     op 970-986, its launch 980-985, second 1000-1100

so that the device is idle 85-100 (5 before the launch, 10 after it) and 200-1000 (780 before the launch, 20 after it).
Without anything else both parts before a launch are launch bound, 785, and both after it launch gap, 30.
"""

from __future__ import annotations

import pytest

from roofwatch.model.record import Cause


def frame(trace):
    """The common frame."""
    trace.op("aten::mm", 85, 11).call("cudaLaunchKernel", 90, 5, 1).kernel("first", 100, 100, 1)
    return trace.op("aten::add", 970, 16).call("cudaLaunchKernel", 980, 5, 2).kernel("second", 1000, 100, 2)


def causes(device) -> dict[str, float]:
    """Cause → microseconds."""
    assert sum(c.total_ns for c in device.causes) == device.span_ns - device.busy_ns
    return {c.cause.value: c.total_ns / 1000 for c in device.causes}


def test_launch_bound_and_launch_gap(trace, read_trace) -> None:
    """The frame alone: span 85-1100 = 1015, busy 200, idle 815 = 785 launch bound + 30 launch gap, two gaps each."""
    device = read_trace(frame(trace)).devices[0]

    assert (device.span_ns, device.busy_ns) == (1_015_000, 200_000)
    assert causes(device) == {"launch_bound": 785, "launch_gap": 30}
    bound = device.causes[0]
    assert (bound.cause, bound.count, bound.longest_ns, bound.example) == (
        Cause.LAUNCH_BOUND, 2, 780_000, "before second",
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    ],
)
def test_input(trace, read_trace, name) -> None:
    """The thread is in the loader's next from 250 to 400: 150 of the 780 are input."""
    trace = frame(trace).note(name, 250, 150)

    assert causes(read_trace(trace).devices[0]) == {"launch_bound": 635, "input": 150, "launch_gap": 30}


def test_input_covers_what_the_loader_calls(trace, read_trace) -> None:
    """A blocking copy inside the loader's next is input, the first match; but its return drains what is left: sync."""
    trace = frame(trace).note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 250, 150)
    trace.call("cudaMemcpy", 300, 50, 9)

    # 15 launch gap of the first record stay apart: 5 before the first launch are launch bound, the return lies later.
    assert causes(read_trace(trace).devices[0]) == {"sync": 630, "input": 150, "launch_gap": 30, "launch_bound": 5}


@pytest.mark.parametrize("name", ["cudaMemcpy", "hipMemcpyWithStream", "hipMemcpy", "cudaMemcpy2D"])
def test_blocking_copy(trace, read_trace, name) -> None:
    """The thread is in a blocking copy from 210 to 300: 90 copy, the other 690 sync because it returned inside."""
    trace = frame(trace).call(name, 210, 90, 9)

    assert causes(read_trace(trace).devices[0]) == {"sync": 690, "copy": 90, "launch_gap": 30, "launch_bound": 5}


def test_copy_to_pageable_memory_blocks(trace, read_trace) -> None:
    """An asynchronous copy to pageable memory, call 210-300, record 230-240 (busy): it is blocking.

    Idle 200-230 ends with the copy's record: 10 before its call are launch bound (the call returns only at 300), 20
    after it are launch gap. Idle 240-1000 ends with second: 60 in the copy, 680 sync after its return, 20 launch gap.
    """
    trace = frame(trace).call("cudaMemcpyAsync", 210, 90, 9).copy("Memcpy DtoH (Device -> Pageable)", 230, 10, 9)

    assert causes(read_trace(trace).devices[0]) == {"sync": 680, "copy": 60, "launch_gap": 50, "launch_bound": 15}


def test_synchronize_inside_copy_op_is_copy(trace, read_trace) -> None:
    """``aten::copy_`` 205-310 waits for its copy in a stream synchronize 210-300: that is the copy."""
    trace = frame(trace).op("aten::copy_", 205, 105).call("cudaStreamSynchronize", 210, 90, 9)

    assert causes(read_trace(trace).devices[0]) == {"sync": 690, "copy": 90, "launch_gap": 30, "launch_bound": 5}


def test_item_is_sync_even_where_it_copies(trace, read_trace) -> None:
    """``.item()`` from 150 to 260, its copy call 160-258: all of 200-980 is sync, 60 inside it and 720 after it."""
    trace = frame(trace).op("aten::item", 148, 114).op("aten::_local_scalar_dense", 150, 110)
    trace.call("hipMemcpyWithStream", 160, 98, 9)

    assert causes(read_trace(trace).devices[0]) == {"sync": 780, "launch_gap": 30, "launch_bound": 5}


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cudaDeviceSynchronize", "sync"),
        ("cudaStreamSynchronize", "sync"),
        ("cudaEventSynchronize", "sync"),
        ("hipDeviceSynchronize", "sync"),
        ("cudaEventQuery", "launch_bound"),
        ("cudaStreamWaitEvent", "launch_bound"),
        ("cudaMemcpyAsync", "launch_bound"),
    ],
)
def test_calls_that_wait_and_calls_that_do_not(trace, read_trace, name, cause) -> None:
    """A call 300-500 that waits for the device makes all 780 sync; one that does not changes nothing."""
    trace = frame(trace).call(name, 300, 200, 9)

    expected = {"sync": 780, "launch_bound": 5} if cause == "sync" else {"launch_bound": 785}
    assert causes(read_trace(trace).devices[0]) == {**expected, "launch_gap": 30}


@pytest.mark.parametrize(("returned", "cause"), [(199, "sync"), (0.5, "sync"), (-0.5, "launch_bound")])
def test_drained_up_to_200_us_before(trace, read_trace, returned, cause) -> None:
    """``first`` is made to end at 400; a wait that returned at 200 or later drained the device, an earlier one did not.

    Idle 85-100 (5 launch bound, 10 gap) and 400-1000 (580 before the launch, 20 after it).
    """
    frame(trace).events[2]["dur"] = 300
    trace.call("cudaDeviceSynchronize", 150, 50 + returned, 9)

    expected = {"sync": 580, "launch_bound": 5} if cause == "sync" else {"launch_bound": 585}
    assert causes(read_trace(trace).devices[0]) == {**expected, "launch_gap": 30}


@pytest.mark.parametrize("name", ["c10d::allreduce_", "nccl:all_reduce", "gloo:all_reduce", "record_param_comms"])
def test_communication(trace, read_trace, name) -> None:
    """The thread is in a collective's host call from 220 to 260: 40 communication."""
    trace = frame(trace).note(name, 220, 40) if ":" in name[:5] else frame(trace).op(name, 220, 40)

    assert causes(read_trace(trace).devices[0]) == {"launch_bound": 745, "communication": 40, "launch_gap": 30}


def test_host(trace, read_trace) -> None:
    """Nothing on the thread from 96 to 4970: 4770 of the gap 200-5000 are host, 10 launch bound, 20 launch gap.

    An annotation or a Python range around it all says nothing, so it does not count as an event.
    """
    trace.op("aten::mm", 85, 11).call("cudaLaunchKernel", 90, 5, 1).kernel("first", 100, 100, 1)
    trace.op("aten::add", 4970, 16).call("cudaLaunchKernel", 4980, 5, 2).kernel("second", 5000, 100, 2)
    trace.note("whole iteration", 80, 5000).add("python_function", "train.py(1): main", 80, 5000)

    assert causes(read_trace(trace).devices[0]) == {"host": 4770, "launch_gap": 30, "launch_bound": 15}


def test_a_silent_millisecond_is_not_host(trace, read_trace) -> None:
    """A silence of exactly 1 ms is still launching; a microsecond more is host."""
    trace.op("aten::mm", 85, 11).call("cudaLaunchKernel", 90, 5, 1).kernel("first", 100, 100, 1)
    trace.op("aten::add", 1096, 16).call("cudaLaunchKernel", 1106, 5, 2).kernel("second", 1126, 100, 2)
    exactly = causes(read_trace(trace).devices[0])
    for event in trace.events[3:]:
        event["ts"] += 1

    assert exactly == {"launch_bound": 911, "launch_gap": 30}
    assert causes(read_trace(trace).devices[0]) == {"host": 897, "launch_gap": 30, "launch_bound": 15}


def test_other_threads_do_not_explain(trace, read_trace) -> None:
    """A loader and a synchronize on another thread say nothing about the launching one."""
    trace = frame(trace).note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 250, 150, tid=7)
    trace.call("cudaDeviceSynchronize", 300, 50, 9, tid=7)

    assert causes(read_trace(trace).devices[0]) == {"launch_bound": 785, "launch_gap": 30}


@pytest.mark.parametrize(("begins", "expected"), [(1030, "launch_gap"), (1031, "unknown")])
def test_long_after_the_launch_is_unknown(trace, read_trace, begins, expected) -> None:
    """50 after the launch call began are the launch's own; more is not explained by it."""
    frame(trace).events[5]["ts"] = begins
    after = begins - 980

    totals = causes(read_trace(trace).devices[0])
    assert totals == {"launch_bound": 785, "launch_gap": 10 + (after if expected == "launch_gap" else 0)} | (
        {"unknown": after} if expected == "unknown" else {}
    )


def test_record_that_was_queued(trace, read_trace) -> None:
    """A kernel launched at 150, while first runs, that begins 40 after it ended: all launch gap."""
    frame(trace).call("cudaLaunchKernel", 150, 5, 3).kernel("queued", 240, 10, 3)

    # 200-240 launch gap 40; 250-980 launch bound 730; the rest as in the frame: 5 + 10 and 20.
    assert causes(read_trace(trace).devices[0]) == {"launch_bound": 735, "launch_gap": 70}


def test_inside_one_graph_launch(trace, read_trace) -> None:
    """Between two kernels of one graph launch, 210-240, nothing is known; before the first it is a launch like any."""
    frame(trace).call("cudaGraphLaunch", 150, 5, 3).kernel("node 1", 200, 10, 3).kernel("node 2", 240, 10, 3)

    assert causes(read_trace(trace).devices[0]) == {"launch_bound": 735, "unknown": 30, "launch_gap": 30}


def test_backlog_is_busy_and_was_queued(trace, read_trace) -> None:
    """Records launched before the window run 20-60 and 80-84: busy; 60-80 was queued (20 launch gap).

    Then 84-100: 6 before the launch at 90 and 10 after it. The span begins with the first record.
    """
    frame(trace)
    trace.events[1]["args"]["correlation"] = trace.events[2]["args"]["correlation"] = 10
    trace.kernel("early", 20, 40, 4).kernel("early", 80, 4, 5)

    profile = read_trace(trace)

    device = profile.devices[0]
    assert (device.span_ns, device.busy_ns) == (1_080_000, 244_000)
    assert causes(device) == {"launch_bound": 786, "launch_gap": 50}
    assert {g.kernel: g.backlog for g in profile.groups} == {"first": False, "second": False, "early": True}


def test_end_of_the_window(trace, read_trace) -> None:
    """A step 80-1500 ends 400 after the last record. Nothing is launched any more; the thread waits 1110-1480.

    Idle 80-100: 10 launch bound, 10 gap. 200-1000: 780 launch bound (the wait returns later), 20 gap. 1100-1500: all
    sync, 370 in the call and 30 around it.
    """
    frame(trace).note("ProfilerStep#3", 80, 1420).call("cudaDeviceSynchronize", 1110, 370, 9)

    profile = read_trace(trace)

    assert profile.steps == 1
    assert profile.devices[0].span_ns == 1_420_000
    assert causes(profile.devices[0]) == {"launch_bound": 790, "sync": 400, "launch_gap": 30}


def test_without_host_events_idle_is_unknown(trace, read_trace) -> None:
    """Kernels alone: the 300 between them have no known cause."""
    trace.kernel("a", 100, 100, 1).kernel("b", 500, 100, 2)

    assert causes(read_trace(trace).devices[0]) == {"unknown": 300}


def test_all_streams_make_a_device_busy(trace, read_trace) -> None:
    """Kernels 100-300 and 200-400 on two streams: busy 300 of 300, idle nothing."""
    trace.kernel("a", 100, 200, 1).kernel("b", 200, 200, 2, stream=20)

    device = read_trace(trace).devices[0]
    assert (device.span_ns, device.busy_ns, device.causes) == (300_000, 300_000, ())


def test_devices_have_their_own_timelines(trace, read_trace) -> None:
    """Two devices in one trace: each has its own records, span and gaps."""
    trace.kernel("a", 100, 100, 1).kernel("a", 300, 100, 2).kernel("b", 100, 50, 3, device=1)

    one, other = read_trace(trace).devices
    assert (one.index, one.span_ns, one.busy_ns) == (0, 300_000, 200_000)
    assert (other.index, other.span_ns, other.busy_ns) == (1, 50_000, 50_000)


def test_exposed_copies_and_communication(trace, read_trace) -> None:
    """What runs without compute beside it.

    Compute 100-200. Copy 150-260: 60 exposed. All-reduce 190-230 and 300-340: 30 + 40 exposed. A copy under compute,
    110-120, is hidden. Busy is 100-260 and 300-340 = 200.
    """
    trace.kernel("gemm", 100, 100, 1).copy("Memcpy HtoD (Pinned -> Device)", 150, 110, 2)
    trace.copy("Memcpy HtoD (Pinned -> Device)", 110, 10, 5)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 190, 40, 3)
    trace.kernel("ncclKernel_AllReduce_RING_LL_Sum_float", 300, 40, 4)

    device = read_trace(trace).devices[0]
    assert (device.busy_ns, device.exposed_copy_ns, device.exposed_communication_ns) == (200_000, 60_000, 70_000)


def test_cpu_window(trace, read_trace) -> None:
    """No device: busy is where any thread runs an op; idle is input in the loader, communication in a collective.

    Step 0-1000; ops 100-300 and 250-400 on two threads, 800-900: busy 400. Idle 600: loader 450-550 = 100,
    gloo 540-600 = 50 more, host the other 450.
    """
    trace.note("ProfilerStep#1", 0, 1000)
    trace.op("aten::mm", 100, 200).op("aten::mm", 250, 150, tid=7).op("aten::add", 800, 100)
    trace.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 450, 100)
    trace.note("gloo:all_reduce", 540, 60, tid=9)

    device = read_trace(trace).devices[0]
    assert (device.vendor, device.span_ns, device.busy_ns) == ("cpu", 1_000_000, 400_000)
    assert causes(device) == {"host": 450, "input": 100, "communication": 50}
