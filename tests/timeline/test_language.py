"""The timeline language writes what Kineto writes, and refuses what no real trace holds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from timelines import Timeline

WRITERS = {"nvidia": "h100_Qwen_Qwen1.5-0.5B-Chat", "amd": "mi300_Qwen1.5-0.5B"}


def everything(vendor: str) -> Timeline:
    """One of each sort of event."""
    timeline = Timeline(vendor).step(1, (0, 900)).op("aten::mm", (10, 30)).launch("k", call=12, runs=(20, 30))
    timeline.item((40, 80), runs=(50, 52)).memset(call=90, runs=(100, 101)).loader((110, 120))
    timeline.collective("all_reduce", (130, 150), runs=(150, 160)).graph([("g", (170, 180))], call=165)
    return timeline.copy("HtoD", call=190, runs=(200, 210)).sync((215, 220)).backlog("old", (0, 5))


@pytest.mark.parametrize("vendor", WRITERS)
def test_events_look_like_kinetos(traces: Path, vendor: str) -> None:
    """Each event's fields and arguments are among those of a real trace's events of its category; so are all calls."""
    path = traces / "kineto" / f"{WRITERS[vendor]}.json.gz"
    real = json.loads(gzip.decompress(path.read_bytes()))
    fields: dict[str, set[str]] = {}
    for event in real["traceEvents"]:
        if event["ph"] == "X":
            known = fields.setdefault(event["cat"], set())
            known |= set(event) | {f"args.{key}" for key in event.get("args", {})}
    names = {event["name"] for event in real["traceEvents"]}
    document = json.loads(everything(vendor).text())

    assert document.keys() <= real.keys()
    assert document["deviceProperties"][0].keys() <= real["deviceProperties"][0].keys()
    written = [event for event in document["traceEvents"] if event["ph"] == "X"]
    for event in written:
        assert set(event) | {f"args.{key}" for key in event["args"]} <= fields.get(event["cat"], fields["kernel"])
    assert {"cudaLaunchKernel", "cudaDeviceSynchronize", "hipLaunchKernel", "hipDeviceSynchronize"} & names <= {
        event["name"] for event in written
    }


def test_times_are_exact() -> None:
    """A nanosecond is not lost: 1,234,567.891 µs and a length of 0.001."""
    (event,) = Timeline().op("a", (1_234_567.891, 1_234_567.892)).document()["traceEvents"][1:]

    assert (json.dumps(event["ts"]), json.dumps(event["dur"])) == ("1234567.891", "0.001")


def test_what_shares_a_launch_shares_its_number() -> None:
    """A graph's kernels carry the number of its call; two launches have two; backlog has one that no call has."""
    timeline = Timeline().graph([("a", (10, 20)), ("b", (30, 40))], call=5).launch("c", call=41, runs=(50, 60))
    numbers: dict[str, Any] = {e["name"]: e["args"]["correlation"] for e in timeline.backlog("d", (0, 1)).events}

    assert numbers["a"] == numbers["b"] == numbers["cudaGraphLaunch"]
    assert numbers["c"] == numbers["cudaLaunchKernel"] != numbers["a"]
    assert numbers["d"] not in {numbers["a"], numbers["c"]}


@pytest.mark.parametrize(
    ("timeline", "message"),
    [
        (Timeline().op("a", (0, 10)).op("b", (5, 15)), "b overlaps a"),
        (Timeline().backlog("a", (0, 10)).backlog("b", (9, 15)), "b overlaps a"),
        (Timeline().backlog("a", (0, 10)).backlog("b", (2, 3)), "b overlaps a"),
        (Timeline().launch("a", call=5, runs=(4, 6)), "a runs before it is launched"),
    ],
)
def test_impossible_timelines(timeline: Timeline, message: str) -> None:
    """Ops that cross, records that overlap on a stream, a kernel before its launch."""
    with pytest.raises(ValueError, match=message):
        timeline.text()


def test_spans_outside_the_window() -> None:
    """A span that ends before it begins, or begins before the window."""
    with pytest.raises(ValueError, match="no span"):
        Timeline().op("a", (5, 4))
    with pytest.raises(ValueError, match="no span"):
        Timeline().op("a", (-1, 4))


def test_possible_timelines() -> None:
    """What touches, nests, or lies on another thread, stream or device is fine."""
    timeline = Timeline().op("a", (0, 10)).op("b", (0, 5)).op("c", (5, 10)).op("d", (3, 20), thread=7)
    timeline.backlog("k", (0, 10)).backlog("k", (10, 12)).backlog("k", (5, 12), stream=8).backlog(
        "k", (5, 12), device=1
    )

    assert len(timeline.document()["traceEvents"]) == 9
