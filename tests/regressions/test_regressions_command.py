"""``roofwatch regressions`` on real stores: exit code, rows, and what a user reads."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from regression_scene import Work, kernel, stored
from regressions_asked import AFTER, BEFORE, FAST, SIDES, WORK, Roofwatch, asked, table, verdicts

from roofwatch.model.record import Bound, DeviceState
from roofwatch.model.regression import ROW_KEYS
from roofwatch.store import database
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries


def test_one_slow_kernel_is_found(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """gemm_7 takes 6 % longer: exit code 1, one finding whose interval holds 1.06, and a table of 80 columns."""
    url = stored(tmp_path, BEFORE, replace(AFTER, scale={"gemm_7": 1.06}))
    code, answer = asked(roofwatch, url)
    assert (code, answer["verdict"]["findings"], answer["verdict"]["complete"]) == (1, 1, True)
    row = answer["rows"][0]
    assert tuple(row) == ROW_KEYS
    assert (row["verdict"], row["finding"], row["kernel"], row["basis"]) == ("slower", True, "gemm_7", "call")
    assert 1.03 < row["ratio_low"] < 1.06 < row["ratio_high"] < 1.09
    assert (row["calls_before"], row["calls_after"], row["calls_ratio"]) == (4.0, 4.0, 1.0)
    assert row["share_before"] == pytest.approx(1 / 30, rel=0.02)
    assert row["impact_share"] == pytest.approx(0.06 / 30, rel=0.2)
    assert (row["windows_before"], row["windows_after"], row["outliers_before"]) == (30, 30, 0)
    assert verdicts(answer) == {"gemm_7": "slower"}
    assert [d["clock"] for d in answer["devices"]] == [None]
    shown = table(roofwatch, url)
    assert "Found, of 30 kernels: 1 slower by more than 3 %." in shown
    assert "clock not read" in shown
    assert "slower gemm_7 aten::mm" in shown


def test_nothing_is_found_in_nothing(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """The same again: exit code 0, all the same; as CSV all keys."""
    url = stored(tmp_path, BEFORE, AFTER)
    code, answer = asked(roofwatch, url)
    assert (code, answer["verdict"]["findings"], answer["verdict"]["step_findings"]) == (0, 0, 0)
    assert answer["verdict"]["verdicts"] == {"same": 30}
    assert answer["sides"]["before"] | {"first_unix_ns": 0, "last_unix_ns": 0} == {
        "windows": 30, "windows_used": 30,
        "left_out": {"other_device": 0, "without_kernels": 0, "not_sampled": 0},
        "devices": {"NVIDIA H100 80GB HBM3": 30}, "processes": 1,
        "nodes": ["gpu-07"], "models": ["llama"], "first_unix_ns": 0, "last_unix_ns": 0,
    }  # fmt: skip
    done = roofwatch("regressions", "--db", url, *SIDES, "--format", "csv", "--limit", "0")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert (done.returncode, len(rows), tuple(rows[0])) == (0, 30, ROW_KEYS)


def test_called_more_often_is_told_from_slower(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """gemm_3 is called six times a step for four, each call as long as before."""
    work = [replace(w, calls=6) if w.signature.kernel == "gemm_3" else w for w in WORK]
    url = stored(tmp_path, BEFORE, replace(AFTER, work=work))
    code, answer = asked(roofwatch, url)
    row = answer["rows"][0]
    assert (code, verdicts(answer)) == (1, {"gemm_3": "called_more"})
    assert (row["calls_before"], row["calls_after"], row["calls_ratio"]) == (4.0, 6.0, pytest.approx(1.5))
    assert row["step_ratio"] == pytest.approx(1.5, rel=0.02)
    assert "called more gemm_3 aten::mm 4/step 6/step +50 % exact" in table(roofwatch, url)
    assert row["ratio"] == pytest.approx(1.0, rel=0.02)


def test_a_lower_clock_is_no_regression_of_what_it_explains(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """A clock 6 % lower under a lower cap: compute is 6.4 % slower for it; a memory bound kernel has its own reason."""
    work = [replace(w, bound=Bound.MEMORY) if i >= 20 else w for i, w in enumerate(WORK)]
    slow = {f"gemm_{i}": 1 / 0.94 for i in (*range(20), 25)}
    state = DeviceState(clock_hz=1.98e9 * 0.94, power_limit_w=500.0, throttle="power_cap")
    url = stored(
        tmp_path,
        replace(BEFORE, work=work, state=FAST),
        replace(AFTER, work=work, state=state, scale=slow),
    )
    code, answer = asked(roofwatch, url)
    assert (code, answer["verdict"]["findings"]) == (1, 1)
    assert answer["verdict"]["verdicts"] == {"slower": 1, "clock": 20, "same": 9}
    assert answer["rows"][0]["kernel"] == "gemm_25"
    assert answer["rows"][1]["clock_ratio"] == pytest.approx(0.94, rel=1e-3)
    assert answer["devices"][0]["clock"]["ratio_high"] < 0.95
    assert answer["devices"][0]["power_limit_w"] == {"before": 700.0, "after": 500.0}
    assert answer["devices"][0]["throttle"] == {"before": {}, "after": {"power_cap": 1.0}}
    assert {s["verdict"] for s in answer["steps"]} == {"clock"}
    shown = table(roofwatch, url)
    assert "clock 1,980 → 1,861 MHz: lower" in shown
    assert "power cap 700 → 500 W" in shown
    assert "throttled: power_cap after 100 %" in shown
    assert "A lower clock explains 20 slower kernels." in shown
    only = replace(AFTER, work=work, state=state, scale={f"gemm_{i}": 1 / 0.94 for i in range(20)})
    other = tmp_path / "explained"
    other.mkdir()
    assert asked(roofwatch, stored(other, replace(BEFORE, work=work, state=FAST), only))[0] == 0


def test_new_vanished_and_renamed_kernels(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """gemm_1 is gone, a cast is new; gemm_2 has another name and is slower: one finding, not two; gemm_4 as fast."""
    renamed = {"gemm_2": "cutlass_2", "gemm_4": "cutlass_4"}
    work = [
        replace(w, signature=replace(w.signature, kernel=renamed.get(w.signature.kernel, w.signature.kernel)))
        for w in WORK
        if w.signature.kernel != "gemm_1"
    ]
    cast = Work(kernel(99, name="cast_kernel", op="aten::to"))
    url = stored(tmp_path, BEFORE, replace(AFTER, work=[*work, cast], scale={"cutlass_2": 1.1}))
    code, answer = asked(roofwatch, url)
    assert (code, answer["verdict"]["findings"]) == (1, 2)
    assert verdicts(answer) == {
        "cast_kernel": "new", "cutlass_2": "slower", "gemm_1": "vanished", "cutlass_4": "replaced",
    }  # fmt: skip
    rows = {row["kernel"]: row for row in answer["rows"]}
    assert rows["cutlass_2"]["kernels_before"] == ["gemm_2"]
    assert rows["cutlass_2"]["basis"] == "step"
    assert rows["cutlass_2"]["ratio"] == pytest.approx(1.1, rel=0.02)
    assert (rows["cast_kernel"]["before_ns"], rows["cast_kernel"]["ratio"]) == (None, None)
    assert rows["cast_kernel"]["after_ns"] == pytest.approx(1e6, rel=0.02)
    assert (rows["gemm_1"]["after_ns"], rows["gemm_1"]["impact_share"] < 0) == (None, True)
    shown = table(roofwatch, url)
    assert "Found, of 31 kernels: 1 slower by more than 3 %, 1 new." in shown
    assert "gemm_2 → cutlass_2" in shown


def test_too_few_windows_say_how_many(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Six a side at 2 % noise: about 60 are needed for 30 kernels; with a larger slowdown to find, six are enough."""
    url = stored(tmp_path, replace(BEFORE, windows=6, noise=0.02), replace(AFTER, windows=6, noise=0.02))
    code, answer = asked(roofwatch, url)
    assert (code, answer["verdict"]["complete"]) == (4, False)
    assert 45 <= answer["verdict"]["windows_needed"] <= 75
    needed = answer["verdict"]["windows_needed"]
    assert f"Too few windows, 6 before and 6 after: {needed} a side are needed" in table(roofwatch, url)
    assert asked(roofwatch, url, "--find", "20%")[0] == 0


