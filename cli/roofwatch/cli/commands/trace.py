"""``roofwatch trace``: the traces that agents keep on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from roofwatch.cli import errors, options, trusting
from roofwatch.cli.guessing import Guessing
from roofwatch.store.config import DEFAULT_ADDRESS

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
EPILOG = """\b
Examples:
  roofwatch capture --job slurm:4711.0 --keep-trace
  roofwatch trace list
  roofwatch trace get 5f0c1d2e -o trace.json.gz
  roofwatch trace open trace.json.gz
\b
A trace stays on its node, for its agent's --keep-traces-hours and within
--keep-traces-mb, and passes through the store when it is fetched. It names
ops, kernels and shapes: fetching needs the role operate.
"""
LIST_EPILOG = """\b
Examples:
  roofwatch trace list
  roofwatch trace list --node gpu-07 --format json
"""
GET_EPILOG = """\b
Examples:
  roofwatch trace get 5f0c1d2e -o trace.json.gz
  roofwatch trace get 5f0c1d2e9a4b4c1d8e7f6a5b4c3d2e1f
\b
WINDOW is the begin of a window's uid. Its trace is asked of the node under
which the store has the window, and of no other. The file is there whole, of
the right hash and for your eyes only, or not at all. It is gzip of what the
profiler wrote, as Perfetto opens it.
\b
'roofwatch analyze' of it has the same kernels, maybe a shorter span, and no
steps: begin, length and steps are told by the hook, beside it, and by
'roofwatch trace list'.
"""
OPEN_EPILOG = """\b
Examples:
  roofwatch trace open trace.json.gz
  roofwatch trace open 5f0c1d2e
"""
ENDINGS = {"kineto-json": ".json.gz", "ascend-db": ".db.gz"}
PERFETTO = "https://ui.perfetto.dev"
LARGE_BYTES = 100 << 20  # as gzip; a browser takes about ten times as much memory


@click.group("trace", cls=Guessing, epilog=EPILOG)
def command() -> None:
    """Kept traces: list them, fetch one, see how to open it."""


def _source(function: Decorated) -> Decorated:
    function = trusting.options(hidden=True)(function)
    return click.option(
        "--store", envvar="ROOFWATCH_STORE", show_envvar=True, metavar="HOST:PORT",
        help=f"The store whose agents are asked.  [default: {DEFAULT_ADDRESS}]",
    )(function)  # fmt: skip


def _node(function: Decorated) -> Decorated:
    told = "Of this node: take its agent's word where the store does not have the window."
    return click.option("--node", default="", metavar="HOST", help=told)(function)


@command.command("list", epilog=LIST_EPILOG)
@_source
@click.option("--node", default="", metavar="HOST", help="Only those of this node.")
@options.output
def list_(store: str | None, node: str, form: str) -> int:
    """List the traces that agents keep, the latest first."""
    from roofwatch.cli import controlling, showing  # noqa: PLC0415  # --help must not pay for grpc
    from roofwatch.cli.render import captures  # noqa: PLC0415

    answer = controlling.traces(store or DEFAULT_ADDRESS, node=node)
    left_out, away = answer["coverage"].pop("left_out"), answer["coverage"]["silent"]
    code = showing.show(
        answer, form, captures.TRACE_KEYS, lambda it, room: captures.traces(it, room, time.time_ns()),
        "no agent that is connected keeps a trace (those of agents that are away are listed when they are back): take "
        "one with 'roofwatch capture --keep-trace'.",
    )  # fmt: skip
    for told in (*captures.silent(away), *captures.unsure(answer["rows"])):
        errors.say(told)
    if left_out:
        errors.say(f"{left_out} more are kept than agents list.")
    return code


@command.command("get", epilog=GET_EPILOG)
@click.argument("window", metavar="WINDOW")
@click.option("-o", "--output", "out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Where to write it.  [default: the uid's first digits and .json.gz]")  # fmt: skip
@_node
@_source
def get(window: str, out: Path | None, node: str, store: str | None) -> int:
    """Fetch a kept trace from the agent that has it."""
    from roofwatch.cli import controlling  # noqa: PLC0415  # --help must not pay for grpc
    from roofwatch.cli.render import text  # noqa: PLC0415

    address = store or DEFAULT_ADDRESS
    row = controlling.the_one(address, window.lower(), node)
    path = out or Path(row["window"][:8] + ENDINGS.get(row["format"], ".gz"))
    try:
        done = controlling.fetch(address, row["window"], path, _progress(), row["node"])
    except KeyboardInterrupt:
        errors.say(f"interrupted: {path} is not written.")
        return errors.INTERRUPTED
    errors.say(f"{path} written: {text.size(done.size)} of node {row['node']}.")
    for line in how_to_open(path, done.format, done.size):
        click.echo(line)
    return errors.DONE


@command.command("open", epilog=OPEN_EPILOG)
@click.argument("what", metavar="WINDOW|FILE")
@_node
@_source
def open_(what: str, node: str, store: str | None) -> int:
    """Print how to open a trace, of a FILE or of a kept WINDOW."""
    path = Path(what)
    if path.exists():
        form = "ascend-db" if path.name.removesuffix(".gz").endswith(".db") else "kineto-json"
        lines = how_to_open(path, form, path.stat().st_size)
    else:
        from roofwatch.cli import controlling  # noqa: PLC0415  # --help must not pay for grpc

        row = controlling.the_one(store or DEFAULT_ADDRESS, what.lower(), node)
        path = Path(row["window"][:8] + ENDINGS.get(row["format"], ".gz"))
        lines = [f"roofwatch trace get {row['window'][:8]} -o {path}", *how_to_open(path, row["format"], row["bytes"])]
    for line in lines:
        click.echo(line)
    return errors.DONE


def how_to_open(path: Path, form: str, size: int) -> list[str]:
    """What to type and where to click."""
    if form == "ascend-db":
        return [f"gunzip -k {path}", f"open {path.with_suffix('')} in MindStudio Insight (Import Data)"]
    lines = [f"open {PERFETTO} in a browser, 'Open trace file', {path} (read by the page itself, sent nowhere)"]
    if size > LARGE_BYTES:
        lines.append(f"it is large: run 'trace_processor server http {path}' first, and the page offers to use it")
    return lines


def _progress() -> Callable[[int, int], None]:
    """A line on stderr that says how far fetching is, where a person watches."""
    if not sys.stderr.isatty():
        return lambda _done, _size: None
    shown = -1

    def tell(done: int, size: int) -> None:
        nonlocal shown
        percent = done * 100 // size if size else 100
        if percent != shown:
            shown = percent
            sys.stderr.write(f"\rfetching: {percent} %" if percent < 100 else "\r\x1b[K")
            sys.stderr.flush()

    return tell
