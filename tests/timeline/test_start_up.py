"""Idle time that is a program's start, the host's own waits, and what Python did, with figures worked out by hand."""

from __future__ import annotations

import io
import json

import pytest
from reading import causes, examples, only, profile
from timelines import Timeline

from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.registry import read


def started(device: RawDevice) -> dict[str, tuple[float, int]]:
    """Cause → µs and stretches of it that are start-up."""
    assert all(c.startup_ns <= c.total_ns for c in device.causes)
    return {c.cause.value: (c.startup_ns / 1000, c.startup_count) for c in device.causes if c.startup_ns}


def lead(stepped: bool) -> Timeline:
    """A device that begins at 3000 and ends at 4000, then is idle for 500 until a second kernel of 500."""
    timeline = Timeline().op("aten::mm", (0, 3005)).launch("gemm", call=(2995, 3000), runs=(3000, 4000))
    timeline.op("aten::mm", (3500, 4500)).launch("gemm", call=(4490, 4495), runs=(4500, 5000))
    return timeline.step(1, (0, 5000), thread=90) if stepped else timeline


def test_before_the_first_record_of_a_file_without_steps() -> None:
    """2995 before the launch and 5 of its call; with steps somebody meant to record this time, so it counts."""
    assert started(only(lead(stepped=False))) == {"launch_bound": (2995, 1), "launch_gap": (5, 1)}
    assert started(only(lead(stepped=True))) == {}
    assert started(only(lead(stepped=False), bounds=(0, 5000))) == {}


def test_what_is_left_has_its_own_longest() -> None:
    """Of 2995 and 490 µs launch bound the second is not start-up: 490 is the longest of the rest, and told."""
    (found,) = (c for c in only(lead(stepped=False)).causes if c.cause == "launch_bound")
    assert (found.total_ns, found.count, found.longest_ns) == (3_485_000, 2, 2_995_000)
    assert (found.startup_ns, found.startup_count, found.steady_longest_ns) == (2_995_000, 1, 490_000)
    assert "at 4.000 ms" in (found.steady_example or "")


def test_a_loader_before_the_first_record_is_no_start_up() -> None:
    """2000 of 3000 in a data loader's next: the device waits for input, which comes back."""
    timeline = Timeline().op("aten::empty", (0, 1)).loader((1, 2001)).op("aten::mm", (2990, 3005))
    assert started(only(timeline.launch("gemm", call=(2995, 3000), runs=(3000, 4000)))) == {}


def loading(name: str, call: tuple[float, float], kernel: str = "b") -> Timeline:
    """Steps in which ``kernel`` runs at 8000, after a call over ``call``; "a" ran from 10 to 100."""
    timeline = Timeline().step(1, (0, 9000), thread=90).op("aten::add", (0, 8990))
    timeline.launch("a", call=(5, 9), runs=(10, 100)).call(name, call)
    return timeline.launch(kernel, call=(7990, 7995), runs=(8000, 8990))


@pytest.mark.parametrize(
    ("timeline", "expected"),
    [
        (loading("cudaLaunchKernel", (1000, 7000)), 1),  # 6000 of 7900
        (loading("cudaFree", (200, 7000)), 1),  # makes a context
        (loading("cudaMalloc", (200, 4200)), 1),  # 4000 of 7900
        (loading("cuModuleLoadData", (200, 4000)), 0),  # 3800 of 7900: less than half
        (loading("cudaLaunchKernel", (1000, 7000), kernel="a"), 0),  # a kernel that was there before
        (loading("cudaDeviceSynchronize", (200, 7000)), 0),  # a wait
        (loading("cudaMemcpyAsync", (200, 7000)), 0),
        (loading("cudaGraphLaunch", (200, 7000)), 0),  # as long each time
    ],
)
def test_long_calls_before_a_new_kernel(timeline: Timeline, expected: int) -> None:
    """The gap of 7900 before a kernel that is new in the window, at least half of it in calls of a millisecond."""
    device = only(timeline)
    assert sum(c.startup_ns for c in device.causes) == expected * 7_900_000
    assert sum(causes(device).values()) == (9000 - 90 - 990)


