"""The answer that a page is drawn from, against what follows by hand (report_scene)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fresh
import pytest
from report_scene import LONG, US, busy, window
from store_builders import segment_of

from roofwatch.model import report
from roofwatch.model.record import Window
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker

START = 2_000_000_000_000_000_000
HOUR = 3_600_000_000_000


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Any]:
    """Store windows, and ask for their report."""
    opened = fresh.opened(tmp_path / "store.db")
    writer = Writer(opened)

    def asked(windows: list[Window], given: Filter | None = None, limit: int = 50) -> dict[str, Any]:
        assert writer.submit(Unpacker().unpack(segment_of(windows, 1))).result(timeout=20).reason == ""
        return Queries(opened).run("report", given or Filter(), limit)

    yield asked
    writer.close()
    opened.close()


def test_the_parts_add_up_to_the_span(scene_answer: dict[str, Any]) -> None:
    """Compute by kind, what is exposed, and idle time by cause, each as it follows by hand."""
    found = [(part["group"], part["part"], part["share"], part["est_ns"]) for part in scene_answer["where"]]

    assert found == [
        ("busy", "matmul", pytest.approx(0.2), 200 * US),
        ("busy", "norm", pytest.approx(0.1), 100 * US),
        ("exposed", "exposed_copy", pytest.approx(0.05), 50 * US),
        ("idle", "launch_bound", pytest.approx(0.4), 400 * US),
        ("idle", "sync", pytest.approx(0.25), 250 * US),
    ]
    assert sum(part["share"] for part in scene_answer["where"]) == pytest.approx(1.0)
    waiting = scene_answer["where"][3]
    assert (waiting["count"], waiting["longest_ns"], waiting["example"]) == (8, 100 * US, LONG)


def test_kinds_with_what_could_be_won(scene_answer: dict[str, Any]) -> None:
    """A copy is no kind of compute; where no roof is known nothing is said, not zero."""
    found = {one["kind"]: (one["share"], one["winnable_ns"]) for one in scene_answer["kinds"]}

    assert found == {"matmul": (pytest.approx(2 / 3), 100 * US), "norm": (pytest.approx(1 / 3), None)}


def test_dots_and_verdict(scene_answer: dict[str, Any]) -> None:
    """Two of three signatures have FLOPs and bytes; the verdict is the diagnosis's."""
    signatures, verdict = scene_answer["signatures"], scene_answer["verdict"]

    assert (signatures["count"], signatures["placed"]) == (3, 2)
    assert signatures["placed_share"] == pytest.approx(300 / 350)
    assert [dot["kernel"] for dot in signatures["dots"]] == ["nvjet_tst_128x256", "layer_norm"]
    assert verdict["first_cause"] == "launch_bound"
    assert verdict["winnable_share"] == pytest.approx(0.1)
    assert verdict["unknown_roof_share"] == pytest.approx(0.1)


def test_what_verdicts_rest_on(scene_answer: dict[str, Any]) -> None:
    """Device time by bound and evidence, with shares of all of it."""
    found = [(one["bound"], one["evidence"], one["est_ns"]) for one in scene_answer["verdicts"]]

    assert found == [
        ("compute", "shapes", 200 * US), ("unknown", "none", 100 * US), ("copy", "definition", 50 * US)
    ]  # fmt: skip


def test_a_store_and_a_file_answer_alike(ask: Any, scene_answer: dict[str, Any]) -> None:
    """The same window from a store: all that does not say where it is from is the same."""
    from_store = ask([window()])

    same = ("where", "kinds", "verdicts", "signatures", "verdict", "summary", "coverage", "rows")
    assert {key: from_store[key] for key in same} == {key: scene_answer[key] for key in same}
    assert from_store["subject"]["nodes"] == ["gpu-07"]
    assert from_store["ledger"] == {"events_read": 100, "padding_batches": 0}


def test_moments_weigh_windows_by_what_they_stand_for(ask: Any) -> None:
    """Of 40 s in one stretch 10 s waited 40 % for launches and 30 s not at all: 10 %; hours apart are bars apart."""
    windows = [
        window("a", START, represents_ns=10_000_000_000),
        busy("b", START + 60_000_000_000, represents_ns=30_000_000_000),
        window("c", START + HOUR),
        busy("d", START + 26 * HOUR),
    ]

    told = ask(windows)["moments"]

    # 26 h in at most 95 whole stretches: half an hour; 2e9 s are 1,111,111 half hours and 200 s.
    first = 1_111_111 * 1_800_000_000_000
    assert told["bucket_ns"] == 1_800_000_000_000
    assert [(row["start_unix_ns"], row["windows"]) for row in told["rows"]] == [
        (first, 2), (first + HOUR, 1), (first + 26 * HOUR, 1)
    ]  # fmt: skip
    assert [row["launch_bound_share"] for row in told["rows"]] == pytest.approx([0.1, 0.4, 0.0])
    assert [row["compute_share"] for row in told["rows"]] == pytest.approx([0.825, 0.3, 1.0])
    assert told["windows_without_time"] == 0


def test_windows_of_unknown_time_are_counted(ask: Any) -> None:
    """An imported trace without a clock has no moment, and is not put at the beginning of time."""
    told = ask([window("a", START), window("b", 0)])

    assert [row["windows"] for row in told["moments"]["rows"]] == [1]
    assert told["moments"]["windows_without_time"] == 1
    assert told["subject"]["first_unix_ns"] == START


STRETCHES = [(0, 1), (95, 1), (96, 5), (85_500, 900), (86_400, 1800), (7 * 86_400, 7200), (10**10, 31_536_000)]


@pytest.mark.parametrize(("seconds", "size"), STRETCHES)
def test_stretches_are_round_and_few(seconds: int, size: int) -> None:
    """The shortest round length of which 95 cover the time, so that 96 do wherever they begin."""
    assert report.bucket_ns(seconds * 10**9) == size * 10**9


def test_long_texts_and_lists_are_cut() -> None:
    """Inside, with both ends kept, so that a name of 64 KB takes 400 characters of a page."""
    name = "head" + "x" * 65_536 + "tail"

    told = report.clipped({"kernel": name, "shapes": [[1, 2]] * 1000, "calls": 3, "op": None})

    assert len(told["kernel"]) <= report.TEXT_MOST
    assert told["kernel"].startswith("head")
    assert told["kernel"].endswith("tail")
    assert (len(told["shapes"]), told["calls"], told["op"]) == (report.ITEMS_MOST, 3, None)


def test_exceeded_roofs_promise_nothing() -> None:
    """A roof fraction above 105 % cannot be, so nothing is winnable; below it is what is left."""
    rows = [
        {"kind": "matmul", "bound": "memory", "est_ns": 100, "calls": 1, "roof_fraction": 2.0, "winnable_ns": 0},
        {"kind": "matmul", "bound": "memory", "est_ns": 100, "calls": 1, "roof_fraction": 0.4, "winnable_ns": 60},
    ]

    assert report.kinds_of(rows)[0]["winnable_ns"] == 60
