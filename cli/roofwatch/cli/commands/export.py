"""``roofwatch export``: a window or a file as another tool takes it."""

from __future__ import annotations

import re
from pathlib import Path

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch export 5f0c1d --format insight -o for-insight
  roofwatch export worker_0_ascend_pt --format insight -o for-insight
  roofwatch export kernel_details.csv --format insight -o for-insight
\b
insight  a folder for MindStudio Insight (Import Data). Of a file or folder of
         an Ascend profiler: its own files, copied under the names by which
         Insight knows them. Of a window in the store: each kernel's calls,
         as many and as long as they were, laid end to end, because a store
         keeps sums and not the time of each call; its collectives stand
         where they were.
A window is named by the first digits of its uid, as 'roofwatch windows
--format json' tells it.
"""
FORMATS = ("insight",)
_UID = re.compile(r"[0-9a-f]{4,32}", re.IGNORECASE)


@click.command("export", epilog=EPILOG)
@click.argument("source", metavar="WINDOW|FILE")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="A new or an empty folder.")  # fmt: skip
@options.source
def command(source: str, form: str, out: Path, store: str | None, db: str | None) -> int:
    """Write a window, or a profiler's file or folder, for another tool."""
    from roofwatch.cli import insight_files  # noqa: PLC0415  # --help must not pay for numpy

    del form  # one so far
    path = Path(source)
    if path.exists() or not _UID.fullmatch(source):
        done = insight_files.of_capture(path, out)
    else:
        from roofwatch.cli.insight_window import of_stored  # noqa: PLC0415

        done = of_stored(source.lower(), out, store=store, db=db)
    click.echo(f"{done.folder}: open it in MindStudio Insight (Import Data)")
    for name in done.files:
        click.echo(f"  {name}")
    for note in done.notes:
        errors.say(note)
    return errors.DONE
