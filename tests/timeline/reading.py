"""What the reader says of a timeline, in microseconds."""

from __future__ import annotations

import io

from timelines import Timeline

from roofwatch.collectors.base import RawDevice, RawProfile
from roofwatch.collectors.registry import read


def profile(timeline: Timeline, bounds: tuple[float, float] | None = None) -> RawProfile:
    """The profile; ``bounds`` of the window in microseconds on the timeline's clock."""
    base = timeline.document()["baseTimeNanoseconds"]
    taken = None if bounds is None else (base + round(bounds[0] * 1000), base + round(bounds[1] * 1000))
    return read(io.BytesIO(timeline.text()), bounds=taken)


def only(timeline: Timeline, bounds: tuple[float, float] | None = None) -> RawDevice:
    """The one device."""
    (device,) = profile(timeline, bounds).devices
    return device


def causes(device: RawDevice) -> dict[str, float]:
    """Cause → µs. They are positive and add up to idle to the nanosecond."""
    assert all(c.total_ns > 0 for c in device.causes)
    assert sum(c.total_ns for c in device.causes) == device.span_ns - device.busy_ns
    return {c.cause.value: c.total_ns / 1000 for c in device.causes}


def idle(timeline: Timeline) -> dict[str, float]:
    """Cause → µs of the one device."""
    return causes(only(timeline))


def examples(timeline: Timeline) -> dict[str, str | None]:
    """Cause → its example on the one device."""
    return {c.cause.value: c.example for c in only(timeline).causes}
