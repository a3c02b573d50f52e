"""What to work on first: the verdict, the ranking and the mistakes, with figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.model.answer_rows import StatSum, rows
from roofwatch.model.diagnosis import Part, Standing, cannot_say, standing, tally, verdict, worth_touching
from roofwatch.model.diagnosis_mistakes import Conditions, mistakes
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, Device, DeviceWindow, Evidence, IdleCause, Padding, Signature, Vendor
from roofwatch.model.timeline import PARTS, TimelineSum
from roofwatch.model.unmeasured import Ran, unmeasured

GPU = Device(Vendor.NVIDIA, "GPU")


def timeline(span: int, busy: int, x_copy: int = 0, x_comm: int = 0, weight: float = 1.0, **causes: int) -> TimelineSum:
    """A timeline whose causes have one stretch each; ``x_``: exposed."""
    found = TimelineSum()
    told = tuple(IdleCause(Cause(name), ns, 1, ns, f"in {name}") for name, ns in causes.items())
    found.add(DeviceWindow(GPU, span, busy, told, x_copy, x_comm), weight)
    return found


def kernel(
    number: int, est: float, fraction: float | None, bound: Bound = Bound.MEMORY, *, cpu: bool = False
) -> Standing:
    """One row."""
    return Standing((number, "GPU"), est, bound, fraction, cpu)


def test_the_system_takes_more_than_the_kernels() -> None:
    """Of 1000 the kernels have 300: system 0.7, its largest part 0.5; half of the 300 is winnable: 0.15."""
    found = verdict(timeline(1000, 300, launch_bound=500, input=200), tally([kernel(1, 300, 0.5)]))
    assert (found.first_cause, found.share, found.stop_kernels) == ("launch_bound", 0.5, True)
    assert (found.system_share, found.kernels_share) == (pytest.approx(0.7), pytest.approx(0.3))
    assert (found.winnable_share, found.unknown_roof_share) == (pytest.approx(0.15), 0.0)
    assert found.causes == {"launch_bound": 0.5, "input": 0.2}


def test_tuned_kernels_are_not_first_while_they_are_most() -> None:
    """Kernels take 0.6, of which a sixth is winnable, 0.1: less than the 0.4 that launching takes."""
    found = verdict(timeline(1000, 600, launch_bound=400), tally([kernel(1, 600, 5 / 6)]))
    assert (found.first_cause, found.share, found.stop_kernels) == ("launch_bound", 0.4, False)
    assert found.winnable_share == pytest.approx(0.1)


def test_what_is_unknown_might_all_be_winnable() -> None:
    """100 winnable for certain and 350 of unknown roof: 0.45 is more than 0.4, so the kernels come first."""
    found = verdict(timeline(1000, 600, launch_bound=400), tally([kernel(1, 250, 0.6), kernel(2, 350, None)]))
    assert (found.first_cause, found.share) == ("kernels", pytest.approx(0.6))
    assert (found.winnable_share, found.unknown_roof_share) == (pytest.approx(0.1), pytest.approx(0.35))


def test_exposed_communication_counts_with_idle_communication() -> None:
    """Busy 800 of which 300 exposed, and 200 idle: communication 0.5 and compute 0.5; half is not more than half."""
    time = timeline(1000, 800, x_comm=300, communication=200)
    found = verdict(time, tally([kernel(1, 500, 0.9), kernel(2, 300, None, Bound.COMMUNICATION)]))
    assert (found.first_cause, found.share, found.stop_kernels) == ("communication", pytest.approx(0.5), False)
    assert found.unknown_roof_share == 0.0  # a collective's roof is not the device's


def test_kernels_that_ran_side_by_side_share_the_time() -> None:
    """1200 of kernel time in 600 of busy time: each of them counts half; 400 winnable are 0.2 of the span."""
    found = verdict(timeline(1000, 600, sync=400), tally([kernel(1, 800, 0.5), kernel(2, 400, None)]))
    assert (found.winnable_share, found.unknown_roof_share) == (pytest.approx(0.2), pytest.approx(0.2))


def test_busy_time_that_no_kernel_accounts_for_wins_nothing() -> None:
    """600 busy of which kernels took 100, half of it winnable: 0.05 of the span, not what 600 of kernels could win."""
    found = verdict(timeline(1000, 600, sync=400), tally([kernel(1, 100, 0.5)]))
    assert (found.winnable_share, found.unknown_roof_share) == (pytest.approx(0.05), 0.0)


def test_dispatch_on_a_cpu_is_no_kernel() -> None:
    """Of 800 compute: views 400, tiny ops 200 at a tenth of their roof (180 dispatch), one product 200 at half.

    Dispatch 580, kernels 220, and the host keeps its 200 idle, as ``timeline`` tells it: together all of the time.
    Winnable is the product's 100. On a GPU the same tiny kernels are kernels: their 180 are winnable.
    """
    rows = [
        kernel(1, 400, 0.0, Bound.HOST, cpu=True),
        kernel(2, 200, 0.1, Bound.LATENCY, cpu=True),
        kernel(3, 200, 0.5, Bound.COMPUTE, cpu=True),
    ]
    found = verdict(timeline(1000, 800, host=200), tally(rows))
    assert (found.first_cause, found.share, found.stop_kernels) == ("dispatch", pytest.approx(0.58), True)
    assert found.causes == {"dispatch": pytest.approx(0.58), "host": pytest.approx(0.2)}
    assert sum(found.causes.values()) + (found.kernels_share or 0) == pytest.approx(1.0)
    assert (found.kernels_share, found.op_overhead_share) == (pytest.approx(0.22), pytest.approx(0.58))
    assert found.winnable_share == pytest.approx(0.1)
    assert [s.key[0] for s in worth_touching(rows)] == [3]
    gpu = kernel(2, 200, 0.1, Bound.LATENCY)
    assert (gpu.overhead_ns, gpu.winnable_ns) == (0.0, pytest.approx(180))


def test_the_system_is_first_where_it_takes_more_than_can_be_won() -> None:
    """Compute 600 of which 380 are winnable, at a roof nobody reaches; 400 in the way, 340 of it launching."""
    found = verdict(timeline(1000, 600, launch_bound=340, launch_gap=60), tally([kernel(1, 600, 1 - 380 / 600)]))
    assert (found.first_cause, found.share, found.stop_kernels) == ("launch_bound", 0.34, False)
    more = verdict(timeline(1000, 600, launch_bound=340, launch_gap=60), tally([kernel(1, 600, 1 - 410 / 600)]))
    assert more.first_cause == "kernels"


def test_start_up_is_left_out() -> None:
    """Of 2000 half is start-up in sync: of the rest kernels have 0.4, launching 0.5, and sync what is left, 0.1."""
    found = TimelineSum()
    sync = IdleCause(Cause.SYNC, 1100, 3, 1000, "in cudaFree", 1000, 1, 60, "after a wait")
    found.add(DeviceWindow(GPU, 2000, 400, (sync, IdleCause(Cause.LAUNCH_BOUND, 500, 5, 200, "in x"))), 1.0)
    said = verdict(found, tally([kernel(1, 400, 0.5)]))
    assert (said.first_cause, said.share, said.stop_kernels) == ("launch_bound", 0.5, True)
    assert (said.startup_share, said.kernels_share, said.winnable_share) == (
        0.5,
        pytest.approx(0.4),
        pytest.approx(0.2),
    )
    assert said.causes == {"launch_bound": 0.5, "sync": pytest.approx(0.1)}
    left = found.steady().causes[Cause.SYNC]
    assert (left.total_ns, left.count, left.longest_ns, left.example) == (100, 2, 60, "after a wait")
    assert (found.as_json()["sync_ns"], found.as_json()["startup_ns"]) == (1100, 1000)  # in the timeline it is sync
    found.merge(timeline(1000, 500, sync=500))
    left = found.steady().causes[Cause.SYNC]
    assert (left.total_ns, left.count, left.longest_ns, left.example) == (600, 3, 500, "in sync")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 9)), max_size=6))
def test_start_up_and_the_rest_are_all(windows: list[tuple[int, int, int]]) -> None:
    """Whatever the windows: the rest and start-up add up to the span, in any order of the windows."""
    sums = [TimelineSum(), TimelineSum()]
    for order, found in zip((windows, windows[::-1]), sums, strict=True):
        for begun, rest, busy in order:
            told = IdleCause(Cause.HOST, begun + rest, 2, max(begun, rest), "x", begun, int(begun > 0), rest, "y")
            found.add(DeviceWindow(GPU, begun + rest + busy, busy, (told,)), 2.0)
    for found in sums:
        steady = found.steady()
        assert steady.sampled.span_ns + found.startup_ns == found.sampled.span_ns
        assert sum(steady.parts().values()) == steady.sampled.span_ns
    ((first, second)) = ({c: (s.total_ns, s.longest_ns) for c, s in f.steady().causes.items()} for f in sums)
    assert first == second


def test_nothing_is_known_to_be_winnable() -> None:
    """Where no kernel has a roof, what reaching it would win is not 0 but unknown."""
    found = verdict(timeline(1000, 600, launch_bound=400), tally([kernel(1, 600, None)]))
    assert (found.winnable_share, found.unknown_roof_share) == (None, pytest.approx(0.6))


def test_no_time_has_no_verdict() -> None:
    """Nothing is first where nothing was recorded."""
    found = verdict(TimelineSum(), tally([]))
    assert (found.first_cause, found.share, found.stop_kernels, found.kernels_share) == (None, None, False, None)


def test_ranked_by_what_can_be_won_not_by_time() -> None:
    """A large kernel near its roof (100 of 1000 to win) stands behind a smaller one far from it (450 of 500).

    Above the roof nothing is promised; copies, collectives and host ops have no roof to reach; unknown has no rank.
    """
    rows = [
        kernel(1, 1000, 0.9), kernel(2, 500, 0.1), kernel(3, 900, 2.94), kernel(4, 800, None),
        kernel(5, 700, None, Bound.COPY), kernel(6, 600, None, Bound.COMMUNICATION), kernel(7, 5, 0.0, Bound.HOST),
        kernel(8, 850, None, Bound.UNKNOWN),
    ]  # fmt: skip
    assert [(s.key[0], round(s.winnable_ns)) for s in worth_touching(rows)] == [(2, 450), (1, 100)]
    assert [s.key[0] for s in cannot_say(rows)] == [8, 4]
    assert [s.key[0] for s in worth_touching(rows, 1)] == [2]


@pytest.mark.parametrize(("bound", "winnable"), [(Bound.HOST, None), (Bound.MEMORY, 75)])
def test_nothing_is_winnable_of_a_view(bound: Bound, winnable: int | None) -> None:
    """A roof of 25 in 100 ns leaves 75 to win; an op that works on the host has no roof to reach."""
    sums = StatSum(
        Signature("aten::view", Kind.LAYOUT), "CPU", 1, 100, 100.0, 100, 100, bound, Evidence.SHAPES, 25.0, None
    )
    assert rows([sums])[0]["winnable_ns"] == winnable


def test_a_row_is_the_sum_of_its_parts() -> None:
    """Roof 600 + 300 of 1000 + 2000 measured: 0.3; the part without a roof counts as time; the larger part's bound."""
    found = standing(
        (1, "GPU"),
        [
            Part(Bound.MEMORY, 1000, 4000.0, 600.0),
            Part(Bound.COMPUTE, 2000, 2000.0, 300.0),
            Part(Bound.UNKNOWN, 50, 50.0, None),
        ],
        cpu=False,
    )
    assert (found.est_ns, found.bound, found.fraction) == (6050.0, Bound.COMPUTE, pytest.approx(0.3))


