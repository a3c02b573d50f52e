"""The benchmark of overhead: what its blocks say, by hand; and a whole quick case in a real job."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import overhead
from _overhead_figures import Block, Pair, Phase, figures, interval, slope
from _overhead_memory import flat

MS = 1_000_000


def block(*steps_ms: float) -> Block:
    """Steps of these lengths in a row."""
    ends = [1_000_000]
    for step in steps_ms:
        ends.append(ends[-1] + round(step * MS))
    return Block(ends)


def test_what_a_pair_lost_is_the_block_less_as_many_steps_of_its_neighbour() -> None:
    """A block on is held against its own number of steps off."""
    pair = Pair(on=block(10, 10, 30, 10), off=block(10, 12))  # 60 ms, less 4 × 11 ms
    assert pair.lost_ns == 16 * MS


def test_the_interval_is_students() -> None:
    """By hand, from a table of t."""
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])  # s = √2.5, t₄(0.975) = 2.7764
    assert found.mean == 3.0
    assert found.half == pytest.approx(2.7764 * math.sqrt(2.5 / 5), rel=1e-4)
    assert interval([1.0]).half == math.inf


def test_a_share_is_the_window_times_the_windows_in_the_time_they_stand_for() -> None:
    """Five windows in five minutes, 30 ms each."""
    phase = Phase(60.0, [Pair(block(10, 10 + lost), block(10, 10)) for lost in (20, 30, 40, 30, 30)], virtual_s=300.0)
    found = phase.share()
    assert found.mean == pytest.approx(0.030 / 60)
    assert found.half == pytest.approx(phase.a_window().half / 60e9)
    assert phase.enough()
    told = figures(phase)
    assert told["windows_a_minute"] == pytest.approx(1.0)
    assert told["longest_step"] == pytest.approx(5.0)  # 50 ms where 10 is usual
    assert told["longest_step_without"] == pytest.approx(1.0)


def test_a_window_that_was_put_off_adds_time_and_no_window() -> None:
    """The windows a minute are those that were taken."""
    phase = Phase(6.0, [Pair(block(10, 40), block(10, 10))] * 5, virtual_s=60.0)
    assert figures(phase)["windows_a_minute"] == pytest.approx(5.0)


def test_a_slope_and_its_interval() -> None:
    """Of a line, of a swing, and what counts as flat."""
    x = list(range(400))
    straight = slope(x, [7.0 + 2.0 * at for at in x])
    assert straight.value == pytest.approx(2.0)
    assert straight.half == pytest.approx(0.0, abs=1e-9)
    swinging = slope(x, [100.0 + (1 if (at // 20) % 2 else -1) for at in x])
    assert abs(swinging.value) < swinging.half
    assert flat(swinging, 2000, 1)
    assert not flat(straight, 2000, 1_000_000)
    assert flat(straight, 2000, 10_000_000)  # 4 kB of 10 MB


def test_the_table_goes_between_its_marks_and_nowhere_else() -> None:
    """The rest of README stays."""
    readme = f"a\n{overhead.BEGIN}\nold\n{overhead.END}\nb\n"
    assert overhead.written(readme, "new") == f"a\n{overhead.BEGIN}\nnew\n{overhead.END}\nb\n"
    with pytest.raises(SystemExit, match="README"):
        overhead.written("nothing", "new")


def test_what_does_not_hold_is_said() -> None:
    """Each limit by its own sentence; a step as long without a window is not the window's."""
    row = {
        "case": "ops",
        "idle": {"share": 0.0011},
        "default": {"share": {"mean": 0.0051}, "longest_step": 5.2, "longest_step_without": 5.1},
    }
    assert len(overhead.faults(row)) == 3
    row["default"] = {"share": {"mean": 0.0049}, "longest_step": 5.2, "longest_step_without": 5.3}
    assert overhead.faults(row) == ["ops: idle 0.110 %"]


@pytest.mark.skipif("ROOFWATCH_OVERHEAD" not in os.environ, reason="20 s; ROOFWATCH_OVERHEAD=1 runs it")
@pytest.mark.timeout(450)
def test_a_case_takes_real_windows_through_the_real_agent(tmp_path: Path) -> None:
    """A quick case from start to table."""
    case = overhead._overhead_case.Case("ops", "ops", 1, "eager")
    found = overhead._overhead_case.run(case, tmp_path, cap_s=0.2, idle_s=0.2)
    default = found["default"]
    assert found["idle"]["thread"] < 0.01
    assert 0 < found["idle"]["call_ns"] < 100_000
    assert default["pairs"] >= 1
    assert default["events"] > 100  # a step has 6,200; on a machine at its limit windows are cut short
    assert 0.5 < default["windows_a_minute"] < 2  # the clock has passed over about a minute each time
    assert default["steps_a_block"] >= 20
    assert "| eager | 1 |" in overhead.table([found], None)
