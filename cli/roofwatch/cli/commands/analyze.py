"""``roofwatch analyze``: the answer of ``top`` from one trace file or folder, without a store."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch analyze trace.json.gz
  roofwatch analyze trace.json --top 0 --format json > kernels.json
  roofwatch analyze trace.json --by op
  roofwatch analyze cpu.json --here --threads 4
  roofwatch analyze replay.json --graph-capture capture.json
  roofwatch analyze node1_4711_20250109_ascend_pt
\b
Reads Kineto traces (torch.profiler's export), plain or gzip; and of Ascend
profilers the whole output folder, a database (ascend_pytorch_profiler_0.db,
msprof_*.db), kernel_details.csv, op_summary_*.csv or trace_view.json. What a
file is, its content says, not its name. A damaged file gives what can be read
of it, a sentence on stderr, and exit code 4; exit code 1 means that nothing
could be read.
\b
A trace does not say on which CPU it was recorded. If it was this one, measure
it once ('roofwatch devices calibrate') and add --here for verdicts.
\b
Kernels that a CUDA or HIP graph launched have no ops of their own. A profile
that ran while the graph was captured has them: --graph-capture lays the
replayed kernels along it. What stays without is "graph N, unattributed".
\b
--by merges kernels as 'roofwatch top --by' does, but never device models.
"""
BY = ("kernel", "op", "kind", "module", "device")


@click.command("analyze", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--by", type=click.Choice(BY), help="What a row is, instead of a signature.")
@options.recorded_here
@options.graph_captures
@options.limit(20)
@options.output
def command(
    file: Path,
    by: str | None,
    here: bool,
    threads: int | None,
    captures: tuple[Path, ...],
    limit: int,
    form: str,
) -> int:
    """Show what the time of one trace file, or folder, went to.

    The same answer as top gives from a store, with the device, where it waited and why.
    """
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for numpy and more
    from roofwatch.cli.files import Origin, captured, hints, recorded_on, unjudged, window_of  # noqa: PLC0415
    from roofwatch.cli.render import grouped, kernels  # noqa: PLC0415
    from roofwatch.model import answer, answer_rows, grouping, grouping_file  # noqa: PLC0415

    cpu = recorded_on(here, threads)
    window, problem = window_of(file, Origin(cpu=cpu, graphs=captured(captures)))
    coverage = answer.CoverageSum()
    coverage.add(window)
    result = answer.answer(
        {
            "name": "analyze",
            "file": str(file),
            "here": here,
            "threads": cpu.units,
            "graph_captures": [str(path) for path in captures],
            "limit": limit,
            **({"by": by} if by else {}),
        },
        coverage,
        grouping_file.rows(window, by, limit) if by else answer_rows.rows(answer_rows.sums_of(window), limit),
        device=answer.device_json(window.devices[0].device) if window.devices else None,
        timeline=answer.timeline(window.devices),
        graphs=answer.graphs_json(window),
        cost=None,
    )
    title = showing.file_title(file, window)
    names = (str(file), [str(path) for path in captures]), ("FILE", ["CAPTURE"] * len(captures))
    then, shorter = (_diagnose(one, threads if here else None, others, here=here) for one, others in names)
    code = showing.show(
        result,
        form,
        grouping.GROUP_KEYS if by else answer_rows.ROW_KEYS,
        lambda it, room: (grouped if by else kernels).report(it, title, room, then, shorter),
        empty=_nothing(file),
    )
    if unknown := unjudged(file, window, cpu):
        errors.say(unknown)
    for hint in hints(file, window, captures):
        errors.say(hint)
    if problem:
        errors.say(problem)
        return errors.INCOMPLETE
    return code


def _diagnose(file: str, threads: int | None, captures: Sequence[str], *, here: bool) -> str:
    """The command that diagnoses the same file."""
    words = ["roofwatch", "diagnose", file, *(["--here"] if here else [])]
    words += ["--threads", str(threads)] if threads else []
    return shlex.join([*words, *(word for path in captures for word in ("--graph-capture", path))])


def _nothing(file: Path) -> str:
    return f"{file} holds no kernel and no op: was the profiler stopped before it recorded anything?"
