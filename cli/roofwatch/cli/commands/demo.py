"""``roofwatch demo``: everything at once on this machine, in a minute."""

from __future__ import annotations

import platform

import click

from roofwatch.cli import errors

EPILOG = """\b
Examples:
  roofwatch demo
  roofwatch demo --format json > demo.json
\b
Needs torch in this Python. Everything it starts is stopped and everything it
writes is removed, also after Ctrl-C; only the CPU's measured peaks are kept.
"""


@click.command("demo", epilog=EPILOG)
@click.option(
    "--limit", "--top", type=click.IntRange(0), default=10, show_default=True, metavar="N", help="Rows to show."
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Format."
)
def command(limit: int, form: str) -> int:
    """Profile two real jobs on this machine and show their top kernels.

    Starts a store, an agent and two jobs (Transformer inference and a small training), takes windows of them every few
    seconds, and shows within a minute which kernels eat the time, why, and what the windows cost.
    """
    from roofwatch.cli import demonstration, showing, trusting  # noqa: PLC0415  # --help must not pay for it
    from roofwatch.cli.render import diagnosis, kernels  # noqa: PLC0415
    from roofwatch.model.answer_rows import ROW_KEYS  # noqa: PLC0415

    trusting.forget()
    result = demonstration.run(limit, lambda word: errors.note(f"… {word}"))
    answer = {**result.top, "query": {"name": "demo", "limit": limit}, "processes": result.processes["rows"]}
    title = [platform.node(), kernels.devices(sorted({row["device"] for row in answer["rows"]}))]

    def draw(it: showing.Answer, room: int) -> str:
        note = f"What the windows cost, one every {demonstration.INTERVAL_S} s here (60 s by default):"
        doubts = [line for each in result.doubts for line in diagnosis.wrapped(f"Beware: {each}", room)]
        return "\n".join([kernels.report(it, title, room), note, *demonstration.costs(result), *doubts]) + "\n"

    code = showing.show(answer, form, ROW_KEYS, draw, empty="the jobs gave windows, and no kernel was in them.")
    if sum(row["windows"] > 0 for row in answer["processes"]) < len(demonstration.JOBS):
        errors.say("not every job gave a window in time: this machine is very busy. Stop what else runs, and repeat.")
        return errors.INCOMPLETE
    return code
