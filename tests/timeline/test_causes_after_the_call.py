"""After the launch call, at the edges, over several streams, and on a CPU: by hand. Times are microseconds."""

from __future__ import annotations

import pytest
from reading import causes, examples, idle, only, profile
from timelines import Timeline

WORKER = 7  # another thread


def frame(vendor: str = "nvidia", first_ends: float = 200, second: float = 1000) -> Timeline:
    """The common frame."""
    timeline = Timeline(vendor).op("aten::mm", (85, 96)).launch("first", call=90, runs=(100, first_ends))
    return timeline.op("aten::add", (970, 986)).launch("second", call=980, runs=(second, second + 100))


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        (1030, {"launch_bound": 785, "launch_gap": 60}),
        (1031, {"launch_bound": 790, "launch_gap": 56}),
        (1035, {"launch_bound": 790, "launch_gap": 60}),
        (1036, {"launch_bound": 790, "unknown": 51, "launch_gap": 10}),
    ],
)
def test_how_long_after_the_launch(begins: float, expected: dict[str, float]) -> None:
    """The call 980-985; up to 50 after it began are the launch's own, beside the frame's 10.

    Later, its own 5 are launch bound, and up to 50 after its return the launch's own; what is longer is unknown.
    """
    assert idle(frame(second=begins)) == expected


def test_a_launch_call_that_takes_long_is_launch_bound() -> None:
    """A call 980-1900 that loads a module, its kernel at 1915: 780 before it, 920 in it, then 15 launch gap.

    A synchronize that returns at 300 makes the 780 sync, and not the 920.
    """
    timeline = Timeline().op("aten::mm", (85, 96)).launch("first", call=90, runs=(100, 200))
    timeline.op("aten::add", (970, 1901)).launch("second", call=(980, 1900), runs=(1915, 2000))

    assert idle(timeline) == {"launch_bound": 1705, "launch_gap": 25}
    assert idle(timeline.sync((210, 300))) == {"launch_bound": 925, "sync": 780, "launch_gap": 25}


def test_a_launch_call_that_copies_long_is_copy() -> None:
    """A copy from pageable memory, call 980-1900, that reaches the device only at 1890: 910 copy."""
    timeline = Timeline().op("aten::mm", (85, 96)).launch("first", call=90, runs=(100, 200))
    timeline.op("aten::copy_", (970, 1901)).copy("HtoD", call=(980, 1900), runs=(1890, 1899), pinned=False)
    timeline.op("aten::add", (1902, 1950))

    # 200-980 launch bound and 980-1890 copy; 1899-1950: to the window's end 1 in the copy, then 50 sync after it.
    assert idle(timeline) == {"copy": 911, "launch_bound": 785, "sync": 50, "launch_gap": 10}


def test_record_that_was_queued() -> None:
    """A kernel launched at 150, while first runs, that begins 40 after it ended: all launch gap.

    200-240 launch gap 40; 250-980 launch bound 730; the rest as in the frame: 5 + 10 and 20.
    """
    timeline = frame().launch("queued", call=150, runs=(240, 250))

    assert idle(timeline) == {"launch_bound": 735, "launch_gap": 70}


@pytest.mark.parametrize(("begins", "cause"), [(250, "launch_gap"), (251, "unknown")])
def test_record_that_was_queued_longer(begins: float, cause: str) -> None:
    """Launched at 150 and begun 50 after ``first`` ended: launch gap; a microsecond more: not known why."""
    expected = {"launch_bound": 985 - begins - 10, "launch_gap": 30}
    expected[cause] = expected.get(cause, 0) + begins - 200

    assert idle(frame().launch("queued", call=150, runs=(begins, begins + 10))) == expected


def test_inside_one_graph_launch() -> None:
    """Nodes run 220-230 and 260-270: the 30 between them are unknown; before the first it is a launch like any.

    200-220 was queued: 20 launch gap beside the frame's 30. 270-980: 710 launch bound beside the frame's 5.
    """
    timeline = frame().graph([("node 1", (220, 230)), ("node 2", (260, 270))], call=150)

    assert idle(timeline) == {"launch_bound": 715, "unknown": 30, "launch_gap": 50}


