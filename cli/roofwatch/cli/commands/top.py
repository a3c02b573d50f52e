"""``roofwatch top``: the kernels that eat the time, and why."""

from __future__ import annotations

from typing import Any

import click

from roofwatch.cli import options

EPILOG = """\b
Examples:
  roofwatch top
  roofwatch top --node gpu-07 --since 30m --limit 5
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
"""


@click.command("top", epilog=EPILOG)
@options.source
@options.filters(since="1h")
@options.limit(20)
@options.output
def command(store: str | None, db: str | None, limit: int, form: str, **given: Any) -> int:
    """Show the kernels that eat the time, and why.

    One row a signature (kernel, op, shapes, dtypes) and device model, the largest estimated time first, with what
    bounds it, what that verdict rests on, how near it is to the roof, and the time that could be won.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for protobuf and more
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import kernels  # noqa: PLC0415
    from roofwatch.model.answer_rows import ROW_KEYS  # noqa: PLC0415

    asked = filter_of(given)
    answer = ask("top", asked, limit, store=store, db=db)
    head = showing.title(asked)
    return showing.show(
        answer,
        form,
        ROW_KEYS,
        lambda it, room: kernels.report(it, head, room, showing.diagnose(asked)),
        empty=lambda: nothing(asked, store=store, db=db),
    )