def test_a_new_kernel_in_few_windows_is_not_passed_over(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Four quiet windows a side are enough for times, but a kernel that is new in all four needs ten: exit code 4."""
    cast = Work(kernel(99, name="cast_kernel", op="aten::to"), mean_ns=1e5)  # 0.3 % of a step
    few = replace(BEFORE, windows=4, noise=0.001)
    url = stored(tmp_path, few, replace(AFTER, windows=4, noise=0.001, work=[*WORK, cast]))
    code, answer = asked(roofwatch, url)
    assert (code, answer["verdict"]["findings"], answer["verdict"]["too_few_for"]) == (4, 0, ["cast_kernel"])
    assert answer["verdict"]["windows_needed"] == 10  # 1/C(20, 10) = 5e-6, 1/C(18, 9) = 2.1e-5; 0.001 / 62 = 1.6e-5
    assert "cast_kernel came or is called more by chance" in table(roofwatch, url)


def test_one_window_a_side_tells_nothing(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Ten times slower, but once: no noise is known, so nothing is found and the exit code is 4."""
    url = stored(tmp_path, replace(BEFORE, windows=1), replace(AFTER, windows=1, scale={"gemm_1": 10.0}))
    code, answer = asked(roofwatch, url)
    assert (code, answer["verdict"]["findings"], answer["verdict"]["windows_needed"]) == (4, 0, None)
    assert "their noise is not known yet" in table(roofwatch, url)


def test_outliers_make_no_finding_and_hide_none(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Two windows of 30 are ten times slower: gemm_7's 6 % are found all the same, and nothing else."""
    slow = replace(AFTER, scale={"gemm_7": 1.06}, outliers={3: 10.0, 17: 10.0})
    code, answer = asked(roofwatch, stored(tmp_path, BEFORE, slow))
    assert (code, verdicts(answer)) == (1, {"gemm_7": "slower"})
    assert (answer["rows"][0]["outliers_after"], answer["rows"][0]["unsteady"]) == (2, False)


def test_a_slower_step_without_a_slower_kernel(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """The host takes 10 % of a step more: no kernel is slower, the step on the wall is, and that is a finding."""
    busy = 30 * 4 * 1_000_000
    code, answer = asked(roofwatch, stored(tmp_path, BEFORE, replace(AFTER, host_ns=busy // 10)))
    assert (code, answer["verdict"]["findings"], answer["verdict"]["step_findings"]) == (1, 0, 1)
    assert {s["time"]: s["verdict"] for s in answer["steps"]} == {"device": "same", "wall": "slower"}
    assert {s["time"]: s["ratio"] for s in answer["steps"]}["wall"] == pytest.approx(1.1, rel=0.01)


def test_ranks_are_blocks(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Two ranks, one device each, on both sides: each device is compared with itself, and one wall time counts."""
    url = stored(tmp_path, replace(BEFORE, devices=2, windows=15), replace(AFTER, devices=2, windows=15))
    code, answer = asked(roofwatch, url)
    assert (code, answer["devices"][0]["blocks"], answer["devices"][0]["blocks_count"]) == (0, "device", 2)
    steps = {s["time"]: (s["windows_before"], s["windows_after"]) for s in answer["steps"]}
    assert steps == {"device": (30, 30), "wall": (15, 15)}


def test_without_steps_calls_are_compared(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Inference: no steps, no calls a step, but a call's time all the same."""
    slow = replace(AFTER, steps=None, scale={"gemm_7": 1.06})
    code, answer = asked(roofwatch, stored(tmp_path, replace(BEFORE, steps=None), slow))
    assert (code, verdicts(answer), answer["steps"]) == (1, {"gemm_7": "slower"}, [])
    assert (answer["rows"][0]["calls_before"], answer["rows"][0]["step_ratio"]) == (None, None)


def test_the_start_of_a_process_may_be_left_out(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Windows at minutes 0, 1, … of a process: two minutes left out are two windows of 30."""
    url = stored(tmp_path, BEFORE, AFTER)
    _, answer = asked(roofwatch, url, "--skip-start", "2m")
    assert [answer["sides"][s]["windows"] for s in ("before", "after")] == [28, 28]


def test_a_bounded_sample_of_many_windows(tmp_path: Path) -> None:
    """Of 450 windows 400 are read, evenly: never two neighbours left out."""
    few = WORK[:4]
    url = stored(tmp_path, replace(BEFORE, work=few, windows=450), replace(AFTER, work=few))
    opened = database.open(url, migrate=False)
    try:
        answer = Queries(opened).run("regressions", Filter(labels={"image": "v1"}), 0, Filter(labels={"image": "v2"}))
    finally:
        opened.close()
    assert answer["sides"]["before"]["windows"] == 450
    assert answer["sides"]["before"]["windows_used"] == 400
    assert answer["sides"]["after"]["windows_used"] == 30
    assert answer["rows"][0]["windows_before"] == 400


def test_noise_that_hides_everything_is_no_all_clear(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Times vary by 60 % from window to window, gemm_7 takes 2.5 × as long: that one is suspected."""
    noisy = replace(BEFORE, windows=10, noise=0.6)
    url = stored(tmp_path, noisy, replace(AFTER, windows=10, noise=0.6, scale={"gemm_7": 2.5}))
    code, answer = asked(roofwatch, url)
    assert (code, answer["verdict"]["findings"], answer["verdict"]["verdicts"]) == (4, 0, {"unclear": 30})
    assert answer["rows"][0]["kernel"] == "gemm_7"
    assert answer["devices"][0]["findable"] > 1.0
    shown = table(roofwatch, url)
    assert "cannot be said: of 30 kernels 30 are unclear, 100 % of device time. Most likely: gemm_7 +" in shown
    assert "Nothing is" not in shown
    assert "more windows are no way out; these find one of " in shown
    everything = roofwatch("regressions", "--db", url, *SIDES, "--limit", "0").stdout
    assert sum(line.startswith("unclear  ") for line in everything.splitlines()) == 30
    assert "further" not in everything


def test_outliers_make_no_kernel_worth_testing(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """8 of 120,000 µs a step are 0.0067 %, and 2.2 × as much 0.015 %: two windows of 300 × as long make it 0.14 %,
    but they are in no mean, so the kernel is not tested; with all tested it is slower.
    """  # noqa: D205 - one thought
    work = (*WORK, Work(kernel(50, name="tiny"), mean_ns=2_000.0))
    after = replace(
        AFTER, work=work, scale={"tiny": 2.2}, outliers={3: 300.0, 20: 300.0}, outlier_of="tiny"
    )  # fmt: skip
    url = stored(tmp_path, replace(BEFORE, work=work), after)
    code, answer = asked(roofwatch, url)
    assert (code, verdicts(answer)) == (0, {})
    assert answer["devices"][0]["rest"]["signatures"] == 1
    assert answer["devices"][0]["rest"]["share_after"] == pytest.approx(1.47e-4, rel=0.05)
    code, answer = asked(roofwatch, url, "--least-share", "0")
    [row] = [row for row in answer["rows"] if row["kernel"] == "tiny"]
    assert (code, row["verdict"], row["outliers_after"]) == (1, "slower", 2)
    assert row["share_after"] == pytest.approx(1.47e-4, rel=0.05)
    assert sum(row["share_after"] for row in answer["rows"]) == pytest.approx(1.0)
