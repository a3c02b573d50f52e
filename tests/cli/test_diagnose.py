"""``timeline`` and ``diagnose``: their reports, on one window made by hand, on hostile names, on every real trace."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diagnosis_scene import MS, stat, window
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.cli.files import Origin, read
from roofwatch.cli.render import commands, diagnosis, text, timeline
from roofwatch.cli.render import json as as_json
from roofwatch.cli.render.bars import bar
from roofwatch.model import answer
from roofwatch.model.diagnosis_mistakes import Conditions
from roofwatch.model.diagnosis_report import KERNEL_KEYS, of_window
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, DeviceWindow, IdleCause, Signature, Window
from roofwatch.model.timeline import PARTS, ROW_KEYS, rows_of, sum_of

NOW = 1_770_000_000_000_000_000  # 2026-02-02

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
Answer = dict[str, Any]
STACKS = Conditions(steps=2, python_events=400, events=1000)
QWEN = "kineto/h100_Qwen_Qwen1.5-0.5B-Chat.json.gz"


def diagnosed(of: Window, conditions: Conditions = STACKS, limit: int = 5) -> Answer:
    """The answer of ``diagnose``."""
    coverage = answer.CoverageSum()
    coverage.add(of)
    told = of_window(of, conditions, limit)
    return answer.answer({"name": "diagnose"}, coverage, told.pop("rows"), **told)


def timed(of: Window, by: str = "device") -> Answer:
    """The answer of ``timeline``."""
    coverage = answer.CoverageSum()
    coverage.add(of)
    return answer.answer({"name": "timeline"}, coverage, rows_of([of], by), summary=sum_of(of).as_json())


def test_a_diagnosis_in_80_columns(golden: Callable[[str], str]) -> None:
    """The figures of ``diagnosis_scene.window``: launch bound 40 %, system 70, kernels 30, unknown 4 of 40 ms.

    To win: the norm's 10 ms × 0.9 = 9, the product's 16 × 0.5 = 8, so 9/17 = 53 % and all. 40 and 20 calls in two
    steps are 20 and 10 a step, so 200 and 100 launches are passed over. MFU 8 of 100 ms. The bar has 77 cells, of
    which 30, 10, 40, 17 and 3 % are 23.1, 7.7, 30.8, 13.1 and 2.3.
    """
    title = ["a.json.gz", "1 × NVIDIA H100 80GB HBM3"]
    assert diagnosis.report(diagnosed(window()), title, 80) == golden("diagnose_80.txt")


def test_what_is_unknown_in_parts_of_rows_has_no_row() -> None:
    """Half of the span, all of it in rows that have a roof for the rest: no largest one, and no command for it."""
    told = diagnosed(window())
    told["unjudged"] = {**told["unjudged"], "rows_count": 0, "rows": [], "span_share": 0.5}
    assert "the largest" not in diagnosis.report(told, [], 80)


def test_the_device_that_nobody_measured_is_named() -> None:
    """Without a roof anywhere section 2 names the cause and the command; section 3 is then the last; times in part."""
    told = diagnosed(window())
    lacking = {"model": "EPYC", "vendor": "cpu", "est_ns": 9, "share": 0.97, "measured_share": 0.0}
    told |= {"rows": [], "unmeasured": [lacking], "verdict": {**told["verdict"], "winnable_share": None}}
    told["unjudged"] = {**told["unjudged"], "rows_count": 1}
    report = diagnosis.report(told, [], 80)
    assert (
        "   none: of no kernel it is known where its roof is\n"
        "   No roofs for 97 % of device time: what EPYC can do was never measured\n"
        "   → run on its node, for the windows after: roofwatch devices calibrate\n"
    ) in report
    assert "\n3  Look deeper" in report
    told["unmeasured"] = [{**lacking, "measured_share": 0.1}]
    assert "EPYC was not measured then" in " ".join(diagnosis.report(told, [], 80).split())
    told["unmeasured"] = [{**lacking, "share": 0.05}]
    assert "No roofs for" not in diagnosis.report(told, [], 80)


def test_a_timeline_in_80_columns(golden: Callable[[str], str]) -> None:
    """The same window: 24, 8, 32, 13.6 and 2.4 cells of 80; a cause without an example has none."""
    assert timeline.report(timed(window()), ["a.json.gz"], 80, NOW) == golden("timeline_80.txt")


def test_the_verdict_is_for_programs_too() -> None:
    """Every key of it, and what is in the way, the largest first, exposed communication among it."""
    found = diagnosed(window())
    assert found["verdict"] == {
        "first_cause": "launch_bound", "share": 0.4, "stop_kernels": True, "system_share": pytest.approx(0.7),
        "kernels_share": pytest.approx(0.3), "winnable_share": pytest.approx(0.17),
        "unknown_roof_share": pytest.approx(0.04), "op_overhead_share": 0.0, "startup_share": 0.0,
    }  # fmt: skip
    assert [(c["cause"], c["share"], c["idle_ns"], c["exposed_ns"]) for c in found["causes"]] == [
        ("launch_bound", 0.4, 40 * MS, 0), ("input", 0.17, 17 * MS, 0), ("communication", 0.1, 0, 10 * MS),
        ("launch_gap", 0.03, 3 * MS, 0),
    ]  # fmt: skip
    assert [tuple(row) for row in found["rows"]] == [KERNEL_KEYS, KERNEL_KEYS]
    assert [row["winnable_share"] for row in found["rows"]] == pytest.approx([0.09, 0.08])
    assert (found["unjudged"]["rows_count"], found["unjudged"]["share"]) == (1, 0.1)
    assert found["unjudged"]["rows"][0]["kernel"] == "my_kernel"
    assert "--kernel-name my_kernel --launch-skip 10 " in found["unjudged"]["rows"][0]["command"]["command"]


def test_kernels_that_are_first() -> None:
    """Without idle time but 1 ms: the kernels are first, and the sentence says what they could win at most."""
    busy = stat(Signature("k", Kind.NORM, "aten::norm"), 10, 99 * MS, Bound.MEMORY, 0.25)
    device = replace(window().devices[0], busy_ns=99 * MS, exposed_communication_ns=0)
    device = replace(device, causes=(IdleCause(Cause.SYNC, MS, 1, MS, None),))
    found = diagnosed(replace(window((busy,)), devices=(device,)), Conditions())
    assert (found["verdict"]["first_cause"], found["verdict"]["stop_kernels"]) == ("kernels", False)
    drawn = diagnosis.report(found, [], 80).splitlines()
    assert drawn[2:4] == [
        "First: kernels, 99 % of the time. Of the whole time reaching their roof would",
        "win 74 %; what is in their way takes 1.0 %.",
    ]
    assert not any(line.startswith("Beware") for line in drawn)


def test_waiting_for_a_late_rank_is_told() -> None:
    """30 of 40 ms in matched collectives waited, most for rank 3; at least so, since ranks are missing."""
    found = diagnosed(window())
    communication = next(c for c in found["causes"] if c["cause"] == "communication")
    communication["peers"] = {
        "moving_ns": 10 * MS, "waiting_ns": 30 * MS, "lower_bound": True, "last": {"rank": 3, "node": "gpu-07"},
    }  # fmt: skip
    drawn = " ".join(diagnosis.report(found, [], 80).split())
    assert (
        "of the time in collectives that other ranks were seen in, at least 75 % waited, most for rank 3 on gpu-07"
        in drawn
    )


def test_a_window_without_time_has_a_head_only() -> None:
    """No verdict, no bar, and no division by the time that is not there."""
    empty = replace(window(), devices=(), kernels=())
    assert diagnosis.report(diagnosed(empty, Conditions()), ["a"], 80) == "a · 1 window\n"
    assert timeline.report(timed(empty), ["a"], 80, NOW) == "a · 1 window\n"


def test_rows_by_device_and_by_window() -> None:
    """Two devices are two rows by device, one by window; their sums are the summary; each row has every key."""
    second = replace(window().devices[0], device=replace(window().devices[0].device, index=1))
    both = replace(window(), devices=(*window().devices, second))
    by_device, by_window = timed(both), timed(both, "window")
    assert [row["index"] for row in by_device["rows"]] == [0, 1]
    assert [row["span_ns"] for row in by_window["rows"]] == [200 * MS]
    assert by_window["rows"][0]["window"] == "0" * 32
    assert all(tuple(row) == ROW_KEYS for row in (*by_device["rows"], *by_window["rows"]))
    lines = timeline.report(by_device, [], 80, NOW).splitlines()
    assert lines[-3].split() == ["device", "busy", "timeline", "waits", "most", "for"]
    assert lines[-1].startswith("NVIDIA H100 80GB HBM3 1")
    assert lines[-1].endswith("launch bound 40 %")


def test_rows_by_window_fit_the_room() -> None:
    """Windows of two processes that do nothing but communicate: the longest words there are, and a time and a pid."""
    of = timed(window(), "window")
    [row] = of["rows"]
    row = row | {"busy_share": 1.0, "compute_share": 0.0, "exposed_communication_share": 1.0, "windows": 1}
    row["causes"] = {}
    for part in PARTS:
        row[f"{part}_share"] = float(part == "exposed_communication")
    of["rows"] = [row | {"pid": pid, "start_unix_ns": NOW - pid * 10**9} for pid in (1_234_567, 1_234_568)]
    assert max(len(line) for line in timeline.report(of, [], 80, NOW).splitlines()) <= 80


@given(st.lists(st.floats(0, 1), min_size=len(PARTS), max_size=len(PARTS)), st.integers(1, 200))
def test_a_bar_fills_its_width(shares: list[float], width: int) -> None:
    """Exactly, whatever the parts are; each within one cell of what it should have."""
    whole = sum(shares)
    row = {f"{part}_share": share for part, share in zip(PARTS, shares, strict=True)}
    drawn = bar(row, width)
    assert len(drawn) == (width if whole else 0)
    if whole:
        assert abs(drawn.count("█") - shares[0] / whole * width) < 1 + 1e-6


NAMES = st.text(max_size=300) | st.text(st.sampled_from("核\x1b[2J\r\n\u202e<>(){}$`'\"; a_1"), max_size=300)


@st.composite
def scenes(draw: st.DrawFn) -> Window:
    """Windows with any names, times and verdicts."""
    kernels = tuple(
        stat(
            Signature(draw(NAMES), draw(st.sampled_from(list(Kind))), draw(st.none() | NAMES), formula=str(i)),
            draw(st.integers(1, 10**6)), draw(st.integers(10**6, 10**15)), draw(st.sampled_from(list(Bound))),
            draw(st.none() | st.floats(0, 5)),
        )
        for i in range(draw(st.integers(1, 4)))
    )  # fmt: skip
    causes = tuple(
        IdleCause(cause, draw(st.integers(1, 10**15)), draw(st.integers(1, 10**9)), 1, draw(st.none() | NAMES))
        for cause in draw(st.sets(st.sampled_from(list(Cause))))
    )
    busy = draw(st.integers(0, 10**15))
    device = DeviceWindow(
        replace(window().devices[0].device, model=draw(NAMES)), busy + sum(c.total_ns for c in causes), busy, causes,
        draw(st.integers(0, busy)), draw(st.integers(0, busy)),
    )  # fmt: skip
    return replace(window(kernels), devices=(device,))


@settings(max_examples=60, deadline=None)
@given(scenes(), st.sampled_from([80, 100, 160]), NAMES)
def test_no_line_is_wider_than_the_room(of: Window, room: int, name: str) -> None:
    """Whatever kernels, ops, devices and examples are called; no control character gets out; JSON reads back equal."""
    found = diagnosed(of, Conditions(steps=1, step_ns=(9, 1, 1), python_events=1, events=2))
    for drawn in (diagnosis.report(found, [name], room), timeline.report(timed(of), [name], room, NOW)):
        assert max(text.width(line) for line in drawn.split("\n")) <= room
        assert drawn.replace("\n", "").isprintable() or text.clean(drawn.replace("\n", "")) == drawn.replace("\n", "")
    assert json.loads(as_json.render(found)) == json.loads(json.dumps(found))
    assert all(shlex.split(one["command"]) == one["arguments"] for one in found["commands"])


def test_a_command_is_broken_where_a_shell_lets_it() -> None:
    """The lines, joined at their backslashes, are the command; an option stands beside its value."""
    arguments = ["ncu", "--kernel-name", "regex:a.*b c", "--launch-skip", "10", *["--section", "X" * 30] * 3, "CMD"]
    lines = commands.shell(arguments, 80)
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert shlex.split(" ".join(line.removesuffix("\\") for line in lines)) == arguments
    assert not any(line.rstrip(" \\").endswith(("--section", "--launch-skip")) for line in lines)


# ---- real traces ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def every(traces: Path) -> Iterator[dict[str, tuple[Window, Answer]]]:
    """Every real trace, read once."""
    found = {}
    for file in sorted((traces / "kineto").iterdir()):
        taken = read(file, Origin())
        found[file.name.split(".")[0]] = (taken.window, diagnosed(taken.window, taken.conditions))
    return found


def test_every_real_trace_is_diagnosed(every: dict[str, tuple[Window, Answer]]) -> None:
    """A verdict, parts that add up, valid JSON, 80 columns, a command for each kernel that is worth one."""
    assert len(every) >= 26
    for name, (of, found) in every.items():
        told = found["verdict"]
        assert told["first_cause"] in {*map(str, Cause), "kernels"}, name
        assert told["system_share"] + told["kernels_share"] == pytest.approx(1.0), name
        assert told["stop_kernels"] == (told["system_share"] > told["kernels_share"]), name
        assert not (told["stop_kernels"] and told["first_cause"] == "kernels"), name
        assert sum(found["time"][f"{part}_ns"] for part in PARTS) == found["time"]["span_ns"], name
        assert json.loads(as_json.render(found))["verdict"] == told, name
        winnable = [row["winnable_ns"] for row in found["rows"]]
        assert winnable == sorted(winnable, reverse=True), name
        assert all(row["bound"] not in {"host", "copy", "communication"} for row in found["rows"]), name
        assert all(row["roof_fraction"] is None for row in found["unjudged"]["rows"]), name
        if of.devices[0].device.model:
            assert all(row["command"] for row in found["rows"]), name
        for drawn in (diagnosis.report(found, [name], 80), timeline.report(timed(of), [name], 80, NOW)):
            assert max(map(text.width, drawn.splitlines())) <= 80, name


@pytest.mark.parametrize(
    ("name", "first", "stop"),
    [
        ("h100_Falconsai_nsfw_image_detection", "launch_bound", True),  # busy 1.23 of 7.89 ms, idle launching
        ("h100_gaunernst_bert-small-uncased", "launch_bound", True),  # busy 0.31 of 4.43 ms
        ("b200_eager", "launch_bound", True),  # busy 11.6 of 86.4 ms
        ("h100_Qwen_Qwen1", "kernels", False),  # busy 45.6 of 49.7 ms
        ("mi300_Qwen1", "kernels", False),  # busy 43.1 of 47.1 ms
        ("mi300_inductor_triton_min", "kernels", False),  # busy 12.5 of 12.8 ms
        ("v100_resnet_ns_absolute_ts", "kernels", False),  # busy 472 of 484 ms
        ("cpu_only", "communication", True),  # one op of 4 µs beside an all-reduce of 1.1 s
    ],
)
def test_first_causes_of_real_traces(
    every: dict[str, tuple[Window, Answer]], name: str, first: str, stop: bool
) -> None:
    """By their busy time: nine tenths busy and it is the kernels; idle, and it is what the device waits for."""
    told = every[name][1]["verdict"]
    assert (told["first_cause"], told["stop_kernels"]) == (first, stop)


@pytest.mark.parametrize(
    ("name", "at_least", "first"),
    [
        ("rtx2080ti_linear_int_ts", 0.49, "launch_bound"),  # two cudaFree of 981 of 2004 ms
        ("a100_alexnet_cuda_sync", 0.99, "sync"),  # 30.4 s before the first copy, 10 s before the first convolution
        ("mi300_normalization_fwdbwd", 0.85, "launch_bound"),  # six hipLaunchKernel of 111 to 332 of 1180 ms
        ("mi250_minitoy_rocm62", 0.70, "launch_bound"),  # one hipLaunchKernel of 6.6 of 9.4 ms
        ("mi300_sglang_decode", 0.97, None),  # one stretch of 463 of 474 ms
        ("oldest_format_Kernel_Runtime", 0.85, None),
    ],
)
def test_start_up_of_real_traces(
    every: dict[str, tuple[Window, Answer]], name: str, at_least: float, first: str | None
) -> None:
    """What the calls themselves took, read in the files, is told as start-up; the verdict is about the rest."""
    found = every[name][1]
    assert found["verdict"]["startup_share"] >= at_least
    assert found["steady"]["span_ns"] + found["time"]["startup_ns"] == found["time"]["span_ns"]
    assert first in {None, found["verdict"]["first_cause"]}
    assert diagnosis.report(found, [name], 80).splitlines()[2].startswith("Start-up: ")


@pytest.mark.parametrize("name", ["b200_eager", "h100_Qwen_Qwen1", "v100_resnet_ns_absolute_ts", "sampled_ws128_rank0"])
def test_no_start_up_where_there_is_none(every: dict[str, tuple[Window, Answer]], name: str) -> None:
    """Windows of running jobs: at most the recording's first moments (b200 has no steps and begins with 1.8 ms)."""
    assert every[name][1]["verdict"]["startup_share"] < 0.025


