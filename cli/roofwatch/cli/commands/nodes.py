"""``roofwatch nodes``: machines that sent windows."""

from __future__ import annotations

import time
from typing import Any

import click

from roofwatch.cli import options

EPILOG = """\b
Examples:
  roofwatch nodes
  roofwatch nodes --since 1h --format csv
\b
devices  "? ×": imported traces, or jobs without the hook, do not tell which
         GPU it was, so that of several processes may be the same
busy     share of the devices' time with work on them, over the windows taken
dropped  windows that the agent had to give up, for whatever reason
"""
NOBODY = "no node has sent a window here: start 'roofwatch agent --store …', and a job with 'roofwatch run'."
KEYS = (
    "node", "last_seen_unix_ns", "processes", "devices", "device", "windows", "device_time_ns", "busy_share", "mfu",
    "mfu_known_share", "versions", "agent_drops",
)  # fmt: skip


@click.command("nodes", epilog=EPILOG)
@options.source
@options.filters(since="all")
@options.limit(0)
@options.output
def command(store: str | None, db: str | None, limit: int, form: str, **given: Any) -> int:
    """Show the machines that sent windows.

    The one with most device time first.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for protobuf and more
    from roofwatch.cli.asking import ask, filter_of  # noqa: PLC0415
    from roofwatch.cli.render import listing  # noqa: PLC0415

    answer = ask("nodes", filter_of(given), limit, store=store, db=db)
    return showing.show(answer, form, KEYS, lambda it, room: listing.nodes(it, room, time.time_ns()), empty=NOBODY)
