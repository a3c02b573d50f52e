"""How a reading command ends: the answer on stdout in the format asked for, a word on stderr where it is empty."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from roofwatch.cli import errors
from roofwatch.cli.render.table import terminal_columns
from roofwatch.model.record import Window
from roofwatch.store.filter import Filter

Answer = Mapping[str, Any]
Draw = Callable[[Answer, int], str]

_PASSWORD = re.compile(r"://[^/@]*:[^/]*@|[?&]password=", re.IGNORECASE)
_AGO = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_COUNT_MOST = 1000  # of a unit: nobody types a longer duration in it, so it is a time of day that falls on a whole one


def show(
    answer: Answer,
    form: str,
    keys: Sequence[str],
    draw: Draw,
    empty: str | Callable[[], str],
    *,
    found: bool | None = None,
) -> int:
    """Write the answer; the exit code is 4 where the data that would answer is missing.

    ``found``: whether it is there, by default whether there is a row.
    """
    if form == "json":
        from roofwatch.cli.render import json  # noqa: PLC0415  # one renderer a run

        click.echo(json.render(answer), nl=False)
    elif form == "csv":
        from roofwatch.cli.render import csv  # noqa: PLC0415

        click.echo(csv.render(answer["rows"], keys), nl=False)
    else:
        click.echo(draw(answer, terminal_columns()), nl=False)
    if left_out := answer.get("coverage", {}).get("left_out"):
        errors.say(_left_out(left_out))
    if answer["rows"] if found is None else found:
        return errors.DONE
    errors.say(empty if isinstance(empty, str) else empty())
    return errors.INCOMPLETE


def _left_out(times: Sequence[Mapping[str, int]]) -> str:
    """Times that the filter cuts, of which too little is kept to answer for a part."""
    told = ", ".join(f"{_iso(t['since_unix_ns'])} to {_iso(t['until_unix_ns'])}" for t in times[:2])
    more = f" and {len(times) - 2} more" if len(times) > 2 else ""
    return f"left out: {told}{more}: of that time only sums of whole hours or days are kept. Ask for whole ones."


def title(given: Filter, now_ns: int | None = None) -> list[str]:
    """What was asked for, as the first words of a head: node, model, device, vendor, job, process, labels, time."""
    parts = [given.node or "all nodes"]
    parts += [word for word in (given.model, given.device, given.vendor, given.job) if word]
    parts += [f"process {given.process}"] if given.process else []
    parts += [f"{key}={value}" for key, value in sorted(given.labels.items())]
    return [*parts, period(given.since_unix_ns, given.until_unix_ns, now_ns or time.time_ns())]


def typed_source() -> tuple[list[str], list[str]]:
    """--store or --db as this command line has it, for a next one, and the same with a word in place of the value.

    Nothing where the environment or a default says it. A password goes to no terminal, file or log.
    """
    ctx = click.get_current_context(silent=True)
    for name, word in (("store", "HOST:PORT"), ("db", "URL")):
        if ctx is not None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            value = str(ctx.params[name])
            return [f"--{name}", word if _PASSWORD.search(value) else value], [f"--{name}", word]
    return [], []


def diagnose(given: Filter, now_ns: int | None = None, source: Sequence[str] = ()) -> str:
    """The command that diagnoses the same windows; ``source``: words of ``typed_source``."""
    words = ["roofwatch", "diagnose"]
    for name in ("node", "process", "model", "device", "vendor", "job"):
        value = getattr(given, name)
        words += [f"--{name}", value] if value else []
    for key, value in sorted(given.labels.items()):
        words += ["--label", f"{key}={value}"]
    since = _as_typed(given.since_unix_ns, now_ns or time.time_ns())
    words += ["--since", since] if since != "1h" else []
    words += ["--until", _iso(given.until_unix_ns)] if given.until_unix_ns else []
    return shlex.join([*words, *source])


def _as_typed(since_ns: int | None, now_ns: int) -> str:
    if not since_ns:
        return "all"
    seconds = round((now_ns - since_ns) / 1e9)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if _is_whole(seconds, size):
            return f"{seconds // size}{unit}"
    return _iso(since_ns)


def _is_whole(seconds: int, size: int) -> bool:
    return size <= seconds < _COUNT_MOST * size and seconds % size <= 1


def _iso(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9).astimezone().isoformat(timespec="seconds")


def file_title(file: Path, window: Window) -> list[str]:
    """What is in a file, as the first words of a head: name, devices, span, steps."""
    from roofwatch.cli.render import kernels, text  # noqa: PLC0415

    parts = [file.name, kernels.devices([d.device.model for d in window.devices])]
    parts += [f"span {text.duration(window.span_ns)}"] if window.span_ns else []
    return [*parts, *([] if window.steps is None else [text.plural(window.steps, "step")])]


def period(since_ns: int | None, until_ns: int | None, now_ns: int) -> str:
    """The time range in words: "last 1 h", "since 2026-01-31 12:00", "all time"."""
    if not since_ns:
        return f"until {_local(until_ns)}" if until_ns else "all time"
    if until_ns:
        return f"{_local(since_ns)} to {_local(until_ns)}"
    seconds = round((now_ns - since_ns) / 1e9)
    for unit, size in _AGO:
        if _is_whole(seconds, size):  # what was given as a duration comes back as one
            return f"last {seconds // size} {unit}"
    return f"since {_local(since_ns)}"


def _local(unix_ns: int) -> str:
    return f"{datetime.fromtimestamp(unix_ns / 1e9).astimezone():%Y-%m-%d %H:%M:%S}".removesuffix(":00")
