"""Options that several commands share, and what they mean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
from click.core import ParameterSource

from roofwatch.cli import trusting
from roofwatch.store.config import DEFAULT_ADDRESS

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Format = Literal["table", "json", "csv"]

_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
NAMEABLE = range(-(1 << 63), 1 << 63)  # the Unix nanoseconds that the wire and the databases hold
NAMEABLE_TEXT = "from 1677-09-22 to 2262-04-11"  # the whole days of it
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)")


def moment(text: str, now_ns: int) -> int:
    """A point in time as Unix nanoseconds: "1h" ago, an ISO 8601 time (local where it names no zone), "now", "all" = 0.

    Raises:
        ValueError: it is none of these.
        OverflowError: it lies outside NAMEABLE.
    """
    text = text.strip()
    if text in {"all", "now"}:
        return 0 if text == "all" else now_ns
    parts = _DURATION.findall(text)
    if parts and not _DURATION.sub("", text).strip():
        found = now_ns - int(sum(float(number) * _UNITS_S[unit] for number, unit in parts) * 1e9)
    else:
        found = _unix_ns(datetime.fromisoformat(text))
    if found not in NAMEABLE:
        raise OverflowError(text)
    return found


def _unix_ns(when: datetime) -> int:
    try:
        return int(when.astimezone().timestamp()) * 1_000_000_000 + when.microsecond * 1000
    except ValueError as error:  # the year 1 in a zone where it was still the year 0
        raise OverflowError(str(error)) from error


class Moment(click.ParamType[int]):
    """A point in time on the command line."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The text as Unix nanoseconds, 0 for no limit."""
        if isinstance(value, int):
            return value
        try:
            return moment(value, time.time_ns())
        except OverflowError:
            self.fail(f"{value!r} is out of range: times {NAMEABLE_TEXT} can be named.", param, ctx)
        except ValueError:
            self.fail(f"{value!r} is neither a duration like 30m or 2d nor a time like 2026-01-31T12:00.", param, ctx)


class Stretch(click.ParamType[int]):
    """A length of time on the command line."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The text as nanoseconds: whole seconds, at least one."""
        if isinstance(value, int):
            return value
        parts = _DURATION.findall(value)
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
        if (
            not parts
            or _DURATION.sub("", value).strip()
            or seconds != int(seconds)
            or not 1 <= seconds < NAMEABLE.stop / 1e9
        ):
            self.fail(f"{value!r} is no length of time: give whole seconds, as in 30s, 10m, 1h or 1d.", param, ctx)
        return int(seconds) * 1_000_000_000


class Label(click.ParamType[tuple[str, str]]):
    """A label k=v on the command line."""

    name = "K=V"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Key and value."""
        if isinstance(value, tuple):
            return value
        key, separator, text = value.partition("=")
        if not separator or not key:
            self.fail(f"{value!r} is not a label: write it as key=value.", param, ctx)
        return key, text


VENDORS = ("nvidia", "ascend", "amd", "cpu")
_VENDOR = f"Only devices of this vendor: {', '.join(VENDORS)}."


def _stacked(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


label = click.option("--label", "labels", type=Label(), multiple=True, metavar="K=V", help="A label; may be repeated.")

source = _stacked(
    click.option(
        "--store",
        envvar="ROOFWATCH_STORE",
        show_envvar=True,
        metavar="HOST:PORT",
        help=f"The store to ask.  [default: {DEFAULT_ADDRESS}]",
    ),
    click.option(
        "--db",
        envvar="ROOFWATCH_DB",
        show_envvar=True,
        metavar="URL",
        help="Open this database instead, e.g. sqlite:///roofwatch.db",
    ),
    trusting.options(hidden=True),
)

recorded_here = _stacked(
    click.option(
        "--here", is_flag=True, help="The trace was recorded on this machine: judge CPU ops by its measured peaks."
    ),
    click.option(
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        help="With --here: threads of the job.  [default: torch's usual number]",
    ),
)

graph_captures = click.option(
    "--graph-capture",
    "captures",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="CAPTURE",
    help="A profile that ran while the graphs in the file were captured: tells their ops; may be repeated.",
)

trace_file = click.argument("file", required=False, type=click.Path(path_type=Path))

output = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="A table for people, or base units and null for programs.",
)


def limit(default: int) -> Callable[[Decorated], Decorated]:
    """--limit N, also called --top N; 0 shows all rows."""
    return click.option(
        "--limit",
        "--top",
        "limit",
        type=click.IntRange(0, 1_000_000),
        default=default,
        show_default=True,
        metavar="N",
        help="Rows to show; 0 shows all.",
    )


def filters(since: str, device: str = "--device") -> Callable[[Decorated], Decorated]:
    """The options that choose windows; ``since`` is the default of --since, ``device`` what that filter is called."""
    return _stacked(
        click.option(
            "--since",
            type=Moment(),
            default=since,
            show_default=True,
            metavar="TIME",
            help="From this time on: a duration before now (90s, 30m, 1h, 2d), an ISO time, or all.",
        ),
        click.option("--until", type=Moment(), default="all", metavar="TIME", help="Up to this time; the same forms."),
        click.option("--node", default="", metavar="HOST", help="Only this node."),
        click.option("--process", default="", metavar="PID|ID", help="Only this process: its pid, or its id."),
        click.option("--model", default="", metavar="NAME", help="Only jobs of this model."),
        click.option(device, "device", default="", metavar="NAME", help="Only this device model."),
        click.option("--vendor", default="", type=click.Choice(["", *VENDORS]), metavar="NAME", help=_VENDOR),
        click.option("--job", default="", metavar="JOB", help="Only this job, as 'roofwatch processes' shows it."),
        label,
    )


# What chooses among the windows of a store, and what says how a file is read.
_OF_STORE = frozenset(
    {"store", "db", "since", "until", "node", "process", "model", "device", "vendor", "job", "labels"}
)
_OF_FILE = frozenset({"here", "threads", "captures"})


def one_subject(file: Path | None) -> None:
    """Refuse what belongs to a store beside a file, and what belongs to a file without one.

    Raises:
        click.UsageError: it was typed; names it.
    """
    ctx = click.get_current_context()
    foreign = _OF_FILE if file is None else _OF_STORE
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in foreign and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            reason = "says how a FILE is read: name one" if file is None else f"is for a store, and {file} is a file"
            raise click.UsageError(f"{parameter.opts[0]} {reason}.")