def test_parts_of_a_timeline() -> None:
    """Two windows, one standing for twice its span; the longest stretch keeps its example.

    Spans 1000 and 500 weigh 2000 and 500: idle sync 300·2 + 100 = 700 of 2500.
    """
    found = timeline(1000, 700, x_copy=100, x_comm=50, weight=2.0, sync=300)
    found.merge(timeline(500, 400, sync=100))
    told = found.as_json()
    assert (told["span_ns"], told["busy_ns"], told["idle_ns"], told["est_span_ns"]) == (1500, 1100, 400, 2500)
    assert (told["compute_ns"], told["exposed_copy_ns"], told["exposed_communication_ns"]) == (950, 100, 50)
    assert told["sync_share"] == pytest.approx(0.28)
    assert told["causes"]["sync"] == {
        "total_ns": 400, "est_ns": 700, "share": pytest.approx(0.28), "count": 2, "longest_ns": 300,
        "example": "in sync",
    }  # fmt: skip


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.lists(st.integers(0, 10**6), max_size=8))
def test_parts_add_up_to_the_span(busy: int, copy: int, comm: int, idle: list[int]) -> None:
    """Also where a copy ran beside a collective, both exposed; no part is below 0."""
    causes = {str(cause): ns for cause, ns in zip(Cause, idle, strict=False)}
    found = timeline(busy + sum(idle), busy, min(copy, busy), min(comm, busy), **causes)
    parts = found.parts()
    assert tuple(parts) == PARTS
    assert sum(parts.values()) == busy + sum(idle)
    assert min(parts.values()) >= 0
    shares = [share for share in found.shares().values() if share is not None]
    assert sum(shares) == pytest.approx(1.0) or not shares


