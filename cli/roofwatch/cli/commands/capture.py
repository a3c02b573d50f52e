"""``roofwatch capture``: a window now, of one rank or all, on whatever nodes they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from roofwatch.cli import errors, options, trusting
from roofwatch.store.config import DEFAULT_ADDRESS

EPILOG = """\b
Examples:
  roofwatch capture --job slurm:4711.0 --steps 3
  roofwatch capture --job slurm:4711.0 --all-ranks --keep-trace
  roofwatch capture --process 48213 --node gpu-07
  roofwatch capture --model llama-7b --rank 0 --rank 7 --format json
\b
Of a job of several ranks the lowest is asked, those of --rank, or all; they
begin at the same optimizer step. A window on request goes ahead of the
schedule and is paid from the job's budget like any other; over the hard stop
it is refused (over_budget). The first window of a process is short, so it is
asked again until one has the steps.
\b
Exit code: 0 all were taken, 1 some were not (each says why), 4 nothing
matches, or ranks that were meant have no agent at this store.
"""
MOST_S = 600


@click.command("capture", epilog=EPILOG)
@click.option(
    "--store", envvar="ROOFWATCH_STORE", show_envvar=True, metavar="HOST:PORT",
    help=f"The store whose agents are asked.  [default: {DEFAULT_ADDRESS}]",
)  # fmt: skip
@trusting.options(hidden=True)
@click.option("--job", default="", metavar="JOB", help="Of this job, as 'roofwatch processes' shows it.")
@click.option("--process", default="", metavar="PID|ID", help="Of this process: its pid, or its id.")
@click.option("--model", default="", metavar="NAME", help="Of jobs of this model.")
@click.option("--node", default="", metavar="HOST", help="On this node only.")
@click.option("--rank", "ranks", type=click.IntRange(0), multiple=True, metavar="N", help="This rank; may be repeated.")
@click.option("--all-ranks", is_flag=True, help="All ranks of the job, at the same step.")
@click.option("--steps", type=click.IntRange(1, 1000), default=3, show_default=True, help="Optimizer steps.")
@click.option(
    "--duration-ms", type=click.IntRange(1, 10_000), default=200, show_default=True, metavar="MS",
    help="Length, of a process without optimizer steps.",
)  # fmt: skip
@click.option("--keep-trace", is_flag=True, help="Keep the trace on its node, to be fetched: roofwatch trace get.")
@click.option(
    "--timeout", type=options.Stretch(), default="60s", show_default=True, metavar="DURATION",
    help="How long to wait for the windows, at most 10m.",
)  # fmt: skip
@options.output
def command(store: str | None, form: str, ranks: tuple[int, ...], all_ranks: bool, timeout: int, **given: Any) -> int:
    """Take windows now and tell of each what became of it.

    The records go to the store like those of any window; it waits some seconds until they are there.
    """
    if ranks and all_ranks:
        raise click.UsageError("--rank names ranks and --all-ranks takes all: give one of them.")
    if not any(given[name] for name in ("job", "process", "model", "node")):
        raise click.UsageError("which? Name a --job, a --process, a --model or a --node ('roofwatch processes').")
    if timeout > MOST_S * 1_000_000_000:
        raise click.UsageError("--timeout is 10m at most.")
    from roofwatch.cli import controlling, showing  # noqa: PLC0415  # --help must not pay for grpc
    from roofwatch.cli.render import captures  # noqa: PLC0415
    from roofwatch.proto.v1 import roofwatch_pb2 as pb  # noqa: PLC0415

    which = pb.FindProcesses(job=given["job"], process=given["process"], model=given["model"])
    request = pb.CaptureRequest(
        which=which, node=given["node"], all_ranks=all_ranks, ranks=ranks, steps=given["steps"],
        duration_ms=given["duration_ms"], keep_trace=given["keep_trace"], within_ms=timeout // 1_000_000,
    )  # fmt: skip
    begin_ns = time.time_ns()
    try:
        answer = controlling.capture(store or DEFAULT_ADDRESS, request, _found, _told)
    except KeyboardInterrupt:
        errors.say("interrupted: windows that were asked for may still be taken, and come to the store like any other.")
        return errors.INTERRUPTED
    try:
        missing = controlling.not_stored(store or DEFAULT_ADDRESS, answer, begin_ns)
    except KeyboardInterrupt:  # what became of them is known, and told
        missing = 0
    code = showing.show(answer, form, captures.KEYS, captures.report, lambda: captures.nothing(answer))
    for note in captures.notes(answer) if code == errors.DONE else ():
        errors.say(note)
    if missing:
        errors.say(captures.not_stored(missing))
    return code or captures.code(answer)


def _found(coverage: Mapping[str, Any]) -> None:
    from roofwatch.cli.render import captures  # noqa: PLC0415

    _progress(captures.asking(coverage))


def _told(row: Mapping[str, Any]) -> None:
    from roofwatch.cli.render import captures  # noqa: PLC0415

    _progress(captures.progress(row))


def _progress(line: str) -> None:
    """A line for who watches."""
    if sys.stderr.isatty():
        click.echo(line, err=True)
