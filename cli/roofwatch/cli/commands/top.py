"""``roofwatch top``: the kernels that eat the time, and why."""

from __future__ import annotations

import time
from typing import Any

import click
from click.core import ParameterSource

from roofwatch.cli import options

EPILOG = """\b
Examples:
  roofwatch top
  roofwatch top --node gpu-07 --since 30m --limit 5
  roofwatch top --by op --since 2d
  roofwatch top --by kernel --every 1h --since 1d
  roofwatch top --model llama-7b --label git=4f2a91c --since 2d \\
      --format json
\b
time      estimated device time in the range: each window stands for the
          time since the one before it
roof      attainable time over measured time: 100 % is all the device can;
          "!" above 105 %: data that stays in a cache, or the formula counts
          inputs whole of which the op reads a part; "L2" on Ascend: more
          bytes than memory delivers, part of them came from L2
winnable  time x (1 - roof); unknown where roof is, or has a "!"
\b
The head's "classified" is a share of compute time: device time less
communication, copies, and what was launched before a window and is seen in it
nowhere else. "By name": a verdict that rests on the kernel's name only.
\b
With --by, "roof" is of the part that has one, "bound" what bounds most of it
with that share, and p50, p95, p99 are of single calls. Device models are
never merged. --every cuts time at whole multiples of its length, in UTC; the
first and the last stretch are whole ones.
"""
BY = ("kernel", "op", "kind", "module", "node", "device")
STRETCHES = 24  # where --since is not given


@click.command("top", epilog=EPILOG)
@click.option("--by", type=click.Choice(BY), help="What a row is, instead of a signature.")
@click.option(
    "--every", "every_ns", type=options.Stretch(), metavar="DURATION",
    help="By stretches of time, as in 10m, 1h or 1d; of the last 24 by default, and --by kernel.",
)  # fmt: skip
@options.source
@options.filters(since="1h")
@options.limit(20)
@options.output
def command(
    by: str | None, every_ns: int | None, store: str | None, db: str | None, limit: int, form: str, **given: Any
) -> int:
    """Show the kernels that eat the time, and why.

    One row a signature (kernel, op, shapes, dtypes) and device model, the largest estimated time first, with what
    bounds it, what that verdict rests on, how near it is to the roof, and the time that could be won.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for protobuf and more
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import kernels  # noqa: PLC0415
    from roofwatch.model.answer_rows import ROW_KEYS  # noqa: PLC0415

    if by or every_ns:
        return _grouped(by or BY[0], every_ns or 0, (store, db), limit, form, given)
    asked = filter_of(given)
    head = showing.title(asked)  # before time passes: "last 1 h" stays that
    then, shorter = (showing.diagnose(asked, source=source) for source in showing.typed_source())
    answer = ask("top", asked, limit, store=store, db=db)
    return showing.show(
        answer,
        form,
        ROW_KEYS,
        lambda it, room: kernels.report(it, head, room, then, shorter),
        empty=lambda: nothing(asked, store=store, db=db),
    )


def _grouped(
    by: str, every_ns: int, at: tuple[str | None, str | None], limit: int, form: str, given: dict[str, Any]
) -> int:
    from dataclasses import replace  # noqa: PLC0415

    from roofwatch.cli import showing  # noqa: PLC0415
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import grouped  # noqa: PLC0415
    from roofwatch.model.grouping import GROUP_KEYS  # noqa: PLC0415

    typed = click.get_current_context().get_parameter_source("since")
    if every_ns and typed is ParameterSource.DEFAULT:
        given["since"] = max(1, time.time_ns() - STRETCHES * every_ns)
    asked = filter_of(given)
    head = showing.title(asked)
    then, shorter = (showing.diagnose(asked, source=source) for source in showing.typed_source())
    if every_ns:  # whole stretches
        since, until = asked.since_unix_ns, asked.until_unix_ns
        asked = replace(
            asked,
            since_unix_ns=None if since is None else max(since - since % every_ns, options.NAMEABLE.start),
            until_unix_ns=None if until is None else min(until + -until % every_ns, options.NAMEABLE.stop - 1),
        )
    told = {"by": by} | ({"every_ns": every_ns} if every_ns else {})
    answer = ask("top_by", asked, limit, store=at[0], db=at[1], options=told)
    answer["query"] |= {"name": "top"}
    return showing.show(
        answer,
        form,
        GROUP_KEYS,
        lambda it, room: grouped.report(it, head, room, then, shorter),
        empty=lambda: nothing(asked, store=at[0], db=at[1]),
    )
