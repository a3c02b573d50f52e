"""``roofwatch ranks``: the ranks of a job side by side, and who makes the others wait."""

from __future__ import annotations

import time
from typing import Any

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch ranks --job slurm:4242.0
  roofwatch ranks --model llama-7b --since 6h
  roofwatch ranks --job slurm:4242.0 --format json
\b
A step takes all ranks of a job as long: who is done early waits in a
collective. So a rank is late by its own time, the step without communication.
It is a straggler where a run of windows on the same steps shows it. Without
--job: the only job of several ranks there is.
\b
comm.    communication in the way: exposed, or waited for by the host
moving, waiting  the time in collectives, in the way or beside compute: moving
         bytes, and waiting for a late rank; by the clock, so several at once
         count once, and where one of them moves bytes it is moving
late     median of own time less the other ranks' median, of the step
\b
Exit code 1: there is a straggler; 4: there is too little to compare.
"""


@click.command("ranks", epilog=EPILOG)
@options.source
@options.filters(since="1h")
@options.limit(64)
@options.output
def command(store: str | None, db: str | None, limit: int, form: str, **given: Any) -> int:
    """Show the ranks of a job side by side, and name the straggler.

    A step of each rank: compute, moving bytes, waiting for a late peer, copies, idle by cause, clock. Who is late,
    since when, and whether chip, kernels, input or network explain it. The filters choose the job; of it all ranks
    are shown.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for numpy, protobuf and more
    from roofwatch.cli.asking import ask, filter_of, next_command, nothing  # noqa: PLC0415
    from roofwatch.cli.render import ranks, text  # noqa: PLC0415
    from roofwatch.model.ranks_report import ROW_KEYS  # noqa: PLC0415

    asked = filter_of(given)
    head = showing.title(asked)
    answer = ask("ranks", asked, limit, store=store, db=db)

    def empty() -> str:
        if answer["job"] is not None:
            seen, size = answer["job"]["ranks"], answer["job"]["world_size"]
            if doubled := (answer["basis"] or {}).get("windows_ambiguous"):
                return (
                    f"{text.plural(doubled, 'window')} are of two processes of one rank at one time, as of two runs "
                    "that call themselves alike: ask for a time with --since and --until in which one of them ran."
                )
            return f"windows of {seen} of the job's {size} ranks are here, and two are needed: widen --since."
        if answer["coverage"]["windows"]:
            then = next_command("processes", "--since", "all")
            return f"no window here is of a job of several ranks: see '{then}'."
        return nothing(asked, store=store, db=db)

    code = showing.show(
        answer,
        form,
        ROW_KEYS,
        lambda it, room: ranks.report(it, head, room, time.time_ns(), showing.typed_source()[0]),
        empty=empty,
        found=answer["basis"] is not None and answer["basis"]["compared"] is not None,
    )
    if code == errors.DONE and answer["straggler"] is not None:
        return errors.FAILED
    undecided = code == errors.DONE and answer["basis"] is not None and answer["basis"]["undecided"]
    return errors.INCOMPLETE if undecided else code