def told(conditions: Conditions, time: TimelineSum, rows: list[Standing], *, cpu: bool = False) -> dict[str, dict]:
    """Mistakes by name."""
    names = {row.key: f"kernel{row.key[0]}" for row in rows}
    return {found["mistake"]: found for found in mistakes(conditions, time, rows, names, cpu=cpu)}


def test_missing_shapes_are_told_where_they_are_why_there_is_no_roof() -> None:
    """20 and 18 of 36 windows without: 1 of 1001 without roof is no matter, 200 of 1200 are. 2 of 36 are not why.

    Nor are they where those 200, or 100 of them, ran on a device that nobody measured (then): the rest is no tenth.
    """
    many = Conditions(windows=36, shapeless_windows=20, opless_windows=18)
    some, few = [kernel(1, 1000, 0.5), kernel(2, 200, None)], replace(many, shapeless_windows=2)
    assert told(many, timeline(2000, 1000), [kernel(1, 1000, 0.9), kernel(2, 1, None)]) == {}
    assert set(told(many, timeline(2000, 1000), some)) == {"no_ops", "no_shapes"}
    assert set(told(few, timeline(2000, 1000), some)) == {"no_ops"}
    for est, since, mistake in ((200, 0, "no_peaks"), (100, 250, "peaks_since")):
        (lacking,) = unmeasured([Ran("C", Vendor.CPU, False, est), Ran("C", Vendor.CPU, True, since)])
        unknown = replace(many, unmeasured=[lacking])
        assert set(told(unknown, timeline(2000, 1000), some)) == {mistake}


