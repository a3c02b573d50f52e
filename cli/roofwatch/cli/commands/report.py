"""``roofwatch report``: all of it as one page to read and pass on."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch report --node gpu-07 -o report.html
  roofwatch report --model llama-7b --since 7d -o week.html
  roofwatch report --model llama-7b --before image=v1 --after image=v2 \\
      -o upgrade.html
  roofwatch report trace.json.gz -o report.html
\b
One file that needs no network: where the time went, idle causes over the day,
all kernels under the roof, the top kernels with the time that could be won,
padding where jobs told lengths, what all that rests on, and what the
profiling cost. For a browser, in light and dark, for a phone and for paper.
\b
--left and --right add the answer of 'roofwatch compare', --before and --after
that of 'roofwatch regressions'; sides are said as there: k=v, where k is
vendor, device, model, node, process, job, since, until, or any label.
"""
SIDES = ("left", "right", "before", "after")
_SIDE = "With --{other}: what is on this side of {what}; may be repeated."


@click.command("report", epilog=EPILOG)
@options.trace_file
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    metavar="PAGE",
    help="The file to write, replaced where it exists; - for stdout.",
)
@click.option("--left", multiple=True, metavar="K=V", help=_SIDE.format(other="right", what="a comparison"))
@click.option("--right", multiple=True, metavar="K=V", help=_SIDE.format(other="left", what="a comparison"))
@click.option("--before", multiple=True, metavar="K=V", help=_SIDE.format(other="after", what="a change"))
@click.option("--after", multiple=True, metavar="K=V", help=_SIDE.format(other="before", what="a change"))
@options.source
@options.filters(since="1d")
@options.recorded_here
@options.graph_captures
@options.limit(50)
def command(
    file: Path | None,
    output: Path,
    store: str | None,
    db: str | None,
    here: bool,
    threads: int | None,
    captures: tuple[Path, ...],
    limit: int,
    **given: Any,
) -> int:
    """Write all of it as one page to read and pass on.

    Of the windows of a store, or of one trace FILE. --limit is the number of
    kernels in the table (at most 500); the plot has all.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for numpy, protobuf and more
    from roofwatch.cli.asking import filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.report import gather  # noqa: PLC0415
    from roofwatch.model.errors import IncompleteError  # noqa: PLC0415

    options.one_subject(file)
    words: dict[str, tuple[str, ...]] = {name: given.pop(name) for name in SIDES}
    if file is not None:
        if said := [name for name in SIDES if words[name]]:
            raise click.UsageError(f"--{said[0]} chooses windows of a store, and {file} is a file.")
        return _of_file(file, output, (here, threads), captures, limit)
    shared, where = filter_of(given), gather.Where(store, db)
    title, then = showing.title(shared), showing.diagnose(shared)  # before time passes: "last 1 h" stays that
    sides = gather.sides(words, shared, where)
    answer = where.ask("report", shared, limit)
    if not answer["coverage"]["windows"]:
        raise IncompleteError(nothing(shared, store=store, db=db))
    told = gather.asked(answer, title, shared, (words, sides), where)
    _write(output, answer, title, then=then, told=told, notes=gather.notes(answer))
    return errors.DONE


def _of_file(file: Path, output: Path, on: tuple[bool, int | None], captures: tuple[Path, ...], limit: int) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.files import Origin, captured, hints, read, recorded_on, unjudged  # noqa: PLC0415
    from roofwatch.model import answer, report  # noqa: PLC0415

    cpu = recorded_on(*on)
    found = read(file, Origin(cpu=cpu, graphs=captured(captures)))
    coverage = answer.CoverageSum()
    coverage.add(found.window)
    told = report.of_window(found.window, limit)
    rows = told.pop("rows")
    if not found.window.devices:
        errors.say(f"{file} holds no time: there is nothing to report.")
        return errors.INCOMPLETE
    asked = {"name": "report", "file": str(file), "here": on[0], "threads": cpu.units, "limit": limit}
    notes = [note for note in (unjudged(file, found.window, cpu), *hints(file, found.window, captures)) if note]
    notes += [found.problem] if found.problem else []
    title = showing.file_title(file, found.window)
    _write(output, answer.answer(asked, coverage, rows, cost=None, **told), title, notes=notes)
    for note in notes:
        errors.say(note)
    return errors.INCOMPLETE if found.problem else errors.DONE


def _write(
    output: Path,
    answer: Mapping[str, Any],
    title: list[str],
    *,
    then: str = "",
    notes: Sequence[str] = (),
    told: Any = None,  # report.asked.Asked
) -> None:
    from importlib.metadata import version  # noqa: PLC0415

    from roofwatch.cli.render import text  # noqa: PLC0415
    from roofwatch.cli.report import asked, library, page, zone  # noqa: PLC0415

    now_ns = time.time_ns()
    about = page.About(title, now_ns, version("roofwatch"), zone.here(now_ns), then, notes)
    more = (told or asked.Asked()).sections()
    written = page.page(answer, about, more, library.script()).encode()
    if str(output) == "-":
        click.echo(written, nl=False)
        return
    _replace(output, written)
    errors.say(f"{output} written, {text.size(len(written))}: open it in a browser.")


def _replace(output: Path, written: bytes) -> None:
    """Write it beside and then in place of what may be there, so that no reader meets half a page.

    Raises:
        RoofwatchError: it cannot be written there.
    """
    from roofwatch.model.errors import RoofwatchError  # noqa: PLC0415

    try:
        if output.exists() and not output.is_file():  # /dev/stdout, a pipe
            output.write_bytes(written)
            return
        descriptor, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(written)
            Path(name).chmod(0o644)
            Path(name).replace(output)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RoofwatchError(f"{output} cannot be written: {error.strerror or error}.") from error
