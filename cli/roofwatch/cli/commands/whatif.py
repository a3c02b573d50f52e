"""``roofwatch whatif``: the roofline once more, with fewer bits, other ceilings or another device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch whatif --model llama-7b --weights int4
  roofwatch whatif --model llama-7b --weights int8 --kv int8 --since 1d
  roofwatch whatif --peak-compute 2x --bandwidth 1.4x
  roofwatch whatif trace.json.gz --device "H200"
\b
Each kernel keeps the share of its roof that it reaches now, so its time
changes as its roof does: a product that reads its weights at the memory's
speed takes a quarter with weights of a quarter of the bits, and as long as
before with twice the peak.
"""


@click.command("whatif", epilog=EPILOG)
@options.trace_file
@click.option("--weights", type=click.Choice(["fp8", "int8", "fp4", "int4"]), help="Weights of fewer bits.")
@click.option("--kv", type=click.Choice(["fp8", "int8", "fp4", "int4"]), help="Keys and values of fewer bits.")
@click.option("--peak-compute", metavar="FACTOR", help="So many times the FLOP/s, as 2x.")
@click.option("--bandwidth", metavar="FACTOR", help="So many times the bytes/s, as 1.4x.")
@click.option("--device", "to_device", metavar="NAME", help="The ceilings of this device, as 'devices list' has them.")
@options.source
@options.filters(since="1h", device="--on-device")
@options.recorded_here
@options.graph_captures
@options.limit(10)
@options.output
def command(  # noqa: PLR0913, PLR0917 - a parameter for each option
    file: Path | None,
    weights: str | None,
    kv: str | None,
    peak_compute: str | None,
    bandwidth: str | None,
    to_device: str | None,
    store: str | None,
    db: str | None,
    here: bool,
    threads: int | None,
    captures: tuple[Path, ...],
    limit: int,
    form: str,
    **given: Any,
) -> int:
    """Foretell the step with fewer bits, other ceilings, or on another device.

    Of the windows of a store or of one trace FILE. What has no known roof, communication, copies and idle time stay as
    they are, and how much that is stands beside the answer.
    """
    from roofwatch.model.whatif_change import change_of, factor  # noqa: PLC0415  # --help must not pay for it

    factors = {"peak_compute": peak_compute, "bandwidth": bandwidth}
    asked: dict[str, Any] = {name: text and factor(text) for name, text in factors.items()}
    asked |= {"weights": weights, "kv": kv, "to_device": to_device}
    asked = {name: value for name, value in asked.items() if value is not None}
    change_of(asked)  # a mistake is told before a store is asked
    options.one_subject(file)
    if file is None:
        return _of_store(given, (store, db), asked, limit, form)
    return _of_file(file, (here, threads), captures, asked, limit, form)


def _of_store(
    given: dict[str, Any], where: tuple[str | None, str | None], asked: dict[str, Any], limit: int, form: str
) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import whatif as drawn  # noqa: PLC0415
    from roofwatch.model.whatif_report import ROW_KEYS  # noqa: PLC0415

    scope = filter_of(given)
    head = showing.title(scope)
    answer = ask("whatif", scope, limit, store=where[0], db=where[1], options=asked)
    return showing.show(
        answer,
        form,
        ROW_KEYS,
        lambda it, room: drawn.report(it, head, room),
        empty=lambda: nothing(scope, store=where[0], db=where[1]),
    )


def _of_file(
    file: Path, on: tuple[bool, int | None], captures: tuple[Path, ...], asked: dict[str, Any], limit: int, form: str
) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.files import Origin, captured, hints, recorded_on, unjudged, window_of  # noqa: PLC0415
    from roofwatch.cli.render import whatif as drawn  # noqa: PLC0415
    from roofwatch.model import answer, answer_rows  # noqa: PLC0415
    from roofwatch.model.whatif import replay  # noqa: PLC0415
    from roofwatch.model.whatif_change import change_of  # noqa: PLC0415
    from roofwatch.model.whatif_report import ROW_KEYS, report, time_of  # noqa: PLC0415

    cpu = recorded_on(*on)
    window, problem = window_of(file, Origin(cpu=cpu, graphs=captured(captures)))
    coverage = answer.CoverageSum()
    coverage.add(window)
    parts = report(replay(answer_rows.sums_of(window), change_of(asked)), time_of(window), limit)
    rows = parts.pop("rows")
    query = {"name": "whatif", "file": str(file), "here": on[0], "threads": cpu.units, "limit": limit, **asked}
    title = showing.file_title(file, window)
    code = showing.show(
        answer.answer({**query, "graph_captures": [str(path) for path in captures]}, coverage, rows, **parts),
        form,
        ROW_KEYS,
        lambda it, room: drawn.report(it, title, room),
        empty=f"{file} holds no kernel and no op: was the profiler stopped before it recorded anything?",
    )
    if unknown := unjudged(file, window, cpu):
        errors.say(unknown)
    for hint in hints(file, window, captures):
        errors.say(hint)
    if problem:
        errors.say(problem)
        return errors.INCOMPLETE
    return code