def test_the_hosts_own_waits(every: dict[str, tuple[Window, Answer]]) -> None:
    """mi300_Qwen waits 13.05, 4.08 and 0.03 ms; bert some µs inside its step, which is not worth a word."""
    (found,) = [w for w in every["mi300_Qwen1"][1]["warnings"] if w["mistake"] == "host_time"]
    assert (found["count"], round(found["longest_ns"] / 1e6, 2)) == (3, 13.05)
    assert "host_time" not in {w["mistake"] for w in every["h100_gaunernst_bert-small-uncased"][1]["warnings"]}
    short = next(c for c in every["h100_gaunernst_bert-small-uncased"][1]["causes"] if c["cause"] == "sync")
    assert "the waits themselves are short" in short["fixes"][0]


def test_a_preprocessor_is_named(every: dict[str, tuple[Window, Answer]]) -> None:
    """Its 217.5 ms are a Python function of the trace."""
    host = every["h100_facebook_timesformer-base-finetuned-k400"][1]["causes"][0]
    assert (host["cause"], "preprocess" in host["example"]) == ("host", True)
    assert "input preprocessing" in host["fixes"][0]


def test_commands_that_select_the_same_are_one() -> None:
    """Their outputs differ in name only; the ranks stand before the one command."""
    one = {"what": "kernel", "tool": "ncu", "rank": 1, "command": "ncu k --export kernel1 CMD",
           "arguments": ["ncu", "k", "--export", "kernel1", "CMD"]}  # fmt: skip
    third = {**one, "rank": 3, "command": "ncu k --export kernel3 CMD"}
    answer = {"commands": [one, third], "unjudged": {"span_share": 0.0, "rows": []}}
    assert commands.listed(answer, 0.05, 80) == ["   #1, #3:", "     ncu k --export kernel1 CMD"]


def test_a_sign_stays_with_its_figure() -> None:
    """However wide the page: no line begins with a unit."""
    sentence = "They take <0.1 %, and 3.20 ms of it (12 µs) are none."
    for width in range(10, 60):
        assert not any(line.split()[0].rstrip(",)") in {"%", "ms", "µs"} for line in diagnosis.wrapped(sentence, width))


def test_stacks_are_noticed(every: dict[str, tuple[Window, Answer]]) -> None:
    """The Falconsai trace has 2117 Python functions, counted in the file by their category; the ResNet none."""
    (found,) = [w for w in every["h100_Falconsai_nsfw_image_detection"][1]["warnings"] if w["mistake"] == "stacks"]
    assert found["python_events"] == 2117
    assert "stacks" not in {w["mistake"] for w in every["v100_resnet_ns_absolute_ts"][1]["warnings"]}
