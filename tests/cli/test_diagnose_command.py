"""``timeline`` and ``diagnose`` as a user calls them: a file or a store, table, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.model.diagnosis_report import KERNEL_KEYS
from roofwatch.model.timeline import ROW_KEYS

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
QWEN = "kineto/h100_Qwen_Qwen1.5-0.5B-Chat.json.gz"


@pytest.mark.parametrize("command", ["timeline", "diagnose"])
def test_a_file_as_table_json_and_csv(roofwatch: Roofwatch, traces: Path, command: str) -> None:
    """Exit 0 each, the documented keys, as many CSV lines as rows."""
    file = str(traces / QWEN)
    table = roofwatch(command, file)
    assert (table.returncode, table.stderr) == (0, "")
    assert table.stdout.startswith(Path(QWEN).name)
    assert "\x1b" not in table.stdout
    told = json.loads(roofwatch(command, file, "--format", "json").stdout)
    keys = ROW_KEYS if command == "timeline" else KERNEL_KEYS
    assert all(tuple(row) == keys for row in told["rows"])
    assert told["query"]["file"] == file
    rows = list(csv.DictReader(io.StringIO(roofwatch(command, file, "--format", "csv").stdout)))
    assert len(rows) == len(told["rows"])
    assert tuple(rows[0]) == keys


@pytest.mark.parametrize("trace", [QWEN, "kineto/mi250_minitoy_rocm62.json.gz"])  # the second with start-up
@pytest.mark.parametrize("command", ["timeline", "diagnose"])
def test_a_file_and_a_store_say_the_same(
    roofwatch: Roofwatch, traces: Path, tmp_path: Path, command: str, trace: str
) -> None:
    """After ``import`` the store's answer is the file's, but for what only the file tells and the process's name."""
    url, file = f"sqlite:///{tmp_path}/t.db", str(traces / trace)
    assert roofwatch("import", file, "--db", url).returncode == 0
    stored = json.loads(roofwatch(command, "--db", url, "--since", "all", "--format", "json").stdout)
    told = json.loads(roofwatch(command, file, "--format", "json").stdout)
    if command == "timeline":
        assert stored["summary"] == told["summary"]
        assert stored["query"]["by"] == told["query"]["by"] == "device"
        return
    for key in ("verdict", "time", "startup", "steady", "causes", "unjudged", "commands", "rows"):
        assert stored[key] == told[key], key
    only_in_file = {"no_warm_up"}  # lengths of steps are not stored
    assert [w for w in told["warnings"] if w["mistake"] not in only_in_file] == stored["warnings"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["FILE", "--node", "x"], "--node is for a store, and"),
        (["FILE", "--db", "sqlite:///x"], "--db is for a store, and"),
        (["FILE", "--since", "1h"], "--since is for a store, and"),
        (["--here"], "--here says how a FILE is read: name one"),
        (["--threads", "3"], "--threads says how a FILE is read: name one"),
    ],
)
@pytest.mark.parametrize("command", ["timeline", "diagnose"])
def test_a_file_or_a_store(
    roofwatch: Roofwatch, tmp_path: Path, command: str, arguments: list[str], words: str
) -> None:
    """What belongs to the other one is a mistake that is named; a store in the environment is none."""
    file = tmp_path / "a.json"
    file.write_text("{}")
    done = roofwatch(command, *(str(file) if word == "FILE" else word for word in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    done = roofwatch(command, str(file), env={"ROOFWATCH_STORE": "127.0.0.1:1"})
    assert done.returncode == 1
    assert str(file) in done.stderr


@pytest.mark.parametrize("command", ["timeline", "diagnose"])
def test_nothing_matches(roofwatch: Roofwatch, traces: Path, tmp_path: Path, command: str) -> None:
    """Exit 4 and a sentence that names what there is."""
    url = f"sqlite:///{tmp_path}/t.db"
    small = str(traces / "kineto" / "a100_triton_user_kernel.json.gz")
    assert roofwatch("import", small, "--db", url, "--model", "m").returncode == 0
    done = roofwatch(command, "--db", url, "--since", "all", "--model", "n")
    assert done.returncode == 4
    assert "no model 'n' here: there is m." in done.stderr
    assert "Traceback" not in done.stderr
