"""Device graphs on the command line: a line for each, and the profile of a capture that tells their ops."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.cli.render import graphs

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]

REPLAY, CAPTURE = "mi300_vllm_decode_fullgraph.json.gz", "mi300_vllm_graph_capture.json.gz"
KEYS = [
    "graph", "device", "launches", "records", "total_ns", "attributed_ns", "attributed_share", "source", "confidence",
]  # fmt: skip


def line(name: str, total: int, attributed: int = 0, source: str | None = None, confidence: float | None = None):
    """As much of a graph's row as a line shows."""
    return {"graph": name, "launches": 2, "total_ns": total, "attributed_ns": attributed} | {
        "source": source, "confidence": confidence}  # fmt: skip


def test_a_line_a_graph() -> None:
    """Shares of 1,000 ns of device time; half of a graph tied by a log that fits 60 %."""
    given = [line("graph 4", 500, 250, "log", 0.6), line("graph 9", 100)]
    assert graphs.lines(given, 1000, 80) == [
        "graph 4: 50.0 % of device time, 2 launches, 50.0 % attributed (log, fit 60.0 %)",
        "graph 9: 10.0 % of device time, 2 launches, unattributed",
    ]
    assert graphs.lines([], 1000, 80) == graphs.lines(given, 0, 80) == []


def test_many_graphs_are_few_lines() -> None:
    """Of six the three largest, and one line with the sums of the others."""
    given = [line(f"graph {n}", 100 - n, attributed=n) for n in range(1, 7)]
    assert graphs.lines(given, 1000, 80)[3:] == ["… and 3 more graphs: 28.5 % of device time, 5.3 % attributed"]
    assert max(map(len, graphs.lines(given, 1000, 30))) <= 30


def test_a_capture_tells_the_ops_of_a_replay(roofwatch: Roofwatch, traces: Path) -> None:
    """The whole graph is attributed, by table and by JSON; without the capture every row says that it is not."""
    replay, capture = (str(traces / "kineto" / name) for name in (REPLAY, CAPTURE))
    done = roofwatch("analyze", replay, "--graph-capture", capture)
    assert done.returncode == 0
    assert "graph 1: 96.9 % of device time, 1 launch, 100 % attributed (capture, fit 100 %)" in done.stdout
    lines = done.stdout.splitlines()
    assert max(len(line) for line in lines if str(traces) not in line) <= 80  # a path is told whole

    answer = json.loads(roofwatch("analyze", replay, "--graph-capture", capture, "--format", "json").stdout)
    (graph,) = answer["graphs"]
    assert list(graph) == KEYS
    assert (graph["launches"], graph["records"], graph["attributed_share"], graph["source"]) == (1, 421, 1.0, "capture")
    assert answer["query"]["graph_captures"] == [capture]
    assert answer["coverage"]["graph_attributed_share"] == 1.0
    products = [row for row in answer["rows"] if row["kernel"].startswith("Cijk_") and row["calls"] == 24]
    assert {(row["op"], row["evidence"]) for row in products} == {("aten::addmm", "borrowed")}
    assert all(row["flops"] == 2 * row["shapes"][1][0] * row["shapes"][1][1] * row["shapes"][2][1] for row in products)

    plain = json.loads(roofwatch("analyze", replay, "--format", "json").stdout)
    assert plain["coverage"]["graph_attributed_share"] == 0.0
    assert plain["rows"][0]["op"] == "graph 1, unattributed"


def test_import_takes_a_capture_too(roofwatch: Roofwatch, traces: Path, tmp_path: Path) -> None:
    """What is in the store has the ops of the capture."""
    replay, capture = (str(traces / "kineto" / name) for name in (REPLAY, CAPTURE))
    url = f"sqlite:///{tmp_path / 'graphs.db'}"
    assert roofwatch("import", replay, "--graph-capture", capture, "--db", url).returncode == 0
    answer = json.loads(roofwatch("top", "--db", url, "--since", "all", "--format", "json").stdout)
    assert answer["coverage"]["graph_attributed_share"] == 1.0
    assert "vllm::moe_forward" in {row["op"] for row in answer["rows"]}


@pytest.mark.parametrize(
    ("given", "said"), [(REPLAY, "holds no graph capture"), ("nowhere.json", "cannot be opened")]
)  # fmt: skip
def test_what_is_no_capture(roofwatch: Roofwatch, traces: Path, given: str, said: str) -> None:
    """One sentence that names the file, and exit code 1."""
    folder = traces / "kineto"
    done = roofwatch("analyze", str(folder / REPLAY), "--graph-capture", str(folder / given))
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert given in done.stderr
