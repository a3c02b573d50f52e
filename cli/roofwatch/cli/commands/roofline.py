"""``roofwatch roofline``: the kernels under the roof, as a plot and a table."""

from __future__ import annotations

from typing import Any

import click

from roofwatch.cli import options

EPILOG = """\b
Examples:
  roofwatch roofline --node gpu-07
  roofwatch roofline --model llama-7b --device "NVIDIA H100 80GB HBM3"
\b
FLOP/B   intensity: FLOPs over bytes of one call
ridge    intensity from which compute, not memory, is the limit
reached  FLOP/s of the mean call; roof: as a share of what is attainable there
"""


@click.command("roofline", epilog=EPILOG)
@options.source
@options.filters(since="1h")
@options.limit(20)
@options.output
def command(store: str | None, db: str | None, limit: int, form: str, **given: Any) -> int:
    """Show the kernels under the roof, as a plot and a table.

    One plot a device model, both axes logarithmic. A kernel whose FLOPs or bytes are unknown has no place in the plot
    and is in the table only.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for protobuf and more
    from roofwatch.cli.asking import ask, filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import roofline  # noqa: PLC0415
    from roofwatch.model.answer_rows import ROW_KEYS  # noqa: PLC0415

    asked = filter_of(given)
    head = showing.title(asked)
    answer = ask("roofline", asked, limit, store=store, db=db)
    return showing.show(
        answer,
        form,
        ROW_KEYS,
        lambda it, room: roofline.report(it, head, room),
        empty=lambda: nothing(asked, store=store, db=db),
    )
