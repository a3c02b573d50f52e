"""``roofwatch diagnose``: what to work on first, why, and what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch diagnose --node gpu-07
  roofwatch diagnose --model llama-7b --since 1d --limit 10
  roofwatch diagnose trace.json.gz --format json
\b
First it weighs what is in the kernels' way (idle time by cause, copies and
communication with no compute beside them) against the kernels themselves.
Where the first is more, do not tune kernels yet; where it is more than the
kernels could win at their roof, its largest part is first. Start-up (loading
code, making contexts) is told apart and left out of all of this.
\b
winnable  time that reaching the roof would win back; "of all": of the whole
          time, "so far": of all that is winnable
"""


@click.command("diagnose", epilog=EPILOG)
@options.trace_file
@options.source
@options.filters(since="1h")
@options.recorded_here
@options.graph_captures
@options.limit(5)
@options.output
def command(
    file: Path | None,
    store: str | None,
    db: str | None,
    here: bool,
    threads: int | None,
    captures: tuple[Path, ...],
    limit: int,
    form: str,
    **given: Any,
) -> int:
    """Say what to work on first, why, and what helps.

    Where the time went with the usual fixes, the kernels worth touching by what can be won, what helps each, and the
    command that looks deeper, of the windows of a store or of one trace FILE.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for numpy, protobuf and more
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import diagnosis  # noqa: PLC0415
    from roofwatch.model.advice_commands import with_source  # noqa: PLC0415
    from roofwatch.model.diagnosis_report import KERNEL_KEYS  # noqa: PLC0415

    options.one_subject(file)
    if file is not None:
        return _of_file(file, (here, threads), captures, limit, form)
    asked = filter_of(given)
    head = showing.title(asked)
    answer = ask("diagnose", asked, limit, store=store, db=db)
    answer["commands"] = [with_source(one, showing.typed_source()[0]) for one in answer["commands"]]
    return showing.show(
        answer,
        form,
        KERNEL_KEYS,
        lambda it, room: diagnosis.report(it, head, room),
        empty=lambda: nothing(asked, store=store, db=db),
        found=answer["verdict"]["first_cause"] is not None,
    )


def _of_file(file: Path, on: tuple[bool, int | None], captures: tuple[Path, ...], limit: int, form: str) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.files import Origin, captured, in_vain, read, recorded_on, unjudged  # noqa: PLC0415
    from roofwatch.cli.render import diagnosis  # noqa: PLC0415
    from roofwatch.model import answer  # noqa: PLC0415
    from roofwatch.model.diagnosis_report import KERNEL_KEYS, of_window  # noqa: PLC0415

    cpu = recorded_on(*on)
    found = read(file, Origin(cpu=cpu, graphs=captured(captures)))
    coverage = answer.CoverageSum()
    coverage.add(found.window)
    told = of_window(found.window, found.conditions, limit, str(file))
    rows = told.pop("rows")
    asked = {
        "name": "diagnose",
        "file": str(file),
        "here": on[0],
        "threads": cpu.units,
        "graph_captures": [str(path) for path in captures],
        "limit": limit,
    }
    title = showing.file_title(file, found.window)
    code = showing.show(
        answer.answer(asked, coverage, rows, **told),
        form,
        KERNEL_KEYS,
        lambda it, room: diagnosis.report(it, title, room),
        empty=f"{file} holds no time.",
        found=told["verdict"]["first_cause"] is not None,
    )
    if unknown := unjudged(file, found.window, cpu):
        errors.say(unknown)
    for hint in in_vain(file, found.window, captures):
        errors.say(hint)
    if found.problem:
        errors.say(found.problem)
        return errors.INCOMPLETE
    return code
