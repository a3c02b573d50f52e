"""``roofwatch processes``: registered processes and what their windows cost."""

from __future__ import annotations

import time
from typing import Any

import click

from roofwatch.cli import options

EPILOG = """\b
Examples:
  roofwatch processes
  roofwatch processes --node gpu-07 --model llama-7b
  roofwatch processes --wide --label k8s.pod.name=train-0
\b
steps  optimizer steps inside the windows taken, not all that the job made
busy   share of the devices' time with work on them, over the windows taken
cost   share of the job's time that taking windows took from it; "≈ 0 %":
       below zero, or within twice what windows of the process vary by for
       nothing; unknown before windows have held 10 steps
spent  what windows cost its job, of the last hour, as its agent charged them
every  how long between two windows; "why": schedule, learning (the first
       windows), cold_start, budget, hard_stop, residue (steps stayed slower
       after windows), or why it took none
"–": not known, as of agents of earlier versions
"""
KEYS = (
    "process", "node", "pid", "model", "user", "job", "container", "rank", "world_size", "device", "devices",
    "windows", "last_window_unix_ns", "steps", "device_time_ns", "busy_share", "mfu", "mfu_known_share",
    "lost_ns", "lost_noise_ns", "represented_ns", "lost_share", "versions", "labels", "start_unix_ns", "local_rank",
    "pod", "namespace", "pod_uid", "resource", "interval_reason", "budget_share", "hard_stop_share", "spent_share",
    "balance_ns", "charged_ns", "charge_measured", "interval_ns", "event_cap", "skipped", "registered_unix_ns",
    "told_unix_ns",
)  # fmt: skip


@click.command("processes", epilog=EPILOG)
@options.source
@options.filters(since="1d")
@options.limit(50)
@click.option("--wide", is_flag=True, help="Budget, place and what was not taken, too; lines as long as they are.")
@options.output
def command(store: str | None, db: str | None, limit: int, wide: bool, form: str, **given: Any) -> int:
    """Show registered processes, what their windows cost, and where they run.

    The last seen first, those without windows too.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for protobuf and more
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import listing  # noqa: PLC0415

    asked = filter_of(given)
    answer = ask("processes", asked, limit, store=store, db=db)
    return showing.show(
        answer,
        form,
        KEYS,
        lambda it, room: listing.processes(it, room, time.time_ns(), wide=wide),
        empty=lambda: nothing(asked, store=store, db=db),
    )
