"""What ``analyze`` says where the way of recording is why kernels have no verdict."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
CAPTURE = "mi300_vllm_graph_capture"


@pytest.mark.parametrize(
    ("name", "captures", "said"),
    [
        ("rtx2080ti_linear_int_ts", [], "no input shapes were recorded"),
        ("mi300_vllm_decode_fullgraph", [], "--graph-capture CAPTURE"),
        ("h100_gaunernst_bert-small-uncased", [CAPTURE], "--graph-capture does nothing"),
        ("h100_gaunernst_bert-small-uncased", [], ""),
    ],
)
def test_hints(roofwatch: Roofwatch, traces: Path, name: str, captures: list[str], said: str) -> None:
    """One sentence each, and none where there is nothing to say; the exit code stays 0."""
    given = [word for one in captures for word in ("--graph-capture", str(traces / "kineto" / f"{one}.json.gz"))]
    done = roofwatch("analyze", str(traces / "kineto" / f"{name}.json.gz"), *given)
    assert done.returncode == 0
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == bool(said)


def test_backlog_is_told(roofwatch: Roofwatch, traces: Path) -> None:
    """Three tenths of the Qwen trace's device time were launched before it began."""
    done = roofwatch("analyze", str(traces / "kineto" / "h100_Qwen_Qwen1.5-0.5B-Chat.json.gz"))
    assert "30 % launched before the window" in done.stdout
