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
\b
steps  optimizer steps inside the windows taken, not all that the job made
busy   share of the devices' time with work on them, over the windows taken
cost   share of the job's time that taking windows took from it; "≈ 0 %":
       below what the steps' own variation lets be seen; unknown before
       windows have held 10 steps
"""
KEYS = (
    "process", "node", "pid", "model", "user", "job", "container", "rank", "world_size", "device", "devices",
    "windows", "last_window_unix_ns", "steps", "device_time_ns", "busy_share", "mfu", "mfu_known_share",
    "lost_ns", "lost_noise_ns", "represented_ns", "lost_share", "versions", "labels",
)  # fmt: skip


@click.command("processes", epilog=EPILOG)
@options.source
@options.filters(since="1d")
@options.limit(50)
@options.output
def command(store: str | None, db: str | None, limit: int, form: str, **given: Any) -> int:
    """Show registered processes and what their windows cost.

    The last seen first.
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
        lambda it, room: listing.processes(it, room, time.time_ns()),
        empty=lambda: nothing(asked, store=store, db=db),
    )