QUIET = Conditions(windows=12, steps=24, step_ns=(10, 10, 10), padding=Padding(1, 95, 100, 1, 1), cost_share=0.009)


def test_a_sound_recording_has_no_mistakes() -> None:
    """Steps alike, 5 % padding, 0.9 % cost, 1 % waits, the largest kernel the one with most to win: nothing is said."""
    assert told(QUIET, timeline(1000, 990, sync=10), [kernel(1, 500, 0.5), kernel(2, 490, 0.9)]) == {}


@pytest.mark.parametrize(
    ("conditions", "mistake", "figures"),
    [
        (Conditions(steps=1), "one_iteration", {"steps": 1}),
        (Conditions(step_ns=(30, 10, 12, 11)), "no_warm_up", {"first_ns": 30, "median_ns": 11}),
        (Conditions(windows=5, early_windows=2), "early_windows", {"early": 2, "windows": 5, "steps": 10}),
        (Conditions(python_events=400, events=1000), "stacks", {"python_events": 400, "events": 1000}),
        (Conditions(padding=Padding(2, 60, 100, 1, 1)), "padding", {"share": 0.4}),
        (
            Conditions(windows=12, cost_share=0.024, cost_windows=9),
            "overhead",
            {"share": 0.024, "measured": 9, "windows": 12},
        ),
        (Conditions(graph_loose_share=0.6), "graphs", {"share": 0.6}),
        (Conditions(windows=3, shapeless_windows=2), "no_shapes", {"without": 2, "windows": 3}),
        (Conditions(opless_windows=1), "no_ops", {"without": 1, "windows": 1}),
        (Conditions(backlog_share=0.3), "backlog", {"share": 0.3}),
    ],
)
def test_mistakes_in_how_it_was_recorded(conditions: Conditions, mistake: str, figures: dict[str, float]) -> None:
    """One window of one step; first step 30 against a median of 11; 40 % padding; and so on, with their figures."""
    found = told(conditions, timeline(1000, 1000), [])
    assert found == {mistake: {"mistake": mistake, **figures}}


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(windows=2, steps=1),  # the other window had none
        Conditions(steps=None),  # nobody knows
        Conditions(step_ns=(16, 11, 11)),  # 1.45 times: steps vary
        Conditions(step_ns=(30, 10)),  # the second may be the one that was cut off
        Conditions(step_ns=(10, 30, 30)),
    ],
)
def test_what_the_data_does_not_show_is_not_claimed(conditions: Conditions) -> None:
    """Near misses of each threshold."""
    assert told(conditions, timeline(1000, 1000), []) == {}


