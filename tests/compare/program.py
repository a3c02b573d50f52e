"""The program's own entry, called in this process: a new one for each question would take most of the time."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from roofwatch.cli.main import main


@dataclass(frozen=True)
class Done:
    """How the program ended."""

    returncode: int
    stdout: str
    stderr: str


class Text(io.StringIO):
    """A stream that is no terminal."""

    def reconfigure(self, **_: object) -> None:
        """What the program asks of its streams."""


def call(*arguments: str) -> Done:
    """Run ``roofwatch ARGUMENTS``; a bug that ends in a traceback is raised here."""
    out, err, code = Text(), Text(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Done(code, out.getvalue(), err.getvalue())
