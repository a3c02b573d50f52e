"""``roofwatch run`` becomes the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.cli import entry

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_output_and_exit_code_are_the_jobs(started: Roofwatch, code: int) -> None:
    """Both streams and the code, with nothing added; options after the command are the job's."""
    program = f"import sys; print(sys.argv[1:]); print('err', file=sys.stderr); sys.exit({code})"
    done = started(
        "run", "--model", "m", "--label", "a=b", "--", sys.executable, "-c", program, "--model", "x", "--", "y"
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "['--model', 'x', '--', 'y']\n", "err\n")


def test_without_the_dashes_too(started: Roofwatch) -> None:
    """``roofwatch run python job.py --lr 1``: the first word that is no option begins the command."""
    assert started("run", sys.executable, "-c", "import sys; print(sys.argv[1])", "--lr").stdout == "--lr\n"


def test_the_pid_stays(tmp_path: Path) -> None:
    """The job is the process that was started, not a child of it."""
    run = [sys.executable, "-m", "roofwatch.cli.main", "run", "--"]
    with subprocess.Popen(
        [*run, sys.executable, "-c", "import os; print(os.getpid())"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as job:  # fmt: skip
        assert job.stdout
        assert int(job.stdout.read()) == job.pid


def test_signals_are_as_the_shell_left_them(started: Roofwatch) -> None:
    """Python ignores SIGPIPE for itself; a job that did not ask for that dies of it as always."""
    done = started("run", "--", "sh", "-c", "kill -PIPE $$; echo alive")
    assert (done.returncode, done.stdout) == (-signal.SIGPIPE, "")


def test_a_command_that_is_not_there_exits_127(started: Roofwatch) -> None:
    """As in a shell, with a sentence that names it."""
    done = started("run", "--", "no-such-command-here")
    assert done.returncode == 127
    assert done.stderr == "roofwatch: cannot run no-such-command-here: there is no such command.\n"


def test_a_command_that_cannot_be_run_exits_126(started: Roofwatch, tmp_path: Path) -> None:
    """A file without permission, a folder."""
    plain = tmp_path / "plain"
    plain.write_text("echo no")
    for path in (plain, tmp_path):
        done = started("run", "--", str(path))
        assert done.returncode == 126
        assert done.stderr == f"roofwatch: cannot run {path}: Permission denied.\n"


SCRIPTS = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
ALL_MODULES = ("click", "json", "signal", "importlib")  # that run imports, or click for it


@pytest.mark.parametrize("path", ["{theirs}", "{theirs}:", "/nonexist:{theirs}/../theirs"])
def test_modules_on_the_jobs_path_are_the_jobs_alone(tmp_path: Path, path: str) -> None:
    """Broken modules of run's own names: the job runs as without roofwatch, and it is the job that finds them."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ALL_MODULES:
        (theirs / f"{name}.py").write_text("raise ValueError('theirs: ' + __name__)\n")
    env = {**os.environ, "PYTHONPATH": path.format(theirs=theirs)}
    module, function = SCRIPTS["roofwatch"].split(":")
    program = [sys.executable, "-c", f"from {module} import {function}; {function}()", "run", "--"]
    for job in (["/bin/echo", "hi"], [sys.executable, "-c", "print('hi', flush=True); import click"]):
        without, under = (
            subprocess.run([*before, *job], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
            for before in ([], program)
        )
        assert without.stdout == "hi\n"
        assert ("theirs: click" in without.stderr) == (job[0] == sys.executable)
        assert (under.returncode, under.stdout, under.stderr) == (without.returncode, without.stdout, without.stderr)


def test_the_path_of_run_puts_the_jobs_entries_last() -> None:
    """Where roofwatch itself was put on PYTHONPATH it is still found, before all that is not its own."""
    home = str(Path(entry.__file__).parents[2])
    assert entry.own_first(["/bin", "/a", "/lib", "/site"], "/a:/nowhere") == ["/bin", "/lib", "/site", "/a"]
    assert entry.own_first(["/bin", home, "/a", "/lib"], f"/a:{home}") == ["/bin", home, "/lib", "/a"]
    assert entry.own_first(["/bin", "/lib"], "") == ["/bin", "/lib"]


def test_the_environment_is_passed_on(started: Roofwatch) -> None:
    """What the user set reaches the job, and the socket is the one that was named."""
    program = "import os; print(os.environ['MINE'], os.environ['ROOFWATCH_SOCKET'])"
    done = started("run", "--socket", "/x/y.sock", "--", sys.executable, "-c", program, env={**os.environ, "MINE": "1"})
    assert done.stdout == "1 /x/y.sock\n"
