"""What holds of every timeline: of random ones, and against the slow computation."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from reading import profile
from scenes import HOST_KINDS, Scene, Stage, acts, play, scenes
from slow_timeline import slow_cpu_timeline, slow_timelines
from timelines import BASE_NS, Timeline

from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.registry import read

bounded = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def told(device: RawDevice) -> tuple[Any, ...]:
    """All that a timeline says of a device."""
    return (
        device.index,
        device.span_ns,
        device.busy_ns,
        device.causes,
        device.exposed_copy_ns,
        device.exposed_communication_ns,
    )


def devices(timeline: Timeline) -> list[tuple[Any, ...]]:
    """All that is said of all devices; a timeline without a record of a device is none of these tests' business."""
    assume(has_records(timeline))
    return [told(device) for device in profile(timeline).devices]


def has_records(timeline: Timeline) -> bool:
    """Whether a device did anything."""
    return any("device" in e["args"] for e in timeline.events)


def agree(device: RawDevice, slow: Any) -> None:
    """The reader and the slow computation say the same."""
    assert {c.cause.value: (c.total_ns, c.count, c.longest_ns) for c in device.causes} == slow.causes
    assert (device.span_ns, device.busy_ns) == (slow.span, slow.busy)
    assert (device.exposed_copy_ns, device.exposed_communication_ns) == (slow.exposed_copy, slow.exposed_communication)


@settings(bounded, max_examples=600)
@given(scenes())
def test_the_slow_computation_agrees(scene: Scene) -> None:
    """Every figure of every device is that of the design's text, read slice by slice."""
    timeline = scene.timeline()
    assume(has_records(timeline))

    expected = slow_timelines(timeline.text())
    for device in profile(timeline).devices:
        agree(device, expected[device.index or 0])


@bounded
@given(scenes(), st.integers(0, 2000), st.integers(0, 2000))
def test_the_slow_computation_agrees_on_live_windows(scene: Scene, before: int, after: int) -> None:
    """With bounds that begin up to 2 ms before the first event and end up to 2 ms after the last."""
    timeline = scene.timeline().shifted(2000)
    assume(has_records(timeline))
    bounds = 2000 - before, scene.end(timeline) + after

    text = timeline.text()
    expected = slow_timelines(text, (round(bounds[0] * 1000), round(bounds[1] * 1000)))
    for device in profile(timeline, bounds).devices:
        agree(device, expected[device.index or 0])


@bounded
@given(scenes())
def test_causes_are_positive_and_add_up(scene: Scene) -> None:
    """Causes > 0 and their sum is idle; a cause's longest part is at most its total, at least its mean, and told of."""
    timeline = scene.timeline()
    assume(has_records(timeline))

    for device in profile(timeline).devices:
        assert 0 <= device.busy_ns <= device.span_ns
        assert min(device.exposed_copy_ns, device.exposed_communication_ns) >= 0
        assert device.exposed_copy_ns + device.exposed_communication_ns <= device.busy_ns
        assert sum(c.total_ns for c in device.causes) == device.span_ns - device.busy_ns
        assert len({c.cause for c in device.causes}) == len(device.causes)
        for cause in device.causes:
            assert 0 < cause.longest_ns <= cause.total_ns <= cause.longest_ns * cause.count
            assert cause.example
            assert len(cause.example) < 300


@bounded
@given(scenes(), st.integers(1, 10_000_000))
def test_time_shifting_changes_nothing(scene: Scene, by: int) -> None:
    """The same events up to ten seconds later, by whole nanoseconds."""
    timeline = scene.timeline()

    assert devices(timeline.shifted(by / 1000)) == devices(timeline)


@bounded
@given(scenes(), st.randoms(use_true_random=False))
def test_the_order_in_the_file_changes_nothing(scene: Scene, random: Any) -> None:
    """Events are written in any order; even the examples are the same."""
    timeline = scene.timeline()
    order = list(range(len(timeline.events)))
    random.shuffle(order)

    assert devices(timeline.ordered(order)) == devices(timeline)


@bounded
@given(scenes(stepped=True), acts(HOST_KINDS, 8))
def test_an_unrelated_thread_changes_nothing(scene: Scene, own: list[Any]) -> None:
    """A thread that launches nothing, inside the steps: loaders, waits, collectives, ops of its own."""
    timeline = scene.timeline()
    before = devices(timeline)
    end = scene.end(timeline) - 10  # of the step
    stage = Stage(timeline)
    assume(play(stage, own, 555) <= end)

    assert devices(stage.timeline) == before


@bounded
@given(scenes(stepped=True), st.data())
def test_work_inside_busy_time_changes_nothing(scene: Scene, data: Any) -> None:
    """A kernel on another stream, launched by another thread, that runs strictly inside a record.

    Some record of the device with a known launch ends later: it is asked about the window's end.
    """
    timeline = scene.timeline()
    before = devices(timeline)
    around = [e for e in timeline.events if "device" in e["args"] and e["end"] - e["begin"] >= 3000]
    assume(around)
    record = data.draw(st.sampled_from(around))
    begin = data.draw(st.integers(record["begin"] + 1, record["end"] - 2))
    end = data.draw(st.integers(begin + 1, record["end"] - 1))
    call = data.draw(st.integers(0, begin))
    device = record["args"]["device"]
    calls = {e["args"]["correlation"] for e in timeline.events if e["cat"] == "cuda_runtime"}
    own = [e for e in timeline.events if e["args"].get("device") == device]
    assume(any(e["args"]["correlation"] in calls and e["end"] > end for e in own))
    runs = begin / 1000, end / 1000
    timeline.launch("beside", call=(call / 1000, call / 1000), runs=runs, thread=556, stream=99, device=device)

    assert [told[:4] for told in devices(timeline)] == [told[:4] for told in before]


@bounded
@given(st.lists(acts(("op", "item_on_host", "loader", "collective_call"), 8), min_size=1, max_size=3), st.booleans())
def test_cpu_windows(threads: list[list[Any]], stepped: bool) -> None:
    """A window without a device: busy, and idle by cause, as the slow computation has them; never ``sync``."""
    timeline = Scene(threads, [], stepped).timeline()
    assume(any(e["cat"] == "cpu_op" for e in timeline.events))

    (device,) = profile(timeline).devices
    agree(device, slow_cpu_timeline(timeline.text()))
    assert {c.cause.value for c in device.causes} <= {"input", "communication", "host"}


def test_the_clocks_zero_changes_nothing() -> None:
    """The same events on a clock that counts from 1970, in microseconds with three decimals."""
    timeline = Timeline().op("aten::mm", (85, 96)).launch("k", call=90, runs=(100, 200)).loader((210.5, 300.25))
    timeline.op("aten::add", (400, 410)).launch("k", call=401, runs=(420, 430))
    document = timeline.document()
    del document["baseTimeNanoseconds"]
    text = json.dumps(document)
    for event in document["traceEvents"][1:]:
        exact = round(event["ts"] * 1000) + BASE_NS
        text = text.replace(f'"ts": {event["ts"]}', f'"ts": {exact // 1000}.{exact % 1000:03d}')

    absolute, relative = read(io.BytesIO(text.encode())), profile(timeline)
    assert absolute.start_unix_ns == relative.start_unix_ns
    assert [told(device) for device in absolute.devices] == [told(device) for device in relative.devices]