def test_inside_a_graph_launch_though_something_ran_between() -> None:
    """Nodes 220-230 and 260-270, and another stream's kernel 235-240 between them.

    The kernel ``other``, launched at 160, ends the gap 230-235: it was queued, 5 launch gap. 240-260 is ended by the
    graph's second node: 20 unknown. 200-220: 20 launch gap.
    """
    timeline = frame().graph([("node 1", (220, 230)), ("node 2", (260, 270))], call=150)
    timeline.launch("other", call=160, runs=(235, 240), stream=9)

    assert idle(timeline) == {"launch_bound": 715, "launch_gap": 55, "unknown": 20}


def test_backlog_is_busy_and_was_queued() -> None:
    """Records launched before the window run 20-60 and 80-84: busy; 60-80 was queued (20 launch gap).

    Then 84-100: 6 before the launch at 90 and 10 after it. The span begins with the first record.
    """
    read = profile(frame().backlog("early", (20, 60)).backlog("early", (80, 84)))

    (device,) = read.devices
    assert (device.span_ns, device.busy_ns) == (1_080_000, 244_000)
    assert causes(device) == {"launch_bound": 786, "launch_gap": 50}
    assert {g.kernel: g.backlog for g in read.groups} == {"first": False, "second": False, "early": True}


def test_end_of_the_window() -> None:
    """A step 80-1500 ends 400 after the last record. Nothing is launched any more; the thread waits 1110-1480.

    Idle 80-100: 10 launch bound, 10 gap. 200-1000: 780 launch bound (the wait returns later), 20 gap. 1100-1500: all
    sync, 370 in the call and 30 around it.
    """
    read = profile(frame().step(3, (80, 1500)).sync((1110, 1480)))

    assert read.steps == 1
    assert read.devices[0].span_ns == 1_420_000
    assert causes(read.devices[0]) == {"launch_bound": 790, "sync": 400, "launch_gap": 30}


def test_the_windows_end_is_the_thread_whose_record_ended_last() -> None:
    """A worker's kernel begins last (500-600) beside ``long``, 250-900, of the main thread, which then loads 910-1400.

    Step 240-1500: 900-1500 is asked of the main thread: 490 input, 10 + 100 launch bound. 240-250 launch gap.
    """
    timeline = Timeline().step(1, (240, 1500)).launch("long", call=240, runs=(250, 900)).loader((910, 1400))
    timeline.launch("short", call=400, runs=(500, 600), thread=WORKER, stream=9)

    assert idle(timeline) == {"input": 490, "launch_bound": 110, "launch_gap": 10}


def test_the_edges_of_a_live_window() -> None:
    """Bounds 0-1986 around the frame: 90 before the first launch, 780 before the second, 886 after the last record.

    The thread is silent for 1,000 after its last op, 986-1986: still launching. In a window that is one longer it is
    silent for 1,001, and the 887 of the last gap are host.
    """
    assert causes(only(frame(), (0, 1986))) == {"launch_bound": 1756, "launch_gap": 30}
    assert causes(only(frame(), (0, 1987))) == {"host": 887, "launch_bound": 870, "launch_gap": 30}


def test_without_host_events_idle_is_unknown() -> None:
    """Kernels alone: the 300 between them have no known cause."""
    assert idle(Timeline().backlog("a", (100, 200)).backlog("b", (500, 600))) == {"unknown": 300}


def test_a_record_that_does_not_tell_its_launch() -> None:
    """``lost`` 500-600 has no correlation: 200-500 is unknown. Then 600-980 launch bound; 5, 10 and 20 as before."""
    assert idle(frame().unlaunched("lost", (500, 600))) == {"launch_bound": 385, "unknown": 300, "launch_gap": 30}


def test_several_causes_in_one_gap() -> None:
    """200-1000 cut into: copy 210-250, loader 300-500, a collective 510-540, a stream wait 600-650, the rest drained.

    Input 200, copy 40, communication 30, sync 50; left of the 780: 460, sync because the copy and the wait returned.
    """
    timeline = frame().call("cudaMemcpy", (210, 250)).loader((300, 500)).note("nccl:all_reduce", (510, 540))
    timeline.sync((600, 650), what="StreamSynchronize")

    expected = {"sync": 510, "input": 200, "copy": 40, "communication": 30, "launch_gap": 30, "launch_bound": 5}
    assert idle(timeline) == expected


