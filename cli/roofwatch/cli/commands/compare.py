"""``roofwatch compare``: the same work on two vendors, in two versions, on two nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roofwatch.cli import errors, options

if TYPE_CHECKING:
    from roofwatch.model.record import Window

EPILOG = """\b
Examples:
  roofwatch compare --model qwen --left vendor=nvidia --right vendor=ascend
  roofwatch compare --left image=v1 --right image=v2 --node gpu-07
  roofwatch compare --left node=gpu-07 --right node=npu-03 --per token
  roofwatch compare h100.json.gz mi300.json.gz
  roofwatch compare trace.json.gz node1_4711_20250109_ascend_pt --format json
\b
A side: k=v, may be repeated; k is vendor, device, model, node, process, job,
since, until, or any label (label.K=v where K is one of these words). The
other filters hold for both sides.
\b
Times are of one step; where no steps are told, of one batch whose lengths the
job reported, else of one window (--per; a token means 1,000 tokens). Rows are
pieces of work, matched by op, shapes and dtype, then by op and FLOPs; fused
kernels against what does the same; then by op, then by kind. What has no
partner stands on its side. Rows - overlap + idle = the time of a step.
\b
ratio    right / left
exp.     expected: the right's roof time / the left's on the same work
gap      ratio / expected; above 1 the right side's software is behind
roofs %  which part of its roof each side reaches
"""


@dataclass(frozen=True, slots=True)
class Question:
    """What both ways of asking share."""

    per: str | None
    normalise: bool
    limit: int
    form: str


@click.command("compare", epilog=EPILOG)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[LEFT RIGHT]")
@click.option("--left", multiple=True, metavar="K=V", help="What is on the left; may be repeated.")
@click.option("--right", multiple=True, metavar="K=V", help="What is on the right; may be repeated.")
@click.option(
    "--per",
    type=click.Choice(["step", "call", "token", "window"]),
    help="The unit of all times.  [default: the first that both sides tell]",
)
@click.option("--normalise", is_flag=True, help="Scale the right side to the left's FLOPs a step: another batch, say.")
@options.source
@options.filters(since="7d")
@options.recorded_here
@options.limit(20)
@options.output
def command(  # noqa: PLR0913, PLR0917 - one argument an option
    files: tuple[Path, ...],
    left: tuple[str, ...],
    right: tuple[str, ...],
    per: str | None,
    normalise: bool,
    store: str | None,
    db: str | None,
    here: bool,
    threads: int | None,
    limit: int,
    form: str,
    **given: Any,
) -> int:
    """Lay the same work side by side, and say what explains the difference.

    Hardware, kernels, idle time, communication, layout; of two selections of a store's windows, or of two trace files
    or folders.
    """
    question = Question(per, normalise, limit, form)
    if files:
        return _of_files(_pair(files, left, right), question, (here, threads))
    options.one_subject(None)
    return _of_store(question, (left, right), given, store=store, db=db)


def _pair(files: tuple[Path, ...], left: tuple[str, ...], right: tuple[str, ...]) -> tuple[Path, Path]:
    """The two files.

    Raises:
        click.UsageError: there are not two, or something that chooses windows of a store is there, too.
    """
    options.one_subject(files[0])
    if left or right:
        raise click.UsageError(f"--{'left' if left else 'right'} chooses windows of a store, and {files[0]} is a file.")
    if len(files) != 2:
        raise click.UsageError(f"two files are compared, one on each side: {len(files)} given ({files[0].name}, …).")
    return files[0], files[1]


def _of_store(
    question: Question,
    sides: tuple[tuple[str, ...], tuple[str, ...]],
    given: dict[str, Any],
    *,
    store: str | None,
    db: str | None,
) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for protobuf and more
    from roofwatch.cli.asking import ask, filter_of  # noqa: PLC0415
    from roofwatch.cli.render import comparison  # noqa: PLC0415
    from roofwatch.cli.sides import empty_side, one_sided, two_sides  # noqa: PLC0415
    from roofwatch.model.comparison_rows import ROW_KEYS  # noqa: PLC0415

    shared = filter_of(given)
    title = showing.title(shared)  # before time passes: "last 7 d" stays that
    for option, texts in zip(("--left", "--right"), sides, strict=True):
        if not texts:
            raise click.UsageError(one_sided(option, shared, store=store, db=db))
    left, right = two_sides(("--left", "--right"), sides, shared)
    asked = {"per": question.per, "normalise": question.normalise}
    answer = ask("compare", left, question.limit, store=store, db=db, other=right, options=asked)
    empty = {"left": ("--left", left), "right": ("--right", right)}
    return showing.show(
        answer,
        question.form,
        ROW_KEYS,
        lambda it, room: comparison.report(it, comparison.Head(title, " ".join(sides[0]), " ".join(sides[1])), room),
        empty=lambda: answer["problem"] or empty_side(*empty[answer["empty"][0]], store=store, db=db),
        found=answer["summary"] is not None,
    )


def _of_files(files: tuple[Path, Path], question: Question, on: tuple[bool, int | None]) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.files import Origin, read, recorded_on, unjudged  # noqa: PLC0415
    from roofwatch.cli.render import comparison  # noqa: PLC0415
    from roofwatch.model.comparison_rows import ROW_KEYS  # noqa: PLC0415

    cpu = recorded_on(*on)
    found = [read(file, Origin(cpu=cpu)) for file in files]
    asked = {
        "name": "compare",
        "left": str(files[0]),
        "right": str(files[1]),
        "here": on[0],
        "threads": cpu.units,
        "per": question.per,
        "normalise": question.normalise,
        "limit": question.limit,
    }
    result = _answer(asked, files, [one.window for one in found], question)
    head = comparison.Head([], *(file.name or str(file) for file in files))
    code = showing.show(result, question.form, ROW_KEYS, lambda it, room: comparison.report(it, head, room), empty="")
    for file, one in zip(files, found, strict=True):
        if unknown := unjudged(file, one.window, cpu):
            errors.say(unknown)
    problems = [one.problem for one in found if one.problem]
    for problem in problems:
        errors.say(problem)
    return errors.INCOMPLETE if problems else code


def _answer(
    asked: Mapping[str, Any], files: tuple[Path, Path], windows: Sequence[Window], question: Question
) -> dict[str, Any]:
    """The whole object, as a store gives it."""
    from roofwatch.model import answer  # noqa: PLC0415
    from roofwatch.model.comparison import compare  # noqa: PLC0415
    from roofwatch.model.comparison_sides import basis, side_of  # noqa: PLC0415

    left, right = (side_of(window, str(file)) for window, file in zip(windows, files, strict=True))
    per = basis(left.counts, right.counts, question.per)
    told = compare(left, right, per, normalise=question.normalise, limit=question.limit)
    coverages = [answer.CoverageSum(), answer.CoverageSum()]
    for coverage, window in zip(coverages, windows, strict=True):
        coverage.add(window)
    rows = told.pop("rows")
    told |= {"coverage_other": coverages[1].as_json(), "empty": [], "problem": None}
    return answer.answer(asked, coverages[0], rows, **told)
