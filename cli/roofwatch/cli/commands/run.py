"""``roofwatch run``: become the job, with the hook on its path."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch run -- python train.py --epochs 3
  roofwatch run --model llama-7b --label git=$(git rev-parse HEAD) -- \\
      torchrun --nproc-per-node 8 train.py
\b
The job keeps its pid, its output and its exit code. As in a shell, 127 means
that the command was not found, 126 that it could not be started.
"""
CANNOT_START, NOT_FOUND = 126, 127
IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")


@click.command("run", epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option("--model", metavar="NAME", help="What the job trains or serves.")
@options.label
@click.option("--socket", metavar="PATH", help="The agent's socket.  [env var: ROOFWATCH_SOCKET]")
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def command(model: str | None, labels: tuple[tuple[str, str], ...], socket: str | None, cmd: tuple[str, ...]) -> None:
    """Run a job so that the agent can take windows of it.

    No change to the job's code: the hook attaches when torch is imported, also in the job's child processes. Without an
    agent the job runs as if roofwatch were not there.
    """
    from roofwatch.hook.launch import environment  # noqa: PLC0415  # --help must not pay for it

    become(cmd, environment(dict(os.environ), model=model, labels=dict(labels), socket=socket))


def become(cmd: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by the job; exit like a shell where that fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    for name in IGNORED_BY_PYTHON:  # Python ignores them at its start, and ignored signals survive exec
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(cmd[0], list(cmd), env)  # noqa: S606  # running the user's command is what this is for
    except FileNotFoundError:
        errors.say(f"cannot run {cmd[0]}: there is no such command.")
        sys.exit(NOT_FOUND)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        errors.say(f"cannot run {cmd[0]}: {reason}.")
        sys.exit(CANNOT_START)