def test_the_first_match_wins() -> None:
    """A collective 300-400 with a synchronize 310-390 inside.

    Sync comes before communication: 80 sync inside 100, 20 communication, and the rest drained. In a loader's next
    290-410 all of it is input.
    """
    timeline = frame().note("nccl:all_reduce", (300, 400)).sync((310, 390))

    assert idle(timeline) == {"sync": 760, "launch_gap": 30, "communication": 20, "launch_bound": 5}
    assert idle(timeline.loader((290, 410))) == {"sync": 660, "input": 120, "launch_gap": 30, "launch_bound": 5}


def test_other_threads_do_not_explain() -> None:
    """A loader and a synchronize on another thread say nothing about the launching one."""
    timeline = frame().loader((250, 400), thread=WORKER).sync((410, 450), thread=WORKER)

    assert idle(timeline) == {"launch_bound": 785, "launch_gap": 30}


def test_each_gap_is_asked_of_the_thread_that_ends_it() -> None:
    """Forward on the main thread, backward launched by an autograd thread (7), the optimizer on the main thread again.

    first 100-200 (main); back 500-600, launched at 480 by the worker, which waits 300-400; last 1000-1100, launched
    at 980 by the main thread, which loads 300-700.
    200-500: the worker's wait 100 sync, the other 180 sync too (it returned), 20 launch gap; the loader says nothing.
    600-1000: main: 100 input, 280 launch bound, 20 launch gap; the worker's wait says nothing. And 5, 10 of the frame.
    """
    timeline = frame().loader((300, 700))
    timeline.sync((300, 400), thread=WORKER).op("aten::mm", (470, 490), thread=WORKER)
    timeline.launch("back", call=480, runs=(500, 600), thread=WORKER)

    assert idle(timeline) == {"launch_bound": 285, "sync": 280, "input": 100, "launch_gap": 50}


def test_a_record_without_length_ends_no_gap() -> None:
    """Idle 100-900 ends with b, launched at 890 from the thread that waited; not with an empty one of another thread.

    790 until b's launch and 10 at the end are sync (a wait of 110-880, which drained the device), 10 + 5 launch gap,
    5 before a's launch.
    """
    timeline = Timeline().step(1, (0, 1000), thread=90).launch("a", call=(5, 9), runs=(10, 100)).sync((110, 880))
    timeline.launch("empty", call=(20, 25), runs=(900, 900), thread=101, stream=8)
    timeline.launch("b", call=(890, 895), runs=(900, 990))
    assert idle(timeline) == {"sync": 800, "launch_gap": 15, "launch_bound": 5}


def test_of_records_that_begin_together_one_from_before_the_window_ends_the_gap() -> None:
    """At 130 a record of the backlog and one launched at 120 begin: the first was queued, so 30 µs are launch gap.

    With 5 before a's launch and 5 after it, and 10 at the end, launch bound.
    """
    timeline = Timeline().step(1, (0, 300), thread=90).launch("a", call=(5, 9), runs=(10, 100))
    timeline.launch("b", call=(120, 125), runs=(130, 290), stream=8).backlog("old", (130, 200))
    assert idle(timeline) == {"launch_bound": 15, "launch_gap": 35}


def test_of_records_that_begin_together_the_first_launched_ends_the_gap() -> None:
    """``second`` (launched at 980 by main) and ``other`` (at 700 by a worker that waits 600-650) both begin at 1000.

    The worker launched first, 300 before: 200-700 is its 50 in the wait and 450 drained; 700-705 in its call; 295
    after its return, unknown. In whatever order they are written.
    """
    timeline = (
        frame().sync((600, 650), thread=WORKER).launch("other", call=700, runs=(1000, 1050), thread=WORKER, stream=9)
    )
    expected = {"sync": 500, "unknown": 295, "launch_bound": 10, "launch_gap": 10}

    assert idle(timeline) == expected
    assert idle(timeline.ordered(list(reversed(range(len(timeline.events)))))) == expected


def test_all_streams_make_a_device_busy() -> None:
    """Kernels 100-300 and 200-400 on two streams: busy 300 of 300, idle nothing."""
    device = only(Timeline().backlog("a", (100, 300)).backlog("b", (200, 400), stream=20))

    assert (device.span_ns, device.busy_ns, device.causes) == (300_000, 300_000, ())


