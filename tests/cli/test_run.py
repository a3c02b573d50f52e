"""``roofwatch run`` becomes the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_output_and_exit_code_are_the_jobs(roofwatch: Roofwatch, code: int) -> None:
    """Both streams and the code, with nothing added; options after the command are the job's."""
    program = f"import sys; print(sys.argv[1:]); print('err', file=sys.stderr); sys.exit({code})"
    done = roofwatch(
        "run", "--model", "m", "--label", "a=b", "--", sys.executable, "-c", program, "--model", "x", "--", "y"
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "['--model', 'x', '--', 'y']\n", "err\n")


def test_without_the_dashes_too(roofwatch: Roofwatch) -> None:
    """``roofwatch run python job.py --lr 1``: the first word that is no option begins the command."""
    assert roofwatch("run", sys.executable, "-c", "import sys; print(sys.argv[1])", "--lr").stdout == "--lr\n"


def test_the_pid_stays(tmp_path: Path) -> None:
    """The job is the process that was started, not a child of it."""
    run = [sys.executable, "-m", "roofwatch.cli.main", "run", "--"]
    with subprocess.Popen(
        [*run, sys.executable, "-c", "import os; print(os.getpid())"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as job:  # fmt: skip
        assert job.stdout
        assert int(job.stdout.read()) == job.pid


def test_signals_are_as_the_shell_left_them(roofwatch: Roofwatch) -> None:
    """Python ignores SIGPIPE for itself; a job that did not ask for that dies of it as always."""
    done = roofwatch("run", "--", "sh", "-c", "kill -PIPE $$; echo alive")
    assert (done.returncode, done.stdout) == (-signal.SIGPIPE, "")


def test_a_command_that_is_not_there_exits_127(roofwatch: Roofwatch) -> None:
    """As in a shell, with a sentence that names it."""
    done = roofwatch("run", "--", "no-such-command-here")
    assert done.returncode == 127
    assert done.stderr == "roofwatch: cannot run no-such-command-here: there is no such command.\n"


def test_a_command_that_cannot_be_run_exits_126(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """A file without permission, a folder."""
    plain = tmp_path / "plain"
    plain.write_text("echo no")
    for path in (plain, tmp_path):
        done = roofwatch("run", "--", str(path))
        assert done.returncode == 126
        assert done.stderr == f"roofwatch: cannot run {path}: Permission denied.\n"


def test_the_environment_is_passed_on(roofwatch: Roofwatch) -> None:
    """What the user set reaches the job, and the socket is the one that was named."""
    program = "import os; print(os.environ['MINE'], os.environ['ROOFWATCH_SOCKET'])"
    done = roofwatch(
        "run", "--socket", "/x/y.sock", "--", sys.executable, "-c", program, env={**os.environ, "MINE": "1"}
    )
    assert done.stdout == "1 /x/y.sock\n"
