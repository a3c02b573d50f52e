"""The command as a user types it: what is missing or cannot be meant gets one sentence that names what there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparison_files import Kernel, kineto
from in_process import call

ONE: list[Kernel] = [("aten::mm", "gemm_bf16", [[512, 512], [512, 512]], [512, 512], 30.0)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two traces of one product, the second slower."""
    slower: list[Kernel] = [(*ONE[0][:4], 45.0)]
    folder = tmp_path_factory.mktemp("traces")
    return str(kineto(folder / "a.json", ONE, 1.0)), str(kineto(folder / "b.json", slower, 1.0))


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, files: tuple[str, str]) -> tuple[str, ...]:
    """Both in a database, as two versions of one model; the options that ask it."""
    where = ("--db", f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.db'}")
    for version, file in zip(("v1", "v2"), files, strict=True):
        done = call("import", *where, "--model", "llama", "--label", f"image={version}", file)
        assert done.returncode == 0, done.stderr
    return (*where, "--since", "all")


def test_two_versions_in_a_store(db: tuple[str, ...], roofwatch: Any) -> None:
    """Sides by a label, the model for both."""
    done = roofwatch(
        "compare", *db, "--model", "llama", "--left", "image=v1", "--right", "image=v2", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    [row] = answer["rows"]
    assert (row["left_ns"], row["right_ns"], row["ratio"], row["expected_ratio"]) == (30_000, 45_000, 1.5, 1.0)
    assert (answer["query"]["labels"], answer["query"]["other"]["labels"]) == ({"image": "v1"}, {"image": "v2"})
    assert answer["summary"]["kernels"]["software_gap"] == 1.5


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--left", "image=v1"], 2, "--right is missing: there is"),
        ([], 2, "--left is missing"),
        (["--left", "image=v1", "--right", "image=v9"], 4, "image=v9: there is image=v1, image=v2."),
        (["--left", "image=v1", "--right", "vendor=ascend"], 4, "vendor=ascend: there is NVIDIA H100 80GB HBM3."),
        (["--left", "image=v1", "--right", "device=B200"], 4, "device=B200: there is NVIDIA H100 80GB HBM3."),
        (["--left", "image=v1", "--right", "node=npu-1"], 4, "no node 'npu-1' here: there is imported."),
        (["--left", "image=v1", "--right", "vendor=intel"], 2, "there is no such vendor"),
        (["--left", "image", "--right", "image=v2"], 2, "chooses nothing: write k=v"),
        (["--model", "nix", "--left", "image=v1", "--right", "image=v2"], 4, "no model 'nix' here: there is llama."),
        (["--node", "a", "--left", "node=b", "--right", "image=v2"], 2, "contradicts"),
        (["--left", "image=v1", "--right", "image=v2", "--per", "token"], 4, "reported no lengths: compare by step"),
        (["--left", "image=v1", "--right", "image=v2", "--per", "epoch"], 2, "epoch"),
        (["--left", "image=v1", "--right", "image=v1"], 2, "--left and --right mean the same windows"),
        (["--left", "image=v1", "--right", "image=v2", "--here"], 2, "--here says how a FILE is read"),
    ],
)
def test_what_cannot_be_answered(
    db: tuple[str, ...], roofwatch: Any, arguments: list[str], code: int, sentence: str
) -> None:
    """Exit code 2 for what cannot be meant, 4 for what is not there."""
    done = roofwatch("compare", *db, *arguments)
    assert done.returncode == code, done.stderr
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_why_there_is_no_answer_is_in_the_answer(db: tuple[str, ...], roofwatch: Any) -> None:
    """A program that asks for JSON gets an object also where a side does not tell the unit."""
    sides = ("--left", "image=v1", "--right", "image=v2")
    done = roofwatch("compare", *db, *sides, "--per", "token", "--format", "json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["summary"], answer["rows"]) == (4, None, [])
    assert answer["problem"] in " ".join(done.stderr.split())


def test_windows_on_both_sides_are_told(db: tuple[str, ...], roofwatch: Any) -> None:
    """One against all is a question, but its answer is thinner than it looks."""
    sides = ("--left", "image=v1", "--right", "model=llama")
    done = roofwatch("compare", *db, *sides, "--format", "json")
    [told] = [one for one in json.loads(done.stdout)["warnings"] if one["warning"] == "shared"]
    assert told["count"] == 1


def test_names_from_a_store_move_no_cursor(files: tuple[str, str], tmp_path: Path, roofwatch: Any) -> None:
    """A label that a job was given reaches a terminal as text, also in the sentence of a usage mistake and in CSV."""
    where = ("--db", f"sqlite:///{tmp_path / 'store.db'}")
    assert call("import", *where, "--label", "image=\x1b]0;v1\x07", files[0]).returncode == 0
    missing = roofwatch("compare", *where, "--since", "all", "--left", "image=v1")
    assert (missing.returncode, missing.stderr.count("image=?]0;v1?")) == (2, 1)
    listed = roofwatch("processes", *where, "--since", "all", "--format", "csv")
    assert listed.returncode == 0
    assert not {"\x1b", "\x07"} & set(missing.stderr + listed.stdout)


def test_files_that_cannot_be_compared(files: tuple[str, str], tmp_path: Path, roofwatch: Any) -> None:
    """One file, three files, a file beside a side, nothing in a file, no file at all."""
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}', encoding="utf-8")
    for arguments, code, sentence in (
        ([files[0]], 2, "two files are compared, one on each side"),
        ([*files, files[0]], 2, "3 given"),
        ([*files, "--left", "image=v1"], 2, "--left chooses windows of a store"),
        ([*files, "--since", "1h"], 2, "--since is for a store"),
        ([files[0], str(tmp_path / "nix.json")], 1, "nix.json"),
        ([files[0], str(empty)], 1, "empty.json holds no events"),
        ([*files, "--per", "call"], 4, "reported no batches: compare by step or window"),
    ):
        done = roofwatch("compare", *arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert sentence in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr


def test_the_help_has_examples(roofwatch: Any) -> None:
    """Of vendors, of versions and of files."""
    told = roofwatch("compare", "--help").stdout
    for example in (
        "--left vendor=nvidia --right vendor=ascend",
        "--left image=v1 --right image=v2",
        "h100.json.gz mi300",
    ):
        assert example in told
    assert all(len(line) <= 80 for line in told.splitlines())
