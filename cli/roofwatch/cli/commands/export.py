"""``roofwatch export``: kernel records as other programs read them; a window or a file as another tool takes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch export --since 1d --format parquet -o kernels.parquet
  roofwatch export --node gpu-07 --format csv -o - | head
  roofwatch export 5f0c1d --format insight -o for-insight
  roofwatch export worker_0_ascend_pt --format insight -o for-insight
  roofwatch export kernel_details.csv --format insight -o for-insight
\b
parquet, csv, json  the kernel records of windows: a row a window, device,
         signature and evidence, with what is known of each; json is one
         object a line. Windows come in order, page by page. Of windows whose
         kernels are kept no longer (48 h, roofwatch store serve --help)
         there are sums: roofwatch top --every 1h --format csv
insight  a folder for MindStudio Insight (Import Data). Of a file or folder of
         an Ascend profiler: its own files, copied under the names by which
         Insight knows them. Of a window in the store: each kernel's calls,
         as many and as long as they were, laid end to end, because a store
         keeps sums and not the time of each call; its collectives stand
         where they were.
A window is named by the first digits of its uid, as 'roofwatch windows
--format json' tells it.
"""
FORMATS = ("parquet", "csv", "json", "insight")
_UID = re.compile(r"[0-9a-f]{4,32}", re.IGNORECASE)
_FILTERS = frozenset({"since", "until", "node", "process", "model", "device", "vendor", "job", "labels"})


@click.command("export", epilog=EPILOG)
@click.argument("source", metavar="[WINDOW|FILE]", required=False)
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True, metavar="PATH",
              help="A file, or - for stdout; of insight a new or an empty folder.")  # fmt: skip
@options.source
@options.filters(since="1h")
def command(source: str | None, form: str, out: Path, store: str | None, db: str | None, **given: Any) -> int:
    """Write kernel records as Parquet, CSV or JSON lines, or what MindStudio Insight takes.

    Records are of the windows that the filters choose. Of a WINDOW, or a
    profiler's FILE or folder, --format insight makes a folder.
    """
    try:
        return _insight(source, out, store, db) if form == "insight" else _records(source, form, out, store, db, given)
    except KeyboardInterrupt:
        if out != Path("-"):  # what was printed is printed
            errors.say(f"interrupted: {out} is not written.")
        return errors.INTERRUPTED


def _records(source: str | None, form: str, out: Path, store: str | None, db: str | None, given: dict[str, Any]) -> int:
    if source is not None:
        raise click.UsageError(
            f"--format {form} is of the windows that --since, --node, --process … choose: no {source}."
        )
    from roofwatch.cli import records  # noqa: PLC0415  # --help must not pay for these
    from roofwatch.cli.asking import filter_of, nothing  # noqa: PLC0415
    from roofwatch.cli.render import text  # noqa: PLC0415

    asked = filter_of(given)
    done = records.export(asked, form, out, store=store, db=db)
    if done.without_kernels:
        errors.say(
            f"{text.plural(done.without_kernels, 'window')} left out: their kernels are kept no longer, sums of them "
            "are ('roofwatch top --every 1h --format csv')."
        )
    if not done.records:
        errors.say(
            "no kernels to write." if done.windows or done.without_kernels else nothing(asked, store=store, db=db)
        )
        return errors.INCOMPLETE
    if done.size is not None:
        told = f"{text.plural(done.records, 'record')} of {text.plural(done.windows, 'window')}"
        errors.say(f"{out} written: {told}, {text.size(done.size)}.")
    return errors.DONE


def _insight(source: str | None, out: Path, store: str | None, db: str | None) -> int:
    from roofwatch.cli import insight_files  # noqa: PLC0415  # --help must not pay for numpy

    if source is None:
        raise click.UsageError("--format insight is of one WINDOW or FILE: name it.")
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        if parameter.name in _FILTERS and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} chooses windows, and --format insight is of {source} alone.")
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
