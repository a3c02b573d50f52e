"""``roofwatch windows``: the windows taken, one a line."""

from __future__ import annotations

import time
from typing import Any

import click

from roofwatch.cli import options

EPILOG = """\b
Examples:
  roofwatch windows
  roofwatch windows --process 4711 --since 2d --limit 0 --format json
\b
length  from the window's opening to its cut, of an imported file all of its
        recording; the "span" that shares are of is, for each device, what
        its steps or ops and its records reach over, and may be shorter
linked  share of device time tied to an op
judged  share of compute time (device time less communication, copies, and
        what ran before the window and is seen in it nowhere else) with a
        verdict that rests on more than a name
lost    time the job lost to this window: slower steps in it and after it;
        "≈ 0": below zero, or within twice what it varies by for nothing, as
        the process's windows below zero tell
spent   what windows cost the job then, of the last hour; "every", "why":
        the interval in force when it was asked for, and why (processes
        --help); "charged", with --wide: what the job's account paid for it,
        "about" where steps did not tell; "–": an agent of before
"""
KEYS = (
    "uid", "start_unix_ns", "process", "node", "pid", "model", "device", "duration_ns", "steps", "represents_ns",
    "trigger", "collector", "shapes_recorded", "events_read", "device_records", "device_time_ns", "busy_ns",
    "span_ns", "linked_share", "classified_share", "first_step", "mfu", "mfu_known_share", "close_path", "open_ns",
    "quiesce_ns", "close_ns", "save_ns", "free_ns", "base_step_ns", "longest_step_ns", "lost_in_ns", "lost_after_ns",
    "lost_ns", "lost_noise_ns", "parse_cpu_ns", "dropped", "interval_reason", "budget_share", "hard_stop_share",
    "spent_share", "balance_ns", "charged_ns", "charge_measured", "interval_ns", "event_cap",
)  # fmt: skip


@click.command("windows", epilog=EPILOG)
@options.source
@options.filters(since="1h")
@options.limit(50)
@click.option("--wide", is_flag=True, help="What each was charged, too; lines as long as they are.")
@options.output
def command(store: str | None, db: str | None, limit: int, wide: bool, form: str, **given: Any) -> int:
    """Show the windows taken.

    The latest first.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for protobuf and more
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import listing  # noqa: PLC0415

    asked = filter_of(given)
    answer = ask("windows", asked, limit, store=store, db=db)
    return showing.show(
        answer,
        form,
        KEYS,
        lambda it, room: listing.windows(it, room, time.time_ns(), wide=wide),
        empty=lambda: nothing(asked, store=store, db=db),
    )