@pytest.mark.parametrize(("ends", "expected"), [(5000, 7900), (4000, 0)])
def test_the_capture_of_a_graph(ends: float, expected: int) -> None:
    """A graph captured from 1000 on, over 4000 of the 7900 µs between two calls of one kernel, or over 3000 of them."""
    timeline = Timeline().step(1, (0, 9000), thread=90).op("aten::add", (0, 8990))
    timeline.launch("a", call=(5, 9), runs=(10, 100)).call("cudaStreamBeginCapture", (990, 1000))
    timeline.call("cudaStreamEndCapture", (ends, ends + 10)).launch("a", call=(7990, 7995), runs=(8000, 8990))
    assert sum(c.startup_ns for c in only(timeline).causes) == expected * 1000


def test_one_stretch_at_the_onset_of_a_file() -> None:
    """A record of 20 µs, then nothing for 9 of 10 ms: no state that lasts. As much in the middle is one."""
    onset = Timeline().op("a", (0, 10_000)).launch("k", call=(0, 5), runs=(5, 25)).sync((30, 9000))
    onset.launch("k", call=(9010, 9015), runs=(9020, 10_000))
    assert sum(c.startup_ns for c in only(onset).causes) == 8_995_000 + 5000
    middle = Timeline().op("a", (0, 10_000)).launch("k", call=(0, 5), runs=(5, 2000)).sync((2010, 9000))
    middle.launch("k", call=(9010, 9015), runs=(9020, 10_000))
    assert sum(c.startup_ns for c in only(middle).causes) == 5000


def test_waits_are_the_hosts_own() -> None:
    """A synchronize of 40 and a blocking copy of 30 µs: 2 waits, 70, longest 40; that the device then idled is not."""
    timeline = Timeline().step(1, (0, 9000), thread=90).launch("a", call=(5, 9), runs=(10, 100)).sync((70, 110))
    timeline.copy("HtoD", call=(200, 230), runs=(210, 229), api="Memcpy").call("cudaFree", (300, 2000))
    assert profile(timeline.launch("a", call=(8000, 8005), runs=(8010, 8990))).waits == (2, 70_000, 40_000)


def test_a_short_wait_is_not_called_the_time() -> None:
    """A synchronize of 6 µs, and 394 until the next launch begins: sync by its definition, and the words say why."""
    timeline = Timeline().step(1, (0, 1000), thread=90).launch("a", call=(5, 9), runs=(10, 100)).sync((95, 101))
    found = examples(timeline.launch("a", call=(495, 500), runs=(501, 1000)))
    assert (found["sync"] or "").startswith(
        "after cudaDeviceSynchronize the host took 0.394 ms to launch again, before a; "
    )


def python(timeline: Timeline, *functions: tuple[str, float, float]) -> bytes:
    """The timeline with Python functions on its main thread."""
    document = timeline.document()
    for name, begin, end in functions:
        document["traceEvents"].append(
            {"ph": "X", "cat": "python_function", "name": name, "pid": 100, "tid": 100, "ts": begin, "dur": end - begin,
             "args": {"Python id": 1}}
        )  # fmt: skip
    return json.dumps(document).encode()


def test_a_silence_is_named_by_its_python() -> None:
    """The innermost function that covers most of 5 ms of silence; not one of 0.9 ms, nor one that covers less."""
    timeline = Timeline().step(1, (0, 6000), thread=90).op("aten::add", (0, 100))
    timeline.launch("a", call=(5, 9), runs=(10, 100)).launch("a", call=(5500, 5505), runs=(5510, 6000))
    text = python(
        timeline, ("train.py(3): main", 0, 5990), ("/srv/lib/images.py(129): preprocess", 150, 5400),
        ("images.py(9): resize", 200, 2000), ("x.py(1): f", 2500, 3400),
    )  # fmt: skip
    read_ = read(io.BytesIO(text))
    (host,) = (c for c in read_.devices[0].causes if c.cause == "host")
    assert (host.example or "").startswith("in images.py(129): preprocess, before a; ")
    assert read_.python_events == 4


def test_a_step_that_outlives_the_recording_is_cut_off() -> None:
    """The profiler recorded 2000 µs, the step says 90,000: the span ends with the recording."""
    document = Timeline().step(1, (0, 90_000), thread=90).launch("a", call=(5, 9), runs=(10, 100)).document()
    document["traceEvents"].append(
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 0,
         "dur": 2000, "args": {}}
    )  # fmt: skip
    assert read(io.BytesIO(json.dumps(document).encode())).devices[0].span_ns == 2_000_000