def test_devices_have_their_own_timelines() -> None:
    """Two devices, one launching thread: each has its own records, span and gaps.

    Step 0-1000. Device 0: 100-200 and 300-400, launched at 90 and 290; device 1: 150-160, launched at 140.
    Device 0: 90 + 90 launch bound until its launches, 10 + 10 launch gap, 600 to the end: launch bound.
    Device 1: 140 launch bound, 10 launch gap, 840 to the end: launch bound.
    """
    timeline = (
        Timeline().step(1, (0, 1000)).launch("a", call=90, runs=(100, 200)).launch("a", call=290, runs=(300, 400))
    )
    one, other = profile(timeline.launch("b", call=140, runs=(150, 160), device=1)).devices

    assert (one.index, one.span_ns, one.busy_ns, causes(one)) == (
        0, 1_000_000, 200_000, {"launch_bound": 780, "launch_gap": 20},
    )  # fmt: skip
    assert (other.index, other.span_ns, other.busy_ns, causes(other)) == (
        1, 1_000_000, 10_000, {"launch_bound": 980, "launch_gap": 10},
    )  # fmt: skip


def test_exposed_copies_and_communication() -> None:
    """What runs without compute beside it.

    Compute 100-200. All-reduce 190-230 and 300-340: 30 + 40 exposed. Copy 150-260: 60 without compute, of which 30
    are the all-reduce's, since an instant counts once: 30 exposed. A copy under compute, 110-120, is hidden. A memset
    255-262 is no compute: it hides nothing, and its own 2 after the copy are exposed with it, which leaves the 100 of
    the gemm as compute. Busy is 100-262 and 300-340 = 202.
    """
    timeline = Timeline().launch("gemm", call=0, runs=(100, 200)).copy("HtoD", call=10, runs=(150, 260), stream=8)
    timeline.copy("HtoD", call=20, runs=(110, 120), stream=8).memset(call=30, runs=(255, 262))
    timeline.collective("all_reduce", (40, 60), runs=(190, 230)).collective("all_reduce", (70, 90), runs=(300, 340))

    device = only(timeline)
    assert (device.busy_ns, device.exposed_copy_ns, device.exposed_communication_ns) == (202_000, 32_000, 70_000)


def test_rows_and_timeline_mean_the_same_by_communication() -> None:
    """A gemm for 100; then DeepEP for 600, a fusion named after a collective for 50, an unknown kernel of a c10d op.

    Exposed are DeepEP's 600 and the 30 of the op's kernel; the fusion computes.
    """
    timeline = Timeline().launch("gemm", call=0, runs=(100, 200))
    timeline.launch("void deep_ep::intranode::combine<__nv_bfloat16, 8>", call=10, runs=(200, 800))
    timeline.launch("triton_poi_fused_add_all_gather_into_tensor_0", call=20, runs=(800, 850))
    timeline.op("c10d::allreduce_", (30, 50)).launch("a_kernel_nobody_knows", call=35, runs=(850, 880))

    device = only(timeline)
    assert (device.busy_ns, device.exposed_communication_ns) == (780_000, 630_000)


def test_examples_say_what_and_where() -> None:
    """The longest part of each cause, by hand; the window begins at 85."""
    timeline = frame().call("cudaMemcpy", (210, 250)).loader((300, 500)).note("nccl:all_reduce", (510, 540))
    timeline.sync((600, 650), what="StreamSynchronize")
    gap = "before second; at 0.115 ms, a gap of 0.800 ms"

    assert examples(timeline) == {
        "sync": "after cudaStreamSynchronize the host took 0.330 ms to launch again, " + gap,
        "input": f"in enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, {gap}",
        "copy": f"in cudaMemcpy, {gap}",
        "communication": f"in nccl:all_reduce, {gap}",
        "launch_gap": f"0.020 ms after cudaLaunchKernel, {gap}",
        "launch_bound": "in aten::mm, before first; at 0.000 ms, a gap of 0.015 ms",
    }


