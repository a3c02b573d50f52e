"""``roofwatch regressions``: what became slower from one version to the next."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch regressions --model llama-7b --before image=v1 --after image=v2
  roofwatch regressions --model llama-7b --before until=1d --after since=1d
  roofwatch regressions --before job=slurm:41 --after job=slurm:42 --find 10%
  roofwatch regressions --before image=v1 --after image=v2 --watch
\b
A side: k=v, may be repeated; k is vendor, device, model, node, process, job,
since, until, or any label. The other filters hold for both sides.
\b
One value a window and kernel is compared, within each device model. Of 100
runs on sides that do not differ at most one finds anything (corrected for all
kernels). Slower kernels that a lower clock of the device explains, faster
ones and kernels that vanished are listed, but are no findings.
\b
Exit code: 1 with a finding, 0 without, 4 where there are too few windows.
"""
SECOND_NS = 1_000_000_000
LEAST_INTERVAL_NS = 100_000_000


class Percent(click.ParamType[float]):
    """A share in per cent on the command line: 3% or 3."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a fraction."""
        if isinstance(value, float):
            return value
        try:
            share = float(str(value).strip().removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share <= 10:
            self.fail(f"{value!r} is no share from 0% to 1000%.", param, ctx)
        return share


class Length(click.ParamType[int]):
    """A length of time on the command line, as nanoseconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The text as nanoseconds, at most a week."""
        if isinstance(value, int):
            return value
        try:
            length = -options.moment(value, 0)
        except (ValueError, OverflowError):
            length = -1
        if not 0 <= length <= 7 * 86_400 * SECOND_NS:
            self.fail(f"{value!r} is no length of time like 30s, 1m or 2h, up to a week.", param, ctx)
        return length


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, again and again with --watch."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    shared: Any  # Filter
    asked: Mapping[str, Any]
    store: str | None
    db: str | None
    title: tuple[str, ...]  # what the shared filter says, before time passes: "last 7 d" stays that

    def answer(self, limit: int) -> dict[str, Any]:
        """The answer of now; where a side has no windows it has no rows."""
        from roofwatch.cli.asking import ask  # noqa: PLC0415
        from roofwatch.cli.sides import two_sides  # noqa: PLC0415

        first, second = two_sides(("--before", "--after"), (self.before, self.after), self.shared)
        return ask("regressions", first, limit, store=self.store, db=self.db, other=second, options=self.asked)

    def empty(self, answer: Mapping[str, Any]) -> str:
        """Why there is nothing to compare, in a sentence."""
        from roofwatch.cli.sides import empty_side, side  # noqa: PLC0415

        for option, texts, name in (("--before", self.before, "before"), ("--after", self.after, "after")):
            if not answer["sides"][name]["windows"]:
                return empty_side(option, side(texts, self.shared), store=self.store, db=self.db)
        before, after = (", ".join(answer["sides"][name]["devices"]) for name in ("before", "after"))
        if set(answer["sides"]["before"]["devices"]) & set(answer["sides"]["after"]["devices"]):
            return "the windows of one side hold no kernels: wait for more, or widen the time with --since."
        return (
            f"the sides ran on different device models ({before}; {after}), and regressions compares within one: "
            "'roofwatch compare' sets one against the other."
        )


@click.command("regressions", epilog=EPILOG)
@click.option("--before", multiple=True, required=True, metavar="K=V", help="The windows of before; may be repeated.")
@click.option("--after", multiple=True, required=True, metavar="K=V", help="The windows of after; may be repeated.")
@click.option("--tolerance", type=Percent(), default="3%", show_default=True, help="Slowdowns that do not matter.")
@click.option(
    "--find",
    type=Percent(),
    help="The slowdown that must not be missed: says how many windows are needed.  [default: 2% above the tolerance]",
)
@click.option(
    "--least-share",
    type=Percent(),
    default="0.1%",
    show_default=True,
    help="Test kernels that take so much of device time on either side.",
)
@click.option("--skip-start", type=Length(), default="0s", help="Leave out so much from the start of each process.")
@click.option("--watch", is_flag=True, help="Ask again and again, and print what changes; Ctrl-C ends it.")
@click.option("--interval", type=Length(), default="60s", show_default=True, help="With --watch: how often.")
@options.source
@options.filters(since="7d")
@options.limit(20)
@options.output
def command(
    before: tuple[str, ...],
    after: tuple[str, ...],
    watch: bool,
    store: str | None,
    db: str | None,
    limit: int,
    form: str,
    **given: Any,
) -> int:
    """Find what became slower from one version, image or time to another.

    Kernel by kernel and step by step, over windows, with an interval for each; clock, power cap and throttling are
    compared first. Exit code 1 says that something is slower, for CI and alerts.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for protobuf and more
    from roofwatch.cli.asking import filter_of  # noqa: PLC0415
    from roofwatch.model.regression import FIND_ABOVE  # noqa: PLC0415

    asked = {name: given.pop(name) for name in ("tolerance", "find", "least_share")}
    asked["skip_start_ns"], interval = given.pop("skip_start"), given.pop("interval")
    if asked["find"] is None:
        asked["find"] = asked["tolerance"] + FIND_ABOVE
    shared = filter_of(given)
    question = Question(before, after, shared, asked, store, db, tuple(showing.title(shared)))
    if not watch:
        return _show(question, question.answer(limit), limit, form)
    if form == "csv":
        raise click.UsageError("--watch prints what changes, which has no columns: take --format table or json.")
    if interval < LEAST_INTERVAL_NS:
        raise click.UsageError("--interval is 0.1s at least: every question reads hundreds of windows.")
    return _watch(question, limit, form, interval / SECOND_NS)


def _code(answer: Mapping[str, Any]) -> int:
    """The exit code that an answer means."""
    verdict = answer["verdict"]
    if verdict["findings"] or verdict["step_findings"]:
        return errors.FAILED
    return errors.DONE if verdict["complete"] else errors.INCOMPLETE


def _show(question: Question, answer: dict[str, Any], limit: int, form: str) -> int:
    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.render import regression_verdict, regressions  # noqa: PLC0415
    from roofwatch.model.regression import ROW_KEYS  # noqa: PLC0415

    head = regressions.Head(question.title, question.before, question.after, everything=not limit)
    shown = answer | {"rows": answer["rows"][:limit] if limit else answer["rows"]}
    code = showing.show(
        shown,
        form,
        ROW_KEYS,
        lambda it, room: regressions.report(it, head, room),
        empty=lambda: question.empty(answer),
        found=bool(answer["devices"]),
    )
    if code == errors.DONE and form != "table" and not answer["verdict"]["complete"]:
        errors.say(regression_verdict.too_few(answer))
    return code or _code(answer)


def _watch(question: Question, limit: int, form: str, interval_s: float) -> int:
    """Ask until Ctrl-C; the exit code of the last answer."""
    from roofwatch.model.errors import RoofwatchError, UsageError  # noqa: PLC0415

    code, said = errors.INCOMPLETE, ""
    known: Any = None  # the State of the last answer, None before the first
    try:
        while True:
            try:
                answer = question.answer(0)
                sentence = "" if answer["devices"] else question.empty(answer)
            except UsageError:  # asking again makes it no better
                raise
            except RoofwatchError as error:  # a store that is away comes back
                sentence, code = str(error), error.exit_code
            else:
                if sentence:
                    code = errors.INCOMPLETE
                else:
                    known = _tell(question, answer, known, limit, form)
                    code = _code(answer)
            if sentence and sentence != said:
                errors.say(sentence)
            said = sentence
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return code


def _tell(question: Question, answer: dict[str, Any], known: Any, limit: int, form: str) -> Any:
    """Print what an answer changes, all of it the first time; what is known now."""
    from roofwatch.cli.render import regressions  # noqa: PLC0415

    state = regressions.state(answer)
    if form == "json":
        if state != known:
            shown = answer | {"rows": answer["rows"][:limit] if limit else answer["rows"]}
            click.echo(json.dumps(shown, separators=(",", ":"), allow_nan=False))
    elif known is None:
        _show(question, answer, limit, form)
    else:
        click.echo(regressions.changes(known, state, time.time_ns()), nl=False)
    return state
