"""Each cause of idle on a small timeline worked out by hand. Times are microseconds.

The common frame: one op launches kernel ``first``, another launches kernel ``second``:

    op 85-96, its launch 90-95, first 100-200                     op 970-986, its launch 980-985, second 1000-1100

so that the device is idle 85-100 (5 before the launch, 10 after it) and 200-1000 (780 before the launch, 20 after it).
Without anything else both parts before a launch are launch bound, 785, and both after it launch gap, 30.
"""

from __future__ import annotations

import pytest
from reading import causes, idle, only
from timelines import Timeline

WORKER = 7  # another thread


def frame(vendor: str = "nvidia", first_ends: float = 200, second: float = 1000) -> Timeline:
    """The common frame."""
    timeline = Timeline(vendor).op("aten::mm", (85, 96)).launch("first", call=90, runs=(100, first_ends))
    return timeline.op("aten::add", (970, 986)).launch("second", call=980, runs=(second, second + 100))


def test_launch_bound_and_launch_gap() -> None:
    """The frame alone: span 85-1100 = 1015, busy 200, idle 815 = 785 launch bound + 30 launch gap, two gaps each."""
    device = only(frame())

    assert (device.span_ns, device.busy_ns) == (1_015_000, 200_000)
    assert causes(device) == {"launch_bound": 785, "launch_gap": 30}
    assert [(c.count, c.longest_ns) for c in device.causes] == [(2, 780_000), (2, 20_000)]


@pytest.mark.parametrize(
    "name",
    [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "enumerate(DataLoader)",
        "enumerate(DataLoader)#_StatefulMultiProcessingDataLoaderIter.__next__",
        "_SingleProcessDataLoaderIter.__next__",
        "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
    ],
)
def test_input(name: str) -> None:
    """The thread is in the loader's next from 250 to 400: 150 of the 780 are input."""
    assert idle(frame().loader((250, 400), name=name)) == {"launch_bound": 635, "input": 150, "launch_gap": 30}


@pytest.mark.parametrize(
    "name", ["train_dataloader_epoch", "data_loader", "Epoch over enumerate(DataLoader)", "MyDataLoaderIter.__next__ x"]
)
def test_a_range_named_after_a_loader_is_not_input(name: str) -> None:
    """What a user calls a range that holds everything: nothing in it is input for its name."""
    assert idle(frame().loader((80, 1100), name=name)) == {"launch_bound": 785, "launch_gap": 30}


def test_input_covers_what_the_loader_calls() -> None:
    """A blocking copy inside the loader's next is input, the first match; but its return drains what is left: sync.

    The 5 before the first launch stay launch bound: the copy returns later.
    """
    timeline = frame().loader((250, 400)).call("cudaMemcpy", (300, 350))

    assert idle(timeline) == {"sync": 630, "input": 150, "launch_gap": 30, "launch_bound": 5}


@pytest.mark.parametrize("name", ["cudaMemcpy", "hipMemcpyWithStream", "hipMemcpy", "cudaMemcpy2D", "cuMemcpyDtoH_v2"])
def test_blocking_copy(name: str) -> None:
    """The thread is in a blocking copy from 210 to 300: 90 copy, the other 690 sync because it returned inside."""
    timeline = frame().call(name, (210, 300))

    assert idle(timeline) == {"sync": 690, "copy": 90, "launch_gap": 30, "launch_bound": 5}


def test_copy_to_pageable_memory_blocks() -> None:
    """An asynchronous copy to pageable memory, call 210-300, record 230-240 (busy): it is blocking.

    Idle 200-230 ends with the copy's record: 10 before its call are launch bound (the call returns only at 300), 20
    after it are launch gap. Idle 240-1000 ends with second: 60 in the copy, 680 sync after its return, 20 launch gap.
    """
    timeline = frame().copy("DtoH", call=(210, 300), runs=(230, 240), pinned=False)

    assert idle(timeline) == {"sync": 680, "copy": 60, "launch_gap": 50, "launch_bound": 15}


def test_copy_to_pinned_memory_does_not_block() -> None:
    """The same to pinned memory: 10 + 740 launch bound beside the frame's 5, 20 + 20 launch gap beside its 10."""
    timeline = frame().copy("DtoH", call=(210, 300), runs=(230, 240))

    assert idle(timeline) == {"launch_bound": 755, "launch_gap": 50}


def test_synchronize_inside_copy_op_is_copy() -> None:
    """``aten::copy_`` 205-310 waits for its copy in a stream synchronize 210-300: that is the copy."""
    timeline = frame().op("aten::copy_", (205, 310)).sync((210, 300), what="StreamSynchronize")

    assert idle(timeline) == {"sync": 690, "copy": 90, "launch_gap": 30, "launch_bound": 5}


def test_item_is_sync_even_where_it_copies() -> None:
    """``.item()`` from 150 to 262 with a blocking copy 160-258: all of 200-980 is sync, 62 inside it and 718 after."""
    timeline = frame("amd").op("aten::item", (148, 262)).op("aten::_local_scalar_dense", (150, 262))
    timeline.call("hipMemcpyWithStream", (160, 258))

    assert idle(timeline) == {"sync": 780, "launch_gap": 30, "launch_bound": 5}


def test_item_with_its_record() -> None:
    """``.item()`` 210-300, its copy's call 212-217 and record 250-260, its synchronize 218-299.

    Idle 200-250: 10 launch bound before the op; 2 sync until its call begins; 38 launch gap. Idle 260-1000: 40 in the
    op and 680 after its return, both sync; 20 launch gap. With the frame's own 5 and 10.
    """
    assert idle(frame().item((210, 300), runs=(250, 260))) == {"sync": 722, "launch_gap": 68, "launch_bound": 15}