def test_examples_of_waits_and_ops() -> None:
    """A wait that had returned, a copy's op, the op of a slow launch, a silence, a graph, a queue, the window's end."""
    assert examples(frame(first_ends=400).sync((150, 300)))["sync"] == (
        "after cudaDeviceSynchronize the host took 0.580 ms to launch again, "
        "before second; at 0.315 ms, a gap of 0.600 ms"
    )
    copied = frame().op("aten::copy_", (205, 310)).sync((210, 300), what="StreamSynchronize")
    assert str(examples(copied)["copy"]).startswith("in cudaStreamSynchronize of aten::copy_, before second")
    slow = Timeline().op("aten::add", (90, 1901)).launch("k", call=(100, 1900), runs=(1915, 2000))
    assert examples(slow)["launch_bound"] == (
        "in cudaLaunchKernel of aten::add, before k; at 0.000 ms, a gap of 1.825 ms"
    )
    silent = frame().op("aten::relu", (3000, 3010)).launch("late", call=3002, runs=(3020, 3030))
    assert examples(silent)["host"] == "no event after aten::add, before late; at 1.015 ms, a gap of 1.920 ms"
    graph = frame().graph([("node 1", (220, 230)), ("node 2", (260, 270))], call=150)
    assert examples(graph)["unknown"] == "inside one graph launch, before node 2; at 0.145 ms, a gap of 0.030 ms"
    early = Timeline().step(1, (0, 100)).backlog("old", (60, 70)).launch("k", call=60, runs=(75, 100))
    assert examples(early)["unknown"] == "launched before the window, before old; at 0.000 ms, a gap of 0.060 ms"
    ended = frame().step(1, (85, 1500)).sync((1110, 1480))
    assert (
        examples(ended)["sync"] == "in cudaDeviceSynchronize, before the window's end; at 1.015 ms, a gap of 0.400 ms"
    )


def test_an_example_is_short_whatever_the_names_are() -> None:
    """Names of 4,000 characters: an op's and a kernel's keep 240 each, of both ends, and lose their middle."""
    timeline = Timeline().op("o" * 4000, (85, 96)).launch("k" * 4000, call=90, runs=(100, 200))

    example = examples(timeline)["launch_bound"]
    assert example == f"in {'o' * 160}…{'o' * 79}, before {'k' * 160}…{'k' * 79}; at 0.000 ms, a gap of 0.015 ms"


def test_cpu_window() -> None:
    """No device: busy is where any thread runs an op; idle is input in the loader, communication in a collective.

    Step 0-1000; ops 100-300 and 250-400 on two threads, 800-900: busy 400. Idle 600: loader 450-550 = 100,
    gloo 540-600 = 50 more, host the other 450.
    """
    timeline = Timeline().step(1, (0, 1000))
    timeline.op("aten::mm", (100, 300)).op("aten::mm", (250, 400), thread=WORKER).op("aten::add", (800, 900))
    timeline.loader((450, 550)).note("gloo:all_reduce", (540, 600), thread=9)

    device = only(timeline)
    assert (device.vendor, device.span_ns, device.busy_ns) == ("cpu", 1_000_000, 400_000)
    assert causes(device) == {"host": 450, "input": 100, "communication": 50}
    assert {c.cause.value: c.example for c in device.causes} == {
        "host": "between aten::mm and aten::add; at 0.400 ms, a gap of 0.400 ms",
        "input": "in enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__; at 0.400 ms, a gap of 0.400 ms",
        "communication": "in gloo:all_reduce; at 0.400 ms, a gap of 0.400 ms",
    }


def test_item_on_a_cpu_is_an_op() -> None:
    """A CPU window full of ``.item()``: ops, so busy, and never sync. Step 0-100, items 10-20 and 50-60: 80 host."""
    timeline = Timeline().step(1, (0, 100)).op("aten::item", (10, 20)).op("aten::item", (50, 60))

    assert idle(timeline) == {"host": 80}


def test_annotations_written_as_ops() -> None:
    """The oldest writers recorded ranges as ops: step 0-1000, loader 100-600, its ``aten::stack`` 500-600, mm 700-800.

    Busy is 200; the loader's other 400 are input, and 400 host.
    """
    timeline = Timeline().op("ProfilerStep#1", (0, 1000))
    timeline.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", (100, 600)).op("aten::stack", (500, 600))

    assert idle(timeline.op("aten::mm", (700, 800))) == {"host": 400, "input": 400}
