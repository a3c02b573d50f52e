"""``roofwatch import``: put a trace file into the store."""

from __future__ import annotations

from pathlib import Path

import click

from roofwatch.cli import errors, options

EPILOG = """\b
Examples:
  roofwatch import trace.json.gz
  roofwatch import rank*.json.gz --node lab-3 --model llama-7b --label run=42
  roofwatch import old.json.gz --db sqlite:///traces.db
  roofwatch import cpu.json --here --threads 4
  roofwatch import replay*.json --graph-capture capture.json
  roofwatch import *_ascend_pt
\b
A window keeps the time at which it was taken: ask for it with --since all.
A file that is imported twice counts once, as it was the first time.
"""


@click.command("import", epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.source
@click.option("--node", default="imported", show_default=True, metavar="HOST", help="The node it was taken on.")
@click.option("--model", metavar="NAME", help="What the job trained or served.")
@options.label
@options.recorded_here
@options.graph_captures
def command(  # noqa: PLR0913, PLR0917 - a parameter for each option
    files: tuple[Path, ...],
    store: str | None,
    db: str | None,
    node: str,
    model: str | None,
    labels: tuple[tuple[str, str], ...],
    here: bool,
    threads: int | None,
    captures: tuple[Path, ...],
) -> int:
    """Put trace files, or folders of an Ascend profiler, into the store: a window each."""
    from roofwatch.cli import sending  # noqa: PLC0415  # --help must not pay for numpy, grpc and SQLAlchemy
    from roofwatch.cli.files import Origin, captured, label_of, recorded_on, unjudged, window_of  # noqa: PLC0415
    from roofwatch.cli.render.text import plural  # noqa: PLC0415
    from roofwatch.model.errors import RoofwatchError  # noqa: PLC0415

    origin = Origin(node, model, dict(labels), recorded_on(here, threads), captured(captures))
    code = errors.DONE
    with sending.target(store=store, db=db, node=node) as send:
        for file in files:
            try:
                window, problem = window_of(file, origin)
            except RoofwatchError as error:  # one bad file does not keep out the others
                errors.say(str(error))
                code = errors.FAILED
                continue
            new = not _known(window.uid, label_of(file), store, db) and send(window)
            click.echo(f"{file}: {plural(window.ledger.device_records, 'record')}{'' if new else ', known already'}")
            if unknown := unjudged(file, window, origin.cpu):
                errors.say(unknown)
            if problem:
                errors.say(problem)
                code = code or errors.INCOMPLETE
    return code


def _known(uid: str, name: str, store: str | None, db: str | None) -> bool:
    """Whether the file's window is there, also with another model or judged otherwise: the first one stays."""
    from roofwatch.cli.asking import ask  # noqa: PLC0415
    from roofwatch.store.filter import Filter  # noqa: PLC0415

    rows = ask("windows", Filter(labels={"file": name}), 0, store=store, db=db)["rows"]
    return any(row["uid"] == uid for row in rows)