def test_item_of_a_value_on_the_host_waits_for_nothing() -> None:
    """``.item()`` without any call inside, 210-300, is host code like any other op: the frame's own answer.

    An optimizer asks its step counters so, once a parameter.
    """
    timeline = frame().op("aten::item", (210, 300)).op("aten::_local_scalar_dense", (211, 299))

    assert idle(timeline) == {"launch_bound": 785, "launch_gap": 30}


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaDeviceSynchronize", True),
        ("cudaStreamSynchronize", True),
        ("cudaEventSynchronize", True),
        ("hipDeviceSynchronize", True),
        ("hipStreamSynchronize", True),
        ("hipEventSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaFree", True),
        ("cudaEventQuery", False),
        ("cudaStreamWaitEvent", False),
        ("cudaMemcpyAsync", False),
        ("hipMemcpyAsync", False),
        ("cudaFreeAsync", False),
    ],
)
def test_calls_that_wait_and_calls_that_do_not(name: str, waits: bool) -> None:
    """A call 300-500 that waits for the device makes all 780 sync; one that does not changes nothing."""
    expected = {"sync": 780, "launch_bound": 5} if waits else {"launch_bound": 785}

    assert idle(frame().call(name, (300, 500))) == {**expected, "launch_gap": 30}


@pytest.mark.parametrize(("returned", "drained"), [(199.999, False), (200, True), (200.5, True), (390, True)])
def test_drained_up_to_200_us_before(returned: float, drained: bool) -> None:
    """``first`` ends at 400: a wait that returned at 200 or later drained the device, an earlier one did not.

    Idle 85-100 (5 launch bound, 10 gap) and 400-1000 (580 before the launch, 20 after it).
    """
    expected = {"sync": 580, "launch_bound": 5} if drained else {"launch_bound": 585}

    assert idle(frame(first_ends=400).sync((150, returned))) == {**expected, "launch_gap": 30}


@pytest.mark.parametrize("name", ["c10d::allreduce_", "nccl:all_reduce", "gloo:all_reduce", "record_param_comms"])
def test_communication(name: str) -> None:
    """The thread is in a collective's host call from 220 to 260: 40 communication."""
    add = Timeline.op if name in {"c10d::allreduce_", "record_param_comms"} else Timeline.note

    assert idle(add(frame(), name, (220, 260))) == {"launch_bound": 745, "communication": 40, "launch_gap": 30}


def test_collective_with_its_kernel() -> None:
    """NCCL's host call 220-260 launches at 258 a kernel that runs 270-470; all of that is exposed communication.

    Idle 200-270: 20 launch bound, 38 communication, 12 launch gap. Idle 470-1000: 510 launch bound, 20 launch gap.
    """
    device = only(frame().collective("all_reduce", (220, 260), runs=(270, 470)))

    assert causes(device) == {"launch_bound": 535, "launch_gap": 42, "communication": 38}
    assert device.exposed_communication_ns == 200_000


def test_host() -> None:
    """Nothing on the thread from 96 to 4970: 4770 of the gap 200-5000 are host, 10 launch bound, 20 launch gap.

    An annotation around it all says nothing, so it does not count as an event.
    """
    timeline = Timeline().op("aten::mm", (85, 96)).launch("first", call=90, runs=(100, 200))
    timeline.op("aten::add", (4970, 4986)).launch("second", call=4980, runs=(5000, 5100)).note("iteration", (80, 5080))

    assert idle(timeline) == {"host": 4770, "launch_gap": 30, "launch_bound": 15}


@pytest.mark.parametrize(
    ("op_begins", "expected"), [(1096, {"launch_bound": 911}), (1097, {"host": 897, "launch_bound": 15})]
)
def test_a_silent_millisecond_is_not_host(op_begins: float, expected: dict[str, float]) -> None:
    """The thread is silent from 96 on. Exactly 1 ms of it is still launching, a microsecond more is host.

    ``second`` is launched 10 after its op begins: 200-1106 = 906 before it, beside the frame's 5. In the other case
    897 of 200-1107 lie in the silence and 10 after it.
    """
    timeline = Timeline().op("aten::mm", (85, 96)).launch("first", call=90, runs=(100, 200))
    timeline.op("aten::add", (op_begins, op_begins + 16))
    timeline.launch("second", call=op_begins + 10, runs=(op_begins + 30, op_begins + 130))

    assert idle(timeline) == {**expected, "launch_gap": 30}


def test_a_silence_is_the_threads_not_the_gaps() -> None:
    """The thread is silent 96-1300 while ``first`` runs on until 900: of the gap 900-1330, 400 are host."""
    timeline = Timeline().op("aten::mm", (85, 96)).launch("first", call=90, runs=(100, 900))
    timeline.op("aten::add", (1300, 1316)).launch("second", call=1310, runs=(1330, 1400))

    assert idle(timeline) == {"host": 400, "launch_gap": 30, "launch_bound": 15}


def test_an_event_without_length_ends_a_silence() -> None:
    """A thread that polls the device every 900, each time for less than the clock's resolution, is not silent.

    200-2780 is launch bound, 2580, beside the frame's 5.
    """
    timeline = Timeline().op("aten::mm", (85, 96)).launch("first", call=90, runs=(100, 200))
    for at in (900, 1800, 2700):
        timeline.call("cudaEventQuery", (at, at))
    timeline.op("aten::add", (2770, 2786)).launch("second", call=2780, runs=(2800, 2900))

    assert idle(timeline) == {"launch_bound": 2585, "launch_gap": 30}
