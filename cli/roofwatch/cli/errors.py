"""What a failure looks like: one sentence on stderr and an exit code, in one place."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys

import click

from roofwatch.model.errors import RoofwatchError

DONE, FAILED, USAGE, UNREACHABLE, INCOMPLETE = 0, 1, 2, 3, 4
CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + signal.SIGPIPE  # what a shell reports for a program that its reader left


def say(sentence: str) -> None:
    """A sentence for the user, on stderr."""
    click.echo(_wrapped(f"roofwatch: {_clean(sentence)}"), err=True)


def note(line: str) -> None:
    """A line about how something goes, on stderr."""
    click.echo(_wrapped(_clean(line)), err=True)


def _clean(sentence: str) -> str:
    from roofwatch.cli.render.text import clean  # noqa: PLC0415  # most runs say nothing

    return "\n".join(map(clean, sentence.split("\n")))


def _wrapped(sentence: str) -> str:
    """Broken between words for who watches a terminal; one line for a log or a program."""
    import textwrap  # noqa: PLC0415  # most runs say nothing

    if not sys.stderr.isatty():
        return sentence
    columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # a terminal may not know its size
    if len(sentence) <= columns:
        return sentence  # a table's line keeps its spaces
    lines = textwrap.wrap(sentence, columns, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")
    return "\n".join(lines)


def exit_code(error: BaseException) -> int | None:
    """Tell the user about a failure that is not a bug; its exit code, None for a bug."""
    code: int | None = None
    match error:
        case BrokenPipeError():
            code = pipe_closed()
        case click.exceptions.Exit():
            code = error.exit_code
        case click.ClickException():
            shown = io.StringIO()
            error.show(shown)
            for line in shown.getvalue().splitlines():
                note(line)  # cleaned: it may name what a store holds
            code = error.exit_code
        case RoofwatchError():
            say(str(error))
            code = error.exit_code
        case click.Abort() | KeyboardInterrupt():
            # Terminated (supervise.py) carries which signal it was; click wraps it.
            code = 128 + getattr(error.__cause__ or error, "number", signal.SIGINT)
        case OSError() if error.filename is None and error.errno in CANNOT_WRITE:
            say(f"cannot write the output: {error.strerror}.")
            _discard_stdout()
            code = FAILED
    return code


def pipe_closed() -> int:
    """The reader of our output went away (``roofwatch top | head``): no reason for a word."""
    _discard_stdout()
    return PIPE_CLOSED


def _discard_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
