"""``analyze`` and ``import`` on what Ascend profilers write, as a user runs them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ascend_tables import table

from roofwatch.cli.files import Origin, window_of

ALEXNET = "ascend/pytorch_alexnet_910B_ddp2"
QWEN = "ascend/qwen3_0.6b_910B_tp1pp2dp2_level2"
TABLE = "ASCEND_PROFILER_OUTPUT/kernel_details.csv"


Roofwatch = Callable[..., Any]


def analyzed(roofwatch: Roofwatch, path: Path, code: int = 0) -> dict[str, Any]:
    """The answer of ``analyze`` as JSON."""
    done = roofwatch("analyze", path, "--format", "json", "--top", "0")
    assert done.returncode == code, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("place", "records", "code"),
    [
        (f"{ALEXNET}/text/level0/rank0_ascend_pt", 191, 0),
        (f"{ALEXNET}/text/level1/rank0_ascend_pt", 191, 0),
        (f"{ALEXNET}/text/level2/rank0_ascend_pt/{TABLE}", 191, 0),
        (f"{ALEXNET}/text/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", 191, 0),
        (f"{ALEXNET}/db/level2/rank0_ascend_pt", 191, 0),
        (f"{QWEN}/rank_0_ascend_pt", 2463, 0),
        (f"{QWEN}/rank_2_ascend_pt/{TABLE}", 2587, 0),
        ("ascend/old_versions/kernel_details_2023-09_MemoryL0_rank0.csv", 20, 4),
        ("ascend/old_versions/op_summary_2023_old.csv", 20, 4),
        ("ascend/old_versions/msprof_0_fulldb.db", 11, 0),
    ],
)
def test_analyze(traces: Path, roofwatch: Roofwatch, place: str, records: int, code: int) -> None:
    """Every sort of source answers in the same form: records, times, an Ascend device; 4 where a row is damaged."""
    answer = analyzed(roofwatch, traces / place, code)
    coverage, timeline = answer["coverage"], answer["timeline"]
    assert coverage["device_records"] == sum(row["calls"] for row in answer["rows"]) == records
    assert coverage["device_time_ns"] == sum(row["total_ns"] for row in answer["rows"])
    assert timeline["busy_ns"] <= coverage["device_time_ns"]
    assert timeline["busy_ns"] + timeline["idle_ns"] == coverage["span_ns"]
    assert sum(cause["total_ns"] for cause in timeline["causes"].values()) == timeline["idle_ns"]
    assert answer["device"]["vendor"] == "ascend"


def test_links_in_the_answer(traces: Path, roofwatch: Roofwatch) -> None:
    """With a trace view beside it every kernel is tied to an op; without one nothing is known of that."""
    folder = traces / ALEXNET / "text/level1/rank0_ascend_pt"
    assert analyzed(roofwatch, folder)["coverage"]["linked_share"] == 1
    assert analyzed(roofwatch, folder / TABLE)["coverage"]["linked_share"] is None


@pytest.mark.parametrize("command", ["timeline", "diagnose"])
def test_other_commands(traces: Path, roofwatch: Roofwatch, command: str) -> None:
    """The commands that take a trace take a folder."""
    done = roofwatch(command, traces / ALEXNET / "text/level1/rank0_ascend_pt", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"]


def test_import(traces: Path, tmp_path: Path, roofwatch: Roofwatch) -> None:
    """A window each; the same capture again is known already: the bytes of its table name it."""
    database = f"sqlite:///{tmp_path / 'store.db'}"
    ranks = [traces / ALEXNET / f"text/level1/rank{rank}_ascend_pt" for rank in (0, 1)]
    first = roofwatch("import", *ranks, "--db", database)
    assert (first.returncode, first.stdout.count("191 records\n")) == (0, 2), first.stderr
    again = roofwatch("import", ranks[1], "--db", database)
    assert (again.returncode, again.stdout.count("known already")) == (0, 1)
    done = roofwatch("windows", "--db", database, "--since", "all", "--format", "json")
    rows = json.loads(done.stdout)["rows"]
    assert {row["uid"] for row in rows} == {
        hashlib.sha256((rank / TABLE).read_bytes()).hexdigest()[:32] for rank in ranks
    }


def test_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder given as a dot is known by its name."""
    folder = tmp_path / "node_1_20250109065800123_ascend_pt"
    folder.mkdir()
    (folder / "kernel_details.csv").write_bytes(table({}))
    monkeypatch.chdir(folder)
    window, problem = window_of(Path(), Origin())
    assert (window.process.labels["file"], problem) == (folder.name, None)
    assert window.uid == hashlib.sha256(table({})).hexdigest()[:32]


def test_sentences(traces: Path, tmp_path: Path, roofwatch: Roofwatch) -> None:
    """What cannot be read is one sentence on stderr, and code 1."""
    (tmp_path / "empty").mkdir()
    for path, word in (
        (traces / ALEXNET, "holds 8 captures"),
        (tmp_path / "empty", "neither a database"),
        (tmp_path / "none", "cannot be opened"),
        (
            traces / ALEXNET / "text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/op_statistic.csv",
            "statistics of op types",
        ),
    ):
        done = roofwatch("analyze", path)
        assert (done.returncode, done.stdout) == (1, ""), path
        assert word in done.stderr
        assert "Traceback" not in done.stderr
