"""What the demo says about the cost of its windows."""

from __future__ import annotations

from typing import Any

from roofwatch.cli import demonstration

MS = 1_000_000
WINDOW = {"open_ns": 1 * MS, "quiesce_ns": 0, "close_ns": 10 * MS, "save_ns": 5 * MS, "free_ns": None}


def window(start_ms: int, duration_ms: int) -> dict[str, Any]:
    """A window that begins at a time and closes in 15 ms; it is counted with 500 ms after it."""
    return {**WINDOW, "start_unix_ns": start_ms * MS, "duration_ns": duration_ms * MS}


def ends(*durations_ms: int) -> list[int]:
    """When layers end, the first at 0; eight to warm up come before it."""
    moments = [*range(-8 * MS, 1, MS)]
    for duration in durations_ms:
        moments.append(moments[-1] + duration * MS)
    return moments


def test_lost_time_is_what_touched_layers_take_above_the_median() -> None:
    """Twelve layers of 100 ms, then 130 and 150 ms under a window of 1,200 to 1,300 ms, 100 ms for the 500 ms after.

    The span reaches from 1,199 to 1,815 ms: the layers that end at 1,200, 1,330, 1,480, 1,580, 1,680, 1,780 and
    1,880 are touched, 780 ms in all, seven of 100 ms are 700: 80 ms lost.
    """
    layers = ends(*[100] * 12, 130, 150, *[100] * 14)
    assert demonstration.lost_by_layers(layers, [window(1_200, 100)]) == 80 * MS


def test_too_few_layers_say_nothing() -> None:
    """Nineteen free layers are not enough to know what a layer takes."""
    assert demonstration.lost_by_layers(ends(*[100] * 19), []) is None
    assert demonstration.lost_by_layers([], [window(0, 100)]) is None


def test_a_job_with_steps_is_told_by_the_hooks_own_measurement() -> None:
    """Two windows, 30 ms lost: 15 each; a negative loss (noise) is not sold as a gain; nothing known is said so."""
    process = {"process": "a", "model": "m", "windows": 2, "lost_ns": 30 * MS, "lost_share": 0.005}
    rows = [
        {**window(0, 1), "process": "a", "represents_ns": None},
        {**window(9, 1), "process": "a", "represents_ns": 1},
    ]

    def said(**changes: Any) -> str:
        result = demonstration.Result({}, {"rows": [{**process, **changes}]}, {"rows": rows}, [])
        return demonstration.costs(result)[0]

    assert said() == "m: 2 windows, 15 ms lost to each, 0.5 % of its time"
    assert said(lost_ns=-5, lost_share=-0.1) == "m: 2 windows, ≈ 0 ms lost to each, ≈ 0 % of its time"
    assert said(lost_ns=None, lost_share=None) == "m: 2 windows, cost not known"
