"""``padding`` without a store: lengths alone, of a file, and beside a real trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Program = Callable[..., Any]
EIGHT = "120,2048,96,310,64,180,220,90"


def answer(roofwatch: Program, *arguments: str) -> Any:
    """The answer as JSON."""
    done = roofwatch("padding", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_lengths_alone(roofwatch: Program) -> None:
    """The eight of the design: 19.1 % and 13.1 %; two buckets 3128 ÷ 4218, four 3128 ÷ 3278."""
    shown = roofwatch("padding", "--lengths", EIGHT)
    assert shown.returncode == 0
    assert "Used: 19.1 % of the tokens, 13.1 % of their squares (attention)" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    rows = answer(roofwatch, "--lengths", EIGHT)["rows"]
    assert [row["buckets"] for row in rows] == [None, 2, 4, 8, None]
    assert rows[1]["linear_utilisation"] == pytest.approx(3128 / 4218)
    assert rows[2]["linear_utilisation"] == pytest.approx(3128 / 3278)
    assert rows[2]["boundaries"] == [120, 220, 310, 2048]
    assert rows[0]["saved_share"] is None


def test_a_file_of_lengths(roofwatch: Program, tmp_path: Path) -> None:
    """A number a line is one batch, or batches of a size; a batch a line is that; the file may be the argument."""
    single, lines = tmp_path / "single.txt", tmp_path / "lines.txt"
    single.write_text("3\n5\n2\n2\n")
    lines.write_text("3, 5\n\n2 2\n")
    whole = answer(roofwatch, "--lengths", str(single))
    assert whole["utilisation"]["linear"] == pytest.approx(12 / 20)
    for arguments in (("--lengths", str(single), "--batch-size", "2"), ("--lengths", str(lines)), (str(lines),)):
        found = answer(roofwatch, *arguments)
        assert found["utilisation"]["linear"] == pytest.approx(12 / 14)
        assert found["lengths"]["batches"] == 2
    padded = answer(roofwatch, str(single), "--padded-to", "6")
    assert padded["utilisation"]["linear"] == pytest.approx(12 / 24)


def test_lengths_beside_a_trace(roofwatch: Program, traces: Path) -> None:
    """A Qwen of batch 16, padded to 559, on an H100: most kernels have those sizes, attention is fused."""
    file = str(traces / "kineto" / "h100_Qwen_Qwen1.5-0.5B-Chat.json.gz")
    lengths = "120,559,96,310,64,180,220,90,300,200,100,350,400,77,20,190"
    found = answer(roofwatch, file, "--lengths", lengths)
    assert found["split"]["linear_share"] == pytest.approx(0.80, abs=0.02)
    assert found["split"]["quadratic_share"] == pytest.approx(0.084, abs=0.01)
    assert found["split"]["fits"] is True
    linear, quadratic = found["utilisation"]["linear"], found["utilisation"]["quadratic"]
    assert linear == pytest.approx(3276 / (16 * 559))
    most = found["split"]["linear_share"] * (1 - linear) + found["split"]["quadratic_share"] * (1 - quadratic)
    free = found["rows"][-1]["saved_share"]
    assert 0.5 < free <= most  # weights and latency take a part of it
    assert found["device_hours_per_day"] is None
    other = answer(roofwatch, file, "--lengths", "5,7,9")
    assert other["split"]["fits"] is False
    assert other["rows"][-1]["saved_share"] is None


WRONG = [
    (("--lengths", "3,x"), 2, "'3,x' is neither a list of lengths"),
    (("--lengths", "bad.txt"), 2, "bad.txt, line 2: 'three' is no list of lengths"),
    (("--lengths", "empty.txt"), 2, "holds no lengths"),
    (("--lengths", str(1 << 40)), 2, "is none"),
    (("--batch-size", "4"), 2, "--batch-size says how --lengths are batched"),
    (("--lengths", "3,5", "--model", "x"), 2, "--model has nothing to choose from"),
    (("--lengths", "3,5", "--db", "sqlite:///x.db"), 2, "--db has nothing to choose from"),
    (("--lengths", "3,5", "--here"), 2, "--here has nothing to choose from"),
    (("trace.json", "--lengths", "3,5", "--node", "x"), 2, "--node is for a store"),
    (("trace.json",), 2, "does not tell the lengths of its batches: add --lengths"),
    (("--lengths", "0,0"), 4, "All these lengths are 0"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG)
def test_mistakes_get_one_sentence(
    roofwatch: Program, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """What is wrong, where, and what to do."""
    (tmp_path / "bad.txt").write_text("3\nthree\n")
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    done = roofwatch("padding", *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_says_how(roofwatch: Program) -> None:
    """Examples, and how a job tells its lengths."""
    shown = roofwatch("padding", "--help").stdout
    assert "batch(lengths=" in shown
    assert "--lengths 120,2048" in shown


def test_sequences_that_are_cut_are_told(roofwatch: Callable[..., Any]) -> None:
    """10 and 20 padded to 15: one of two is longer; padded to 20 none is."""
    done = roofwatch("padding", "--lengths", "10,20", "--padded-to", "15")
    assert done.returncode == 0
    assert "1 of 2 sequences are longer than --padded-to 15 and count as cut to it: the longest has 20" in done.stderr
    assert roofwatch("padding", "--lengths", "10,20", "--padded-to", "20").stderr == ""
