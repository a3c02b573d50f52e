"""Whole outputs of the renderers against text written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from roofwatch.cli.render import csv, kernels, plot, roofline, text
from roofwatch.cli.render import json as as_json
from roofwatch.cli.render.table import Column, table
from roofwatch.model.answer_rows import ROW_KEYS

Golden = Callable[[str], str]
Answer = dict[str, Any]


def test_top_in_80_columns(answer: Answer, golden: Golden) -> None:
    """Winnable is 8 s × (1 − 0.550637) = 3.59 s and 2.468 s × (1 − 0.800144) = 493 ms; 1 − 0.957 = 4.3 % lie below.

    The causes are 22, 9 and 7.5 % of the span; 0.3 and 0.2 % are below half a per cent each and make "other".
    """
    title = ["gpu-07", "8 × NVIDIA A100-SXM4-80GB", "last 1 h"]
    assert kernels.report(answer, title, 80) == golden("top_80.txt")


def test_top_on_a_wide_terminal_shows_what_80_columns_leave_out(answer: Answer, golden: Golden) -> None:
    """With 200 columns no column goes and no name is cut."""
    assert kernels.report(answer, ["gpu-07"], 200) == golden("top_200.txt")


def test_the_next_command_is_told_where_devices_wait(answer: Answer) -> None:
    """Idle 39 %: it stands under the head, whole, in several lines where it is long; at 19 % idle there is no need."""
    then = "roofwatch diagnose --node gpu-07"
    assert kernels.report(answer, [], 80, then).splitlines()[3] == f"→ run: {then}"
    long = f"roofwatch diagnose '/data/{'x y' * 22}.json' --graph-capture /data/{'c' * 50}.json"
    lines = kernels.report(answer, [], 80, long, "roofwatch diagnose FILE").splitlines()
    first = lines.index("→ run:")
    assert [line.rstrip(" \\").strip() for line in lines[first + 1 : first + 4]] == [
        "roofwatch diagnose",
        f"'/data/{'x y' * 22}.json'",
        f"--graph-capture /data/{'c' * 50}.json",
    ]
    hopeless = "roofwatch diagnose '\x1b[2J'"
    assert "→ run" not in kernels.report(answer, [], 80, hopeless)
    assert "→ run: roofwatch diagnose FILE\n" in kernels.report(answer, [], 80, hopeless, "roofwatch diagnose FILE")
    answer["timeline"] |= {"busy_ns": 8_100_000_000, "idle_ns": 1_900_000_000}
    assert "→ run" not in kernels.report(answer, [], 80, then)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (48, "cost 0.12 % (of 48 windows)"),
        (46, "cost 0.12 % (of 46 windows)"),
        (24, "cost 0.12 % (of 24 of 48 windows)"),
        (23, None),
    ],
)
def test_a_cost_says_of_how_many_windows_it_is(answer: Answer, known: int, told: str | None) -> None:
    """First windows alone may be missing without a word; known of less than half, it is that of some jobs only."""
    answer["cost"]["windows"] = known
    parts = " · ".join(kernels.head(answer, [], 80)).split(" · ")
    assert [part for part in parts if part.startswith("cost")] == ([told] if told else [])


def test_devices_that_are_not_alike_are_named(answer: Answer) -> None:
    """Figures of several device models are added up, which the head says; of one there is no word."""
    head = kernels.head({**answer, "device_models": ["NVIDIA H100", "AMD MI300X"]}, [], 80)
    assert head[-1] == "2 device models added up (--device takes one) · NVIDIA H100 · AMD MI300X"
    apart = kernels.head({**answer, "query": {"by": "op"}, "device_models": ["NVIDIA H100", "AMD MI300X"]}, [], 80)
    assert " · ".join(apart[-2:]) == (
        "2 device models, each with its own rows (--device takes one) · NVIDIA H100 · AMD MI300X"
    )
    five = " · ".join(kernels.head({**answer, "device_models": list("abcde")}, [], 80))
    assert five.endswith("5 device models added up (--device takes one) · a · b · c · d · and 1 more")
    assert kernels.head({**answer, "device_models": ["a"]}, [], 80) == kernels.head(answer, [], 80)


@pytest.mark.parametrize("room", [80, 132])
def test_rows_of_one_op_are_told_apart(cpu_answer: Answer, golden: Golden, room: int) -> None:
    """On a CPU shapes stand beside the op; a roof fraction above what can be is marked; a cost below 0 is about 0."""
    assert kernels.report(cpu_answer, ["vm", "1 × EPYC"], room) == golden(f"cpu_{room}.txt")


def test_roofline_marks_what_is_above_the_roof(cpu_answer: Answer) -> None:
    """The same mark and the same note as in ``top``."""
    lines = roofline.report(cpu_answer, ["vm"], 80).splitlines()
    assert next(line for line in lines if "aten::gelu [8×256×2048]" in line).split()[-6:-2] == [
        "–",
        "294",
        "%!",
        "memory",
    ]
    assert lines[-1].startswith("! 1 row above the roof: ")


@pytest.mark.parametrize(
    ("bounds", "limited", "told"),
    [
        (("communication", "copy"), False, "communication 64 · copies 20 % of device time"),
        (("communication", "copy"), True, "communication ≥ 64 · copies ≥ 20 % of device time"),
        (("compute", "copy"), False, "copies 20 % of device time"),
        (("compute", "memory"), False, None),
    ],
)
def test_what_is_no_compute_time_is_told_where_it_is_much(
    answer: Answer, bounds: tuple[str, str], limited: bool, told: str | None
) -> None:
    """Shares 64, 20 and 16 %; where rows are left out, those shown are the least there can be."""
    answer["rows"] = answer["rows"][:3]
    for row, bound, share in zip(
        answer["rows"], [*bounds, "memory"], [0.64, 0.2, 0.12 if limited else 0.16], strict=True
    ):
        row |= {"bound": bound, "share": share}
    found = [part for line in kernels.head(answer, [], 80) for part in line.split(" · cost")[0].split("\n")]
    assert [line for line in found if line.endswith("of device time")] == ([told] if told else [])


def test_roofline_in_80_columns(answer: Answer, golden: Golden) -> None:
    """The plot spans 10^-1.229 to 10^3.285 FLOP/B in 72 cells and 10^10.983 to 10^14.644 FLOP/s in 16.

    So mark 1 (1365 FLOP/B, 172 TFLOP/s) is in cell 69 of row 13 from below, mark 2 (1/12, 136 GFLOP/s) in cell 2 of
    row 1, the roofs of 312 and 19.5 TFLOP/s are in rows 14 and 9 and begin at their ridges, 153 and 9.56, in cells 54
    and 35; the decades 0.1 … 1 k stand in cells 4, 19, 35, 51, 67.
    """
    assert roofline.report(answer, ["gpu-07"], 80) == golden("roofline_80.txt")


@pytest.mark.parametrize("room", [80, 81, 100, 132, 200])
def test_no_line_is_wider_than_the_room(answer: Answer, room: int) -> None:
    """Whatever the room, and with names of 300 double-width characters."""
    answer["rows"][0]["kernel"] = "核" * 300
    answer["rows"][1]["op"] = "o" * 300
    title = ["n" * 100, "8 × NVIDIA"]
    for drawn in (kernels.report(answer, title, room), roofline.report(answer, title, room)):
        assert max(text.width(line) for line in drawn.splitlines()) <= room


def test_an_answer_without_rows_has_a_head_only(answer: Answer) -> None:
    """Nothing known is said as such, and no empty table is drawn."""
    unknown = dict.fromkeys(("classified_share", "named_share", "mfu"))
    answer["coverage"] |= {**unknown, "windows": 0, "span_ns": 0, "dropped": {}}
    answer |= {"rows": [], "timeline": None, "cost": None}
    assert kernels.report(answer, [], 80) == "0 windows · no compute time to classify\n"
    assert roofline.report(answer, [], 80) == "0 windows · no compute time to classify\n"


def test_a_hostile_name_cannot_reach_the_terminal(answer: Answer) -> None:
    """Escape sequences, line breaks and bidirectional controls in names are shown as question marks."""
    answer["rows"][0] |= {"kernel": "\x1b[2Jgemm\r\n", "op": "\u202eop\x9b1m", "device": "\x1b]0;x\x07"}
    drawn = kernels.report(answer, ["\x1b[31mnode"], 120) + roofline.report(answer, [], 120)
    assert not set(drawn) & set("\x1b\r\x07\x9b\u202e")
    assert "?[2Jgemm??" in drawn
    assert "?op?1m" in drawn


def test_a_hostile_name_is_quoted_in_csv() -> None:
    """What moves a cursor is written as Python writes it; what CSV quotes and every other letter stay."""
    assert csv.render([{"kernel": "\x1b[2J\x9bé\t\n,日"}], ["kernel"]) == 'kernel\n"\\x1b[2J\\x9bé\t\n,日"\n'


def test_csv_has_the_names_of_the_json(answer: Answer, golden: Golden) -> None:
    """Unknown is empty, lists are compact JSON, quotes are doubled."""
    row = {**answer["rows"][3], "kernel": 'a,"b"', "kind": "matmul", "shapes": [[64, 64], []]}
    row |= {"calls": 1, "total_ns": 1000, "est_ns": 1000, "share": None, "mean_ns": 1000.0}
    assert csv.render([row], ROW_KEYS) == golden("top.csv")
    assert csv.render([], ("a", "b")) == "a,b\n"


def test_json_is_one_ascii_object(answer: Answer) -> None:
    """It reads back equal, with null for unknown, and no character that a terminal could misread."""
    answer["rows"][0]["kernel"] = "\x1b[2J核\ud800"
    drawn = as_json.render(answer)
    assert drawn.isascii()
    assert "\x1b" not in drawn
    assert json.loads(drawn) == answer
    assert '"roof_fraction": null' in drawn


def test_plot_places_only_what_has_a_place(answer: Answer) -> None:
    """Rows without FLOPs, bytes or time get no mark; a row without a roof gets a mark and no roof."""
    answer["rows"][1] |= {"roof_fraction": None, "ridge": None}
    first, second = plot.points(answer["rows"])
    assert (first.mark, second.mark) == ("1", "2")
    assert first.peak == pytest.approx(312e12, rel=1e-5)
    assert first.bandwidth == pytest.approx(2.039e12, rel=1e-5)
    assert (second.peak, second.bandwidth) == (None, None)
    assert plot.plot([], 80) == []


def test_a_single_point_far_off_still_has_axes() -> None:
    """One kernel without a roof: a decade at least is drawn on both axes, and the mark is inside."""
    lines = plot.plot([plot.Point("1", 0.25, 3e9)], 80)
    assert [sum("┤" in line for line in lines) >= 2, lines[-2].count("┬") >= 2] == [True, True]
    assert sum("1" in line.split("│")[-1] for line in lines[1:-2]) >= 1
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("intensity", "fraction"), [(1_365.0, 0.9), (0.08, 0.9), (153.0, 0.99), (40.0, 0.01), (9_000.0, 0.2)]
)
def test_the_plot_of_one_kernel_has_axes_and_both_roofs(intensity: float, fraction: float) -> None:
    """At least two labels on each axis, and some cells of the memory's and of the compute's roof, wherever it is."""
    attainable = min(312e12, 2.039e12 * intensity)
    lines = plot.plot([plot.Point("1", intensity, fraction * attainable, 312e12, 2.039e12)], 80)
    drawn, labels = "".join(lines[1:-2]), lines[-1].split("  ")
    assert sum("┤" in line for line in lines) >= 2
    assert lines[-2].count("┬") == len([label for label in labels if label]) >= 2
    assert drawn.count("·") >= 10
    assert drawn.count("─") >= 5
    assert max(map(len, lines)) <= 80


def test_the_widest_flexible_column_gives_way_first() -> None:
    """In 25 columns with one gap, a of 10 and b of 20: b gives 6 and is cut to 14."""
    columns = (Column("a", floor=4), Column("b", floor=4))
    assert table(columns, [("a" * 10, "b" * 20)], 25) == ["a          b", "a" * 10 + " " + "b" * 13 + "…"]


def test_names_that_begin_alike_are_cut_inside() -> None:
    """In 9 columns "gemm_128…" would stand twice, so 4 of the tail are kept; what differs early stays as it was."""
    columns = (Column("a", floor=4, apart=True),)
    names = ["gemm_128x64_tn", "gemm_128x64_nn", "softmax_forward", "copy"]
    assert table(columns, [(name,) for name in names], 9) == ["a", "gemm…4_tn", "gemm…4_nn", "softmax_…", "copy"]
    inner = ["kernel<add, 4>", "kernel<mul, 4>"]  # neither end tells them apart
    assert table(columns, [(name,) for name in inner], 9)[1:] == ["kernel<a…", "kernel<m…"]
    assert table(columns, [(name,) for name in inner], 8)[1:] == ["kernel<…", "kernel<…"]


def test_columns_that_may_go_are_dropped_before_the_others_are_too_narrow() -> None:
    """In 9 columns b (drop 1) must go for a to keep its 8; the column that may not go stays also where it overflows."""
    columns = (Column("a", right=True), Column("b", right=True, drop=1))
    assert table(columns, [("12345678", "12")], 9) == ["       a", "12345678"]
    assert table(columns[:1], [("12345678",)], 4) == ["       a", "12345678"]