def test_one_stretch_and_waits() -> None:
    """A stretch of 300 in 1000, in one window; the host's own waits, not the idle time. A CPU waits for no device."""
    time = timeline(1000, 650, sync=300, copy=50)
    waited = Conditions(waits=3, wait_ns=40, longest_wait_ns=30)
    found = told(waited, time, [])
    assert found["one_gap"] == {"mistake": "one_gap", "longest_ns": 300, "share": 0.3}
    assert found["host_time"] == {
        "mistake": "host_time", "count": 3, "total_ns": 40, "longest_ns": 30, "share": pytest.approx(0.04),
    }  # fmt: skip
    assert set(told(Conditions(), time, [])) == {"one_gap"}  # idle in sync says nothing of how long the host waited
    assert set(told(Conditions(waits=3, wait_ns=19, longest_wait_ns=19), time, [])) == {"one_gap"}
    assert set(told(replace(waited, windows=2), time, [])) == {"host_time"}
    assert set(told(waited, time, [], cpu=True)) == {"one_gap"}


def test_the_largest_is_not_the_one_to_work_on() -> None:
    """600 of 1000 at 90 % of the roof, 60 to win, a tenth of it; the other has 320 to win."""
    rows = [kernel(1, 600, 0.9), kernel(2, 400, 0.2), kernel(3, 500, None, Bound.COPY)]
    assert told(QUIET, timeline(1000, 1000), rows)["raw_time"] == {
        "mistake": "raw_time", "kernel": "kernel1", "time_share": 0.6, "winnable_share": pytest.approx(0.1),
    }  # fmt: skip
    assert told(QUIET, timeline(1000, 1000), [kernel(1, 600, 0.5), kernel(2, 400, 0.2)]) == {}
