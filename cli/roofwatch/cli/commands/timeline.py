"""``roofwatch timeline``: where the devices waited, and for what."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch timeline --node gpu-07
  roofwatch timeline --process 4711 --by window --since 10m
  roofwatch timeline trace.json.gz
\b
The bar is the whole span: busy time in blocks, idle time in the letters of
its causes. Exposed: a copy or a collective with no compute beside it.
\b
launch bound  the host was too slow to launch the next kernel
launch gap    up to 50 µs from the launch to the kernel's start
sync          the device had run dry, since the host had waited for it
host          the launching thread did nothing that was recorded: Python
unknown       nothing tells
"""


@click.command("timeline", epilog=EPILOG)
@options.trace_file
@click.option(
    "--by",
    type=click.Choice(["device", "window", "process", "node"]),
    default="device",
    show_default=True,
    help="What a row is; windows come latest first, others by idle time.",
)
@options.source
@options.filters(since="1h")
@options.recorded_here
@options.graph_captures
@options.limit(20)
@options.output
def command(
    file: Path | None,
    by: str,
    store: str | None,
    db: str | None,
    here: bool,
    threads: int | None,
    limit: int,
    form: str,
    **given: Any,
) -> int:
    """Show where the devices waited, and for what.

    Busy time (compute, and copies and communication with no compute beside them) and idle time by cause, which add up
    to the span, of the windows of a store or of one trace FILE.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for numpy, protobuf and more
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import timeline  # noqa: PLC0415
    from roofwatch.model.timeline import ROW_KEYS  # noqa: PLC0415

    options.one_subject(file)
    captures: tuple[Path, ...] = given.pop("captures")
    if file is not None:
        return _of_file(file, by, (here, threads), captures, limit, form)
    asked = filter_of(given)
    head = showing.title(asked)
    answer = ask("timeline" if by == "device" else f"timeline_{by}", asked, limit, store=store, db=db)
    answer["query"] |= {"name": "timeline", "by": by}
    return showing.show(
        answer,
        form,
        ROW_KEYS,
        lambda it, room: timeline.report(it, head, room, time.time_ns()),
        empty=lambda: nothing(asked, store=store, db=db),
    )


def _of_file(
    file: Path, by: str, on: tuple[bool, int | None], captures: tuple[Path, ...], limit: int, form: str
) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.files import Origin, captured, in_vain, read, recorded_on  # noqa: PLC0415
    from roofwatch.cli.render import timeline  # noqa: PLC0415
    from roofwatch.model import answer  # noqa: PLC0415
    from roofwatch.model.timeline import ROW_KEYS, rows_of, sum_of  # noqa: PLC0415

    cpu = recorded_on(*on)
    found = read(file, Origin(cpu=cpu, graphs=captured(captures)))
    coverage = answer.CoverageSum()
    coverage.add(found.window)
    rows = rows_of([found.window], by)
    result = answer.answer(
        {
            "name": "timeline",
            "file": str(file),
            "by": by,
            "here": on[0],
            "threads": cpu.units,
            "graph_captures": [str(path) for path in captures],
            "limit": limit,
        },
        coverage,
        rows[:limit] if limit else rows,
        summary=sum_of(found.window).as_json(),
    )
    title = showing.file_title(file, found.window)
    code = showing.show(
        result,
        form,
        ROW_KEYS,
        lambda it, room: timeline.report(it, title, room, time.time_ns()),
        empty=f"{file} holds no time.",
    )
    for hint in in_vain(file, found.window, captures):
        errors.say(hint)
    if found.problem:
        errors.say(found.problem)
        return errors.INCOMPLETE
    return code
