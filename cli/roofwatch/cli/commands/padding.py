"""``roofwatch padding``: how much of the device's time goes into padding, and what would save it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch padding --model llama-7b --since 1d
  roofwatch padding --lengths 120,2048,96,310,64,180,220,90
  roofwatch padding --lengths lengths.txt --batch-size 32
  roofwatch padding trace.json.gz --lengths 120,2048,96,310 --padded-to 2048
\b
A job tells its lengths inside windows: with batch(lengths=[…]) of
roofwatch.hook before each step, or by the attention mask of the module in
attach(model_module=model).
\b
linear     kernels whose work grows with the tokens of a batch
quadratic  attention, whose work grows with their squares
split      saved where each batch falls into its buckets: smaller batches,
           whose kernels read all the weights again
sorted     saved where sequences wait for a full batch of their bucket
"""
NONE_TOLD = (
    "no window tells the lengths of its batches: call roofwatch.hook.batch(lengths=[…]) for each batch, or give "
    "attach() the module whose attention mask tells them, attach(model_module=model)."
)


@click.command("padding", epilog=EPILOG)
@options.trace_file
@click.option("--lengths", metavar="N,N,…|PATH", help="Lengths of sequences, or a file: a number, or a batch, a line.")
@click.option("--batch-size", type=click.IntRange(1), metavar="N", help="With lengths: sequences in a batch.")
@click.option("--padded-to", type=click.IntRange(1), metavar="N", help="With lengths: what batches are padded to.")
@options.source
@options.filters(since="1h")
@options.recorded_here
@options.graph_captures
@options.output
def command(  # noqa: PLR0913, PLR0917 - as many as options
    file: Path | None,
    lengths: str | None,
    batch_size: int | None,
    padded_to: int | None,
    store: str | None,
    db: str | None,
    here: bool,
    threads: int | None,
    captures: tuple[Path, ...],
    form: str,
    **given: Any,
) -> int:
    """Show what padding takes, and what buckets or no padding would save.

    Of the windows of a store whose jobs told the lengths of their batches; of one trace FILE with --lengths; or of
    lengths alone, which tell no device time.
    """
    from roofwatch.cli.lengths import batches_of, cut, is_lengths, padding_of  # noqa: PLC0415  # --help must not pay for it

    if file is not None and lengths is None and is_lengths(file):
        file, lengths = None, str(file)
    if lengths is None:
        _only_with_lengths(batch_size, padded_to)
        options.one_subject(file)
        if file is not None:
            raise click.UsageError(f"{file} does not tell the lengths of its batches: add --lengths.")
        return _of_store(given, store, db, form)
    _no_store(file)
    batches = batches_of(lengths, batch_size)
    padding = padding_of(batches, padded_to)
    if longer := cut(batches, padded_to):
        errors.say(longer)
    asked = {"name": "padding", "lengths": lengths, "batch_size": batch_size, "padded_to": padded_to}
    if file is None:
        return _of_lengths(asked, padding, form)
    return _of_file(file, (here, threads), captures, (asked, padding), form)


def _only_with_lengths(batch_size: int | None, padded_to: int | None) -> None:
    for name, value in (("--batch-size", batch_size), ("--padded-to", padded_to)):
        if value is not None:
            raise click.UsageError(f"{name} says how --lengths are batched: add them.")


def _no_store(file: Path | None) -> None:
    """Refuse what chooses among the windows of a store beside lengths, and what reads a file without one."""
    if file is not None:
        options.one_subject(file)
        return
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        own = parameter.name in {"lengths", "batch_size", "padded_to", "form", "file"}
        if not own and ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} has nothing to choose from: --lengths alone are the input.")


def _of_store(given: dict[str, Any], store: str | None, db: str | None, form: str) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import padding as drawn  # noqa: PLC0415
    from roofwatch.model.padding_schemes import ROW_KEYS  # noqa: PLC0415

    asked = filter_of(given)
    head = showing.title(asked)
    answer = ask("padding", asked, 0, store=store, db=db)
    return showing.show(
        answer,
        form,
        ROW_KEYS,
        lambda it, room: drawn.report(it, head, room),
        empty=lambda: NONE_TOLD if answer["coverage"]["windows"] else nothing(asked, store=store, db=db),
        found=answer["utilisation"]["linear"] is not None,
    )


def _of_lengths(asked: dict[str, Any], padding: Any, form: str) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.render import padding as drawn  # noqa: PLC0415
    from roofwatch.model import answer  # noqa: PLC0415
    from roofwatch.model.padding import PaddingSum  # noqa: PLC0415
    from roofwatch.model.padding_report import report  # noqa: PLC0415
    from roofwatch.model.padding_schemes import ROW_KEYS, Seen  # noqa: PLC0415

    told = PaddingSum()
    told.add(padding)
    parts = report(Seen(told))
    rows = parts.pop("rows")
    return showing.show(
        answer.answer(asked, answer.CoverageSum(), rows, **parts),
        form,
        ROW_KEYS,
        lambda it, room: drawn.report(it, ["lengths alone"], room),
        empty="All these lengths are 0: there is nothing to batch.",
        found=parts["utilisation"]["linear"] is not None,
    )


def _of_file(
    file: Path,
    on: tuple[bool, int | None],
    captures: tuple[Path, ...],
    told: tuple[dict[str, Any], Any],
    form: str,
) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.files import Origin, captured, recorded_on, unjudged, window_of  # noqa: PLC0415
    from roofwatch.cli.render import padding as drawn  # noqa: PLC0415
    from roofwatch.model import answer, answer_rows  # noqa: PLC0415
    from roofwatch.model.padding import PaddingSum  # noqa: PLC0415
    from roofwatch.model.padding_report import report  # noqa: PLC0415
    from roofwatch.model.padding_schemes import ROW_KEYS, Seen  # noqa: PLC0415
    from roofwatch.model.padding_split import Batches  # noqa: PLC0415
    from roofwatch.model.padding_time import device_time  # noqa: PLC0415

    asked, padding = told
    cpu = recorded_on(*on)
    window, problem = window_of(file, Origin(cpu=cpu, graphs=captured(captures)))
    coverage, lengths = answer.CoverageSum(), PaddingSum()
    coverage.add(window)
    lengths.add(padding)
    parts = report(Seen(lengths, device_time(answer_rows.sums_of(window), Batches(lengths.shapes))))
    rows = parts.pop("rows")
    query = {**asked, "file": str(file), "here": on[0], "threads": cpu.units}
    title = showing.file_title(file, window)
    code = showing.show(
        answer.answer({**query, "graph_captures": [str(path) for path in captures]}, coverage, rows, **parts),
        form,
        ROW_KEYS,
        lambda it, room: drawn.report(it, title, room),
        empty="All these lengths are 0: there is nothing to batch.",
        found=parts["utilisation"]["linear"] is not None,
    )
    if unknown := unjudged(file, window, cpu):
        errors.say(unknown)
    if problem:
        errors.say(problem)
        return errors.INCOMPLETE
    return code
