"""One scene an explanation, in a real store; every figure worked out by hand.

A step that nothing holds up: 50 + 20 + 10 ms of kernels, 4 of copies, 2 of input, 1 of launches, 10 in the all_reduce.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rank_scenes import ADD, GEMM, JOB, KERNELS, MINUTE, MS, NORM, SORT, START, Step, scene, usual

from roofwatch.model import ranks_report
from roofwatch.model.errors import UsageError
from roofwatch.model.record import Cause, DeviceState, DeviceWindow, IdleCause
from roofwatch.store.filter import Filter

LATE = 3  # the rank that is


def late(step: Step, since: int = 0, rank: int = LATE) -> Any:
    """Like this from a moment on on one rank, as usual elsewhere."""
    return lambda r, moment: step if r == rank and moment >= since else Step()


def row_of(found: dict[str, Any], rank: int) -> dict[str, Any]:
    """The row of a rank."""
    return next(row for row in found["rows"] if row["rank"] == rank)


def test_nobody_is_late(ask: Any) -> None:
    """Eight ranks alike: a step of 97 ms each, of which 10 in communication, all of it moving; lateness 0."""
    found = ask(scene(usual))
    assert (found["straggler"], found["late"]) == (None, [])
    assert [row["rank"] for row in found["rows"]] == list(range(8))
    for row in found["rows"]:
        times = [row[f"{name}_ns"] for name in ("step", "compute", "exposed_copy", "communication", "idle")]
        assert times == [97 * MS, 80 * MS, 4 * MS, 10 * MS, 3 * MS]
        assert row["causes"] == {"input": 2 * MS, "launch_bound": MS}
        assert (row["moving_ns"], row["waiting_ns"], row["matched_share"]) == (10 * MS, 0, 1.0)
        assert (row["clock_hz"], row["throttle"], row["late_ns"], row["late"]) == (None, None, 0, False)
        assert (row["windows"], row["node"], row["device"]) == (6, "gpu-07", "NVIDIA H100 80GB HBM3")
    assert (found["job"]["job"], found["job"]["node"], found["job"]["ranks"]) == (JOB, "gpu-07", 8)
    assert (found["job"]["missing_count"], found["job"]["missing"]) == (0, [])
    assert (found["basis"]["compared"], found["basis"]["unit"], found["basis"]["moments"]) == ("steps", "step", 6)


def test_a_chip_whose_clock_is_low(ask: Any) -> None:
    """Rank 3 at 1.5 instead of 1.8 GHz, power capped: kernels bound by compute take 1.2 times as long, others do not.

    GEMM 60 ms instead of 50: 10 ms of 107 a step late. Each of the others waits 10 ms for it, 70 together.
    """
    slow = Step({**KERNELS, GEMM: 60 * MS}, clock_hz=1.5e9, throttle="power_cap")
    well = Step(clock_hz=1.8e9, throttle="")
    found = ask(scene(lambda r, _: slow if r == LATE else well))
    told = found["straggler"]
    assert (told["rank"], told["explanation"], told["late_ns"]) == (LATE, "chip", 10 * MS)
    assert told["late_share"] == pytest.approx(10 / 107)
    assert told["excess"] == {
        "compute_ns": 10 * MS, "input_ns": 0, "copies_ns": 0, "host_ns": 0, "network_ns": 0
    }  # fmt: skip
    chip = told["chip"]
    assert (chip["clock_hz"], chip["peers_clock_hz"], chip["clock_explains"]) == (1.5e9, 1.8e9, True)
    assert (chip["throttle"], chip["throttled_share"], chip["throttle_explains"]) == ("power_cap", 1.0, True)
    assert not chip["common_explains"]
    assert [row["waiting_ns"] for row in found["rows"]] == [10 * MS] * 3 + [0] + [10 * MS] * 4
    assert [row["moving_ns"] for row in found["rows"]] == [10 * MS] * 8
    assert row_of(found, LATE)["caused_ns"] == 70 * MS
    assert (row_of(found, LATE)["clock_hz"], row_of(found, 0)["clock_hz"]) == (1.5e9, 1.8e9)
    assert (row_of(found, LATE)["throttle"], row_of(found, 0)["throttle"]) == ("power_cap", "")
    assert (told["since_unix_ns"], told["since_step"], told["until_unix_ns"]) == (START, 0, None)
    assert (told["from_the_first"], told["windows"], told["few"]) == (True, 6, False)


def test_a_chip_whose_clock_was_not_read(ask: Any) -> None:
    """All kernels take 1.25 times as long, 100 ms instead of 80: no clock is needed to say that it is the chip."""
    found = ask(scene(late(Step({s: ns * 5 // 4 for s, ns in KERNELS.items()}))))
    told = found["straggler"]
    assert (told["rank"], told["explanation"], told["late_ns"]) == (LATE, "chip", 20 * MS)
    chip = told["chip"]
    assert (chip["clock_hz"], chip["clock_explains"], chip["throttle"], chip["throttle_explains"]) == (
        None, False, None, False
    )  # fmt: skip
    assert (chip["common_factor"], chip["common_kernels"], chip["common_explains"]) == (1.25, 3, True)


def test_kernels_that_are_slower_and_one_more(ask: Any) -> None:
    """The norm takes 30 ms instead of 20, and a sort of 5 ms is run that peers do not run; the GEMM is as it was.

    Of the 15 ms: norm 10 (1.5 times a call of 1 ms), sort 5. Three quarters of the peers' kernels are no slower.
    """
    found = ask(scene(late(Step({**KERNELS, NORM: 30 * MS, SORT: 5 * MS}))))
    told = found["straggler"]
    assert (told["rank"], told["explanation"], told["late_ns"]) == (LATE, "kernels", 15 * MS)
    assert told["chip"]["common_factor"] == 1.0
    norm, sort = told["kernels"]
    assert (norm["kernel"], norm["op"], norm["excess_ns"], norm["factor"]) == ("norm", "aten::layer_norm", 10 * MS, 1.5)
    assert (norm["mean_ns"], norm["peers_mean_ns"], norm["calls"], norm["peers_calls"]) == (1.5 * MS, MS, 20, 20)
    assert norm["share"] == pytest.approx(2 / 3)
    assert (sort["kernel"], sort["excess_ns"], sort["factor"]) == ("sort", 5 * MS, None)
    assert (sort["mean_ns"], sort["peers_mean_ns"], sort["calls"], sort["peers_calls"]) == (MS, None, 5, 0)


def test_a_rank_that_waits_for_input(ask: Any) -> None:
    """Its loader takes 32 ms instead of 2: 30 of 127 ms late, and every peer waits as long."""
    found = ask(scene(late(Step(input=32 * MS))))
    told = found["straggler"]
    assert (told["rank"], told["explanation"], told["explained_share"]) == (LATE, "input", 1.0)
    assert (told["late_ns"], told["excess"]["input_ns"]) == (30 * MS, 30 * MS)
    assert told["late_share"] == pytest.approx(30 / 127)
    assert told["idle_excess"] == {"input": 30 * MS}
    assert (told["chip"], told["kernels"]) == (None, [])
    assert row_of(found, LATE)["causes"] == {"input": 32 * MS, "launch_bound": MS}
    assert [row["waiting_ns"] for row in found["rows"] if row["rank"] != LATE] == [30 * MS] * 7


@pytest.mark.parametrize(
    ("step", "explanation", "excess"),
    [
        (Step(host=20 * MS), "host", {"host_ns": 20 * MS}),
        (Step(launch=21 * MS), "host", {"host_ns": 20 * MS}),
        (Step(copy=24 * MS), "copies", {"copies_ns": 20 * MS}),
        (Step({**KERNELS, ADD: 14 * MS}, input=8 * MS, host=6 * MS), "several",
         {"compute_ns": 4 * MS, "input_ns": 6 * MS, "host_ns": 6 * MS}),
    ],
)  # fmt: skip
def test_what_else_holds_a_rank_up(ask: Any, step: Step, explanation: str, excess: dict[str, int]) -> None:
    """20 ms of host, of launches or of copies more; 4 + 6 + 6 ms, of which none is half."""
    told = ask(scene(late(step)))["straggler"]
    assert (told["rank"], told["explanation"]) == (LATE, explanation)
    nothing = dict.fromkeys(("compute_ns", "input_ns", "copies_ns", "host_ns", "network_ns"), 0)
    assert told["excess"] == nothing | excess
    assert told["late_ns"] == sum(excess.values())


def test_a_slow_link(ask: Any) -> None:
    """Rank 3 comes as early as the others, but moving takes it 25 ms instead of 10: all wait 15 ms for it, each step.

    Own time is 87 ms on all; by one clock rank 3 moves 25 ms, and 15 of 112 are its lateness.
    """
    found = ask(scene(late(Step(moving=25 * MS))))
    told = found["straggler"]
    assert (told["rank"], told["explanation"], told["late_ns"]) == (LATE, "network", 15 * MS)
    assert told["late_share"] == pytest.approx(15 / 112)
    assert told["excess"]["network_ns"] == 15 * MS
    assert [row["moving_ns"] for row in found["rows"]] == [10 * MS] * 3 + [25 * MS] + [10 * MS] * 4
    assert [row["waiting_ns"] for row in found["rows"]] == [0] * 8
    assert (told["since_unix_ns"], told["from_the_first"]) == (START, True)


def test_a_slow_link_from_some_time_on(ask: Any) -> None:
    """150 moments, of which 64 are looked at for communication; slow from the 77th on, and that is found exactly."""
    windows = scene(late(Step(moving=25 * MS), since=77), 150, ranks=range(4), world_size=4)
    told = ask(windows)["straggler"]
    assert (told["rank"], told["explanation"], told["from_the_first"]) == (LATE, "network", False)
    assert (told["since_unix_ns"], told["since_step"]) == (START + 77 * MINUTE, 7700)


def test_nodes_whose_clocks_differ_have_no_network_verdict(ask: Any) -> None:
    """The same link, but the rank is on another node: by durations alone moving cannot be told rank by rank."""
    found = ask(scene(late(Step(moving=25 * MS)), node=lambda rank: f"gpu-{rank // 2}"))
    assert found["straggler"] is None
    assert found["job"]["node"] is None


def test_late_from_the_middle_on(ask: Any) -> None:
    """From the fifth of nine moments on its input takes 20 ms more; the figures are of those five."""
    found = ask(scene(late(Step(input=22 * MS), since=4), 9))
    told = found["straggler"]
    assert (told["since_unix_ns"], told["since_step"]) == (START + 4 * MINUTE, 400)
    assert (told["until_unix_ns"], told["from_the_first"], told["windows"]) == (None, False, 5)
    assert (told["late_ns"], told["explanation"]) == (20 * MS, "input")
    assert row_of(found, LATE)["since_unix_ns"] == START + 4 * MINUTE
    assert (found["basis"]["moments"], found["basis"]["of_moments"]) == (5, 9)
    assert row_of(found, 0)["windows"] == 5


def test_late_for_a_while(ask: Any) -> None:
    """Late in moments 3 to 7 of 14: from when until when."""
    told = ask(scene(lambda r, m: Step(input=22 * MS) if r == LATE and 3 <= m <= 7 else Step(), 14))["straggler"]
    assert (told["since_step"], told["windows"]) == (300, 5)
    assert told["until_unix_ns"] == START + 7 * MINUTE


def test_a_single_slow_window_is_no_straggler(ask: Any) -> None:
    """Rank 0 writes a checkpoint in one of nine moments: ten times a step."""
    found = ask(scene(lambda r, m: Step(host=900 * MS) if (r, m) == (0, 4) else Step(), 9))
    assert found["straggler"] is None


def test_two_are_late(ask: Any) -> None:
    """Rank 5 is 20 ms late, rank 2 8 ms: the first is the straggler, both are marked, peers are the other six."""
    steps = {5: Step(input=22 * MS), 2: Step(input=10 * MS)}
    found = ask(scene(lambda r, _: steps.get(r, Step())))
    assert found["late"] == [5, 2]
    assert (found["straggler"]["rank"], found["straggler"]["late_ns"]) == (5, 20 * MS)
    assert [row["rank"] for row in found["rows"] if row["late"]] == [2, 5]
    assert row_of(found, 2)["late_ns"] == 8 * MS


def test_unshared_steps_compare_means(ask: Any) -> None:
    """Each rank's windows ten seconds and ten steps after the one's before: means show the 20 ms, not since when."""
    apart = {
        "first_step": lambda rank, moment: 100 * moment + 10 * rank,
        "start": lambda rank, moment: START + moment * 2 * MINUTE + rank * 10_000 * MS,
    }
    found = ask(scene(late(Step(input=22 * MS)), ranks=range(4), world_size=4, **apart))
    assert (found["basis"]["compared"], found["basis"]["moments"]) == ("means", 0)
    assert found["basis"]["circles"] == [[0], [1], [2], [3]]
    told = found["straggler"]
    assert (told["rank"], told["explanation"], told["late_ns"]) == (LATE, "input", 20 * MS)
    assert (told["since_unix_ns"], told["until_unix_ns"], told["from_the_first"]) == (None, None, False)
    assert [row["moving_ns"] for row in found["rows"]] == [None] * 4
    nobody = ask(scene(usual, ranks=range(4), world_size=4, job="slurm:5", **apart), Filter(job="slurm:5"))
    assert (nobody["basis"]["compared"], nobody["straggler"]) == ("means", None)
    assert [row["late_share"] for row in nobody["rows"]] == [0.0] * 4


def test_two_nodes_whose_windows_share_no_steps(ask: Any) -> None:
    """Four ranks a node, each node's windows of other steps; all ranks of the second node are 20 ms slower.

    Within each node all are alike. By means over all eight the median of the others is a fast one: 4 to 7 are late.
    """
    found = ask(
        scene(
            lambda rank, _: Step(input=22 * MS) if rank > 3 else Step(),
            node=lambda rank: f"gpu-{rank // 4}",
            first_step=lambda rank, moment: 100 * moment + 50 * (rank // 4),
            start=lambda rank, moment: START + moment * MINUTE + 30_000 * MS * (rank // 4),
        )
    )
    assert sorted(map(tuple, found["basis"]["circles"])) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert found["basis"]["compared"] == "means"
    assert sorted(found["late"]) == [4, 5, 6, 7]
    assert found["straggler"]["explanation"] == "input"


def test_missing_ranks_are_named(ask: Any) -> None:
    """Of sixteen ranks 4 … 7 were not seen, nor any from 8 on."""
    found = ask(scene(usual, ranks=range(4), world_size=16))
    assert (found["job"]["ranks"], found["job"]["world_size"], found["job"]["missing_count"]) == (4, 16, 12)
    assert found["job"]["missing"] == list(range(4, 16))


def test_two_ranks(ask: Any) -> None:
    """Of two ranks the slower one is late, and the other by as much early."""
    found = ask(scene(late(Step(input=22 * MS), rank=1), ranks=range(2), world_size=2))
    assert (found["straggler"]["rank"], found["straggler"]["late_ns"]) == (1, 20 * MS)
    assert row_of(found, 0)["late_ns"] == -20 * MS


def test_one_window_is_enough_for_much_and_says_so(ask: Any) -> None:
    """Half of a step late in the only window: found, and marked; 5 % in one window is not."""
    told = ask(scene(late(Step(host=97 * MS)), 1))["straggler"]
    assert (told["rank"], told["few"], told["windows"]) == (LATE, True, 1)
    less = ask(scene(late(Step(host=5 * MS)), 1, job="slurm:9"), Filter(job="slurm:9"))
    assert less["straggler"] is None


def test_steps_that_overlap_are_the_same(ask: Any) -> None:
    """Rank 1 began one step later each time, 101 and 102 beside 100 and 101; no collective is paired off by order."""
    found = ask(
        scene(late(Step(input=22 * MS)), ranks=range(4), world_size=4, first_step=lambda r, m: 100 * m + (r == 1))
    )
    assert (found["basis"]["moments"], found["basis"]["windows_alone"]) == (6, 0)
    assert (found["straggler"]["rank"], found["straggler"]["late_ns"]) == (LATE, 20 * MS)
    assert row_of(found, 1)["matched_share"] == 0.0
    assert row_of(found, 0)["matched_share"] == 1.0


def test_windows_without_steps_are_compared_by_the_second(ask: Any) -> None:
    """Timed windows at the same time: of each second 30 ÷ 127 is input that peers do not wait for."""
    found = ask(scene(late(Step(input=32 * MS)), steps=None, first_step=lambda *_: None))
    assert (found["basis"]["compared"], found["basis"]["unit"]) == ("time", "second")
    assert found["straggler"]["rank"] == LATE
    assert found["straggler"]["late_ns"] == pytest.approx(30 / 127 * 1e9)
    assert row_of(found, 0)["step_ns"] == 1_000_000_000


def test_windows_that_were_cut_are_left_out_where_there_are_steps(ask: Any) -> None:
    """A first window of each rank without whole steps: eight are counted, and not compared."""
    cut = scene(usual, 1, steps=None, start=lambda *_: START - MINUTE, first_step=lambda *_: 1)
    found = ask(cut + scene(usual))
    assert (found["basis"]["windows_without_steps"], found["basis"]["moments"]) == (8, 6)


def test_which_job(ask: Any) -> None:
    """Two jobs: one sentence names them; one is chosen by its name, or by the model of its processes."""
    windows = scene(usual, 3, ranks=range(2), world_size=2, job="slurm:1", model="a")
    windows += scene(usual, 3, ranks=range(2), world_size=2, job="slurm:2", model="b")
    with pytest.raises(UsageError, match=r"2 jobs .*slurm:1, slurm:2"):
        ask(windows)
    assert ask([], Filter(job="slurm:2"))["job"]["job"] == "slurm:2"
    assert ask([], Filter(model="a"))["job"]["job"] == "slurm:1"
    assert ask([], Filter(job="slurm:3"))["job"] is None


def test_all_ranks_of_the_job_that_a_node_has_part_in(ask: Any) -> None:
    """A filter chooses the job; of it the ranks of other nodes are shown as well."""
    found = ask(scene(usual, 3, node=lambda rank: f"gpu-{rank // 4}"), Filter(node="gpu-1"))
    assert [row["node"] for row in found["rows"]] == ["gpu-0"] * 4 + ["gpu-1"] * 4


def test_a_job_that_was_started_again(ask: Any) -> None:
    """New processes at the same steps an hour later: rows tell of the later ones, and windows of both count."""
    again = scene(late(Step(input=22 * MS)), 4, start=lambda _r, m: START + (60 + m) * MINUTE)
    again = [replace(w, process=replace(w.process, pid=w.process.pid + 1000)) for w in again]
    found = ask(scene(usual, 4) + again)
    assert found["basis"]["of_moments"] == 8
    assert [row["pid"] for row in found["rows"]] == list(range(2000, 2008))
    assert found["straggler"]["since_unix_ns"] == START + 60 * MINUTE


def test_nothing_to_compare(ask: Any) -> None:
    """No windows, a process without a rank, one rank alone."""
    assert ask([])["job"] is None
    assert ask(scene(usual, 2, ranks=[0], world_size=1))["job"] is None
    found = ask(scene(usual, 2, ranks=[5]))
    assert (found["basis"]["compared"], found["straggler"]) == (None, None)
    assert (found["job"]["ranks"], found["rows"][0]["late_share"]) == (1, None)


def test_without_collectives_the_split_is_unknown_and_the_rest_is_not(ask: Any) -> None:
    """Null, never 0; who is late is told by own time."""
    found = ask(scene(late(Step(input=22 * MS)), collectives=False))
    assert (found["straggler"]["rank"], found["straggler"]["excess"]["network_ns"]) == (LATE, None)
    row = row_of(found, 0)
    assert (row["moving_ns"], row["waiting_ns"], row["caused_ns"], row["matched_share"]) == (None,) * 4
    assert row["communication_ns"] == 30 * MS


def test_a_rank_of_two_devices_is_their_mean(ask: Any) -> None:
    """Each rank has a second device that idles all 97 ms at half the clock: half of each part, and 48.5 ms of host."""
    windows = []
    for w in scene(lambda *_: Step(clock_hz=1.8e9, throttle="thermal"), ranks=range(2), world_size=2):
        (first,) = w.devices
        idle = (IdleCause(Cause.HOST, first.span_ns, 1, first.span_ns),)
        other = replace(first.device, uuid=f"{first.device.uuid}-1", index=1, model="B200")
        state = DeviceState(clock_hz=0.9e9, throttle="power_cap")
        second = DeviceWindow(other, first.span_ns, 0, idle, state=state)
        windows.append(replace(w, devices=(first, second)))
    row = row_of(ask(windows), 0)
    times = [row[f"{name}_ns"] for name in ("step", "compute", "exposed_copy", "communication", "idle")]
    assert times == [97 * MS, 40 * MS, 2 * MS, 5 * MS, 50 * MS]
    assert row["causes"] == {"input": MS, "launch_bound": MS // 2, "host": 48_500_000}
    assert (row["clock_hz"], row["throttle"], row["device"]) == (
        1.35e9, "thermal,power_cap", "NVIDIA H100 80GB HBM3, B200"
    )  # fmt: skip


def test_figures_of_many_windows_are_of_some(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nine moments four are looked at for figures, the last among them: 1, 3, 5 and 8; all decide who is late."""
    monkeypatch.setattr(ranks_report, "FIGURES", 4)
    held = {1: 10, 3: 20, 5: 30, 8: 40}
    found = ask(scene(lambda r, m: Step(input=held.get(m, 90) * MS) if r == LATE else Step(), 9))
    assert (found["basis"]["moments"], found["basis"]["figured"], found["basis"]["windows"]) == (9, 4, 32)
    assert row_of(found, LATE)["causes"]["input"] == 25 * MS
    assert found["straggler"]["windows"] == 9


def test_a_limit_cuts_rows_only(ask: Any) -> None:
    """Two rows, and the verdict is of all."""
    found = ask(scene(late(Step(input=22 * MS))), None, 2)
    assert [row["rank"] for row in found["rows"]] == [0, 1]
    assert found["straggler"]["rank"] == LATE
