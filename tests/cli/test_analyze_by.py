"""``analyze --by``: the kernels of a file merged as those of a store are."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import in_process
import pytest

from roofwatch.cli.commands.analyze import BY as OFFERED
from roofwatch.cli.render import text
from roofwatch.model import grouping
from roofwatch.model.grouping import GROUP_KEYS
from roofwatch.model.grouping_file import BY

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
QWEN = "kineto/h100_Qwen_Qwen1.5-0.5B-Chat.json.gz"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, traces: Path) -> Callable[[str], str]:
    """Databases with one trace each, by its name."""
    folder, found = tmp_path_factory.mktemp("imported"), {}

    def of(name: str) -> str:
        if name not in found:
            found[name] = f"sqlite:///{folder}/{len(found)}.db"
            assert in_process.call("import", traces / name, "--db", found[name]).returncode == 0
        return found[name]

    return of


def twelve_digits(told: str) -> float:
    """A sum of floats depends on their order, in its last digits."""
    return float(f"{float(told):.12g}")


@pytest.mark.parametrize("name", [QWEN, "kineto/cpu_only.json.gz", "kineto/mi300_vllm_decode_fullgraph.json.gz"])
@pytest.mark.parametrize("by", BY)
def test_groups_of_a_file_are_those_of_a_store(
    roofwatch: Roofwatch, imported: Callable[[str], str], traces: Path, name: str, by: str
) -> None:
    """``analyze --by`` gives the rows of ``top --by`` after ``import``; of node and process a file knows nothing."""
    ask = ("--by", by, "--top", "0", "--format", "json")
    stored = json.loads(
        roofwatch("top", "--db", imported(name), "--since", "all", *ask).stdout, parse_float=twelve_digits
    )
    read = json.loads(roofwatch("analyze", str(traces / name), *ask).stdout, parse_float=twelve_digits)
    assert read["query"]["by"] == by
    assert read["rows"] == [{**row, "node": None, "process": None} for row in stored["rows"]] != []


def test_a_group_of_a_file_is_a_line(roofwatch: Roofwatch, traces: Path) -> None:
    """In 80 columns, the further rows told, and CSV with the keys of a group."""
    done = roofwatch("analyze", str(traces / QWEN), "--by", "device")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split()[:3] == ["1", "0", "1,707"]  # number 0, on no node
    done = roofwatch("analyze", str(traces / QWEN), "--by", "op", "--top", "3")
    assert max(map(text.width, done.stdout.splitlines())) <= 80
    assert "further ops: " in done.stdout
    done = roofwatch("analyze", str(traces / QWEN), "--by", "op", "--format", "csv")
    assert tuple(next(csv.DictReader(io.StringIO(done.stdout)))) == GROUP_KEYS


def test_what_a_file_can_be_merged_by() -> None:
    """All that a store can, but by node: a file is of one."""
    assert OFFERED == BY == tuple(by for by in grouping.BY if by != "node")
