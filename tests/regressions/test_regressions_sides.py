"""The two sides of ``roofwatch regressions``: which windows they are, and what is wrong with them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from regression_scene import Scene, stored
from regressions_asked import AFTER, BEFORE, SIDES, WORK, Roofwatch, asked, table

from roofwatch.cli import asking
from roofwatch.cli.commands.regressions import command
from roofwatch.model.errors import UsageError
from roofwatch.model.record import DeviceState
from roofwatch.store import database
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries


def test_sides_that_mean_nothing(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """No such label (4, with those there are), the same windows twice, common windows, contradictions, typos (2)."""
    url = stored(tmp_path, replace(BEFORE, windows=2), replace(AFTER, windows=2))

    def run(before: str, after: str, *more: str) -> tuple[int, str]:
        done = roofwatch("regressions", "--db", url, "--since", "all", "--before", before, "--after", after, *more)
        return done.returncode, " ".join(done.stderr.split())

    code, said = run("image=v1", "image=v3")
    assert code == 4
    assert "--after: no window has the label image=v3: there is image=v1, image=v2." in said
    code, said = run("image=v1", "image=v2", "--model", "lama")
    assert code == 4
    assert "no model 'lama' here: there is llama" in said
    code, said = run("image=v1", "image=v1")
    assert code == 2
    assert "the same windows" in said
    code, said = run("image=v1", "node=gpu-07")
    assert code == 2
    assert "2 windows are on both sides" in said
    code, said = run("node=a", "node=b", "--node", "c")
    assert code == 2
    assert "contradicts" in said
    for text, named in (
        ("vendor=intel", "only nvidia, ascend, amd, cpu"), ("image", "any label k=v"), ("since=yesterday", "2d"),
        ("=v", "write k=v"),
    ):  # fmt: skip
        code, said = run(text, "image=v2")
        assert code == 2
        assert named in said


@pytest.mark.parametrize("more", [("--tolerance", "x"), ("--find", "-1%"), ("--skip-start", "8d"), ("--find", "1%")])
def test_options_that_cannot_be_meant(roofwatch: Roofwatch, tmp_path: Path, more: tuple[str, str]) -> None:
    """Exit code 2, one sentence."""
    url = stored(tmp_path, replace(BEFORE, windows=1), replace(AFTER, windows=1))
    done = roofwatch("regressions", "--db", url, *SIDES, *more)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_query_with_one_side_is_refused(tmp_path: Path) -> None:
    """The store itself says that two sides are needed."""
    opened = database.open(stored(tmp_path, replace(BEFORE, windows=1)), migrate=False)
    try:
        with pytest.raises(UsageError, match="compares two sides"):
            Queries(opened).run("regressions", Filter())
    finally:
        opened.close()


def test_windows_that_are_not_used_have_a_reason(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Three windows of before hold no kernels, two of after are of another device."""
    idle = Scene((), 3, {"image": "v1"}, first_minute=200, pid=300, host_ns=1_000)
    other = Scene(WORK, 2, {"image": "v2"}, first_minute=300, pid=400, device="NVIDIA A100")
    url = stored(tmp_path, BEFORE, AFTER, idle, other)
    sides = asked(roofwatch, url)[1]["sides"]
    assert (sides["before"]["windows"], sides["before"]["windows_used"]) == (33, 30)
    assert sides["before"]["left_out"] == {"other_device": 0, "without_kernels": 3, "not_sampled": 0}
    assert sides["after"]["left_out"] == {"other_device": 2, "without_kernels": 0, "not_sampled": 0}
    shown = table(roofwatch, url)
    assert "33 windows, 30 used (3 without kernels)" in shown
    assert "32 windows, 30 used (2 on a device that the other side has none of)" in shown


@pytest.mark.parametrize(
    ("command", "options"), [("regressions", SIDES[2:]), ("compare", ("--left", "image=v1", "--right", "image=v2"))]
)
def test_a_side_that_is_only_of_another_time_says_so(
    roofwatch: Roofwatch, tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    """All windows are of 2027: until then there are none, and the sentence names the time that there is."""
    url = stored(tmp_path, replace(BEFORE, windows=1), replace(AFTER, windows=1))
    done = roofwatch(command, "--db", url, "--since", "2026-01-01", "--until", "2026-01-02", *options)
    assert done.returncode == 4
    assert "no window of the time asked for matches, the latest one is of 2027-01-1" in done.stderr
    assert "--since all" in done.stderr


def test_the_head_says_the_time_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that takes two seconds is still about the last 7 days."""
    url = stored(tmp_path, BEFORE, AFTER)
    real = asking.ask

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(2.1)
        return real(*args, **more)

    monkeypatch.setattr(asking, "ask", slow)
    done = CliRunner().invoke(command, ["--db", url, *SIDES[2:]])
    assert "all nodes · last 7 d" in done.output


def test_what_makes_a_comparison_less_than_it_seems(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Two models in one comparison; half of the shapes others; a lower cap and no clock: a sentence each."""
    other = [replace(w, signature=replace(w.signature, shapes=f"[[{i},7]]")) for i, w in enumerate(WORK[:15])]
    url = stored(
        tmp_path,
        replace(BEFORE, state=DeviceState(power_limit_w=700.0)),
        replace(AFTER, model="llama-2", work=[*other, *WORK[15:]], state=DeviceState(power_limit_w=500.0)),
    )
    _, answer = asked(roofwatch, url)
    assert [w["mistake"] for w in answer["warnings"]] == ["models", "work", "power_cap"]
    assert answer["warnings"][1]["share_before"] == pytest.approx(0.5, abs=0.01)
    shown = table(roofwatch, url)
    assert "Windows of 2 models are compared as one (llama, llama-2): name one with --model." in shown
    assert "50 % of the time before is in kernels that are not there after" in shown
    assert "is 700 W before, 500 W after, and no clock was read" in shown
    assert "15 new" in shown


def test_devices_of_different_models_are_not_compared(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """H100 before, H200 after: exit code 4, and the command that does compare them."""
    url = stored(tmp_path, BEFORE, replace(AFTER, device="NVIDIA H200"))
    done = roofwatch("regressions", "--db", url, *SIDES)
    assert done.returncode == 4
    assert "different device models (NVIDIA H100 80GB HBM3; NVIDIA H200)" in done.stderr
    assert "roofwatch compare" in done.stderr
