"""``roofwatch store``: the server that keeps the records."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from roofwatch.cli import declared, trusting
from roofwatch.cli.guessing import Guessing
from roofwatch.store.config import PROGRAM, Keep, default_url, seconds, serve_config, settled

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

GROUP_EPILOG = """\b
Examples:
  roofwatch store serve
  roofwatch store serve --help
  roofwatch store migrate
  roofwatch store prune --keep-raw 12h
  roofwatch store replay --synthetic --nodes 1000
"""
SERVE_EPILOG = """\b
Examples:
  roofwatch store serve
  roofwatch store serve --db sqlite:////var/lib/roofwatch/store.db
  roofwatch store serve --listen 0.0.0.0:7431 --tls-cert store.pem \\
      --tls-key store.key --tls-client-ca ca.pem
  roofwatch store serve --metrics 127.0.0.1:9431
\b
Runs until SIGTERM or SIGINT. What it acknowledged is on disk. SIGHUP makes it
read its settings again; 'roofwatch config show store' tells them.
"""
MIGRATE_EPILOG = """\b
Examples:
  roofwatch store migrate
  roofwatch store migrate --db postgresql+psycopg://roofwatch@db/roofwatch
\b
'serve' does the same at its start; on its own it shows how long a large
database takes. All or nothing; run again it does nothing. Stop stores of the
version before: they do not serve what a newer one has changed.
"""
REPLAY_EPILOG = """\b
Examples:
  roofwatch store replay --synthetic --nodes 125 --minutes 0.5
  roofwatch store replay traces/ --nodes 1000 --rate 10x
  roofwatch store replay --synthetic --nodes 8 --store 127.0.0.1:7431
\b
Without --store or --db a store of its own is started on a database that is
gone afterwards. With --store the windows stay there, under the label that the
output names. Every node has eight devices, each with a window a minute times
--rate. 'ack' is from a segment's sealing to its acknowledgement, 'visible'
from a window's end until 'top' counts it, by polling once a second.
Exit code 1: a window is lost, double or rejected.
"""
BENCH_EPILOG = """\b
Examples:
  roofwatch store bench
  roofwatch store bench --rounds 1 --format json
\b
Starts a store of its own on a file that is gone afterwards, and sends it the
windows of four nodes; in turns with it SQLite alone writes the same rows with
the same durability. The best of the rounds counts, so that other work on the
machine hurts little. The share is what to compare between machines.
"""
PRUNE_EPILOG = """\b
Examples:
  roofwatch store prune
  roofwatch store prune --keep-raw 12h --keep-hourly 7d
\b
A running store does the same by itself. What is removed makes room in the
file for what comes; the file does not shrink. Windows imported from files
stay. On ClickHouse only the running store prunes, every half minute.
"""


class Length(click.ParamType[int]):
    """A length of time on the command line, in whole seconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The text as seconds."""
        if isinstance(value, int):
            return value
        try:
            return seconds(value)
        except ValueError:
            self.fail(f"{value!r} is no length of time like 48h, 30d or 2w.", param, ctx)


def keeping(function: Decorated) -> Decorated:
    """The options that say how long what is kept."""
    for name, default, what in (
        ("daily", "400d", "the sums of days"),
        ("hourly", "30d", "windows without their kernels, and the sums of hours"),
        ("raw", "48h", "the kernels of every window"),
    ):
        option = click.option(
            f"--keep-{name}", type=Length(), default=default, show_default=True, help=f"How long to keep {what}."
        )
        function = option(function)
    return function


class Rate(click.ParamType[float]):
    """How much faster than usual: 10x."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The factor."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,4}(\.\d{1,3})?)x?", value.strip())
        if found is None or not 0.01 <= float(found[1]) <= 1000:
            self.fail(f"{value!r} is no rate like 1x or 10x.", param, ctx)
        return float(found[1])


@click.group("store", cls=Guessing, epilog=GROUP_EPILOG)
def command() -> None:
    """The server that keeps the records and answers the reading commands."""


@command.command("serve", epilog=SERVE_EPILOG)
@declared.options(PROGRAM)
def serve(**given: Any) -> None:
    """Keep records that agents send, and answer the reading commands."""
    from roofwatch.cli import folders  # noqa: PLC0415

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else it writes a line for every scanner of ports
    from roofwatch.store import server  # noqa: PLC0415  # SQLAlchemy and grpc take 0.4 s

    settings = settled(given)[0]
    config = serve_config(settings)
    folders.check_database(config.database)
    server.serve(config, settings, lambda: settled(given)[0])


@command.command("migrate", epilog=MIGRATE_EPILOG)
@click.option(
    "--db",
    envvar="ROOFWATCH_DB",
    show_envvar=True,
    metavar="URL",
    help=f"The database; it is made or upgraded.  [default: {default_url().replace(str(Path.home()), '~')}]",
)
def migrate(db: str | None) -> None:
    """Make or upgrade the tables of a database, without serving it."""
    from roofwatch.cli import folders  # noqa: PLC0415
    from roofwatch.store import database  # noqa: PLC0415  # SQLAlchemy takes 0.2 s

    folders.check_database(db)
    opened = database.open(db)
    opened.close()
    click.echo(f"{opened.url} has {opened.revised}")


@command.command("prune", epilog=PRUNE_EPILOG)
@click.option(
    "--db",
    envvar="ROOFWATCH_DB",
    show_envvar=True,
    metavar="URL",
    help=f"The database.  [default: {default_url().replace(str(Path.home()), '~')}]",
)
@keeping
def prune(db: str | None, keep_raw: int, keep_hourly: int, keep_daily: int) -> None:
    """Remove what is older than it is to be kept, after summing it up."""
    from roofwatch.store import database, retention  # noqa: PLC0415  # SQLAlchemy takes 0.2 s

    keep = Keep(keep_raw, keep_hourly, keep_daily)
    opened = database.open(db, migrate=False)
    try:
        with database.telling(opened.url):
            found = retention.prune_all(opened, time.time_ns(), keep, _progress)
        opened.truncate_log()
    finally:
        _progress("")
        opened.close()
    click.echo(
        f"removed the kernels of {found.hours_of_kernels:,} process hours, the windows of {found.days_of_hours:,} "
        f"process days, and the sums of {found.days:,}"
        + (f"; dropped {found.partitions:,} partitions of days" if found.partitions else "")
    )


def _progress(text: str) -> None:
    """On a terminal how far it is, in one line."""
    if sys.stderr.isatty():
        click.echo(f"\r{text}\x1b[K", err=True, nl=False)


@command.command("replay", epilog=REPLAY_EPILOG)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--synthetic", is_flag=True, help="Windows of 300 drawn kernels instead of those of traces.")
@click.option("--nodes", type=click.IntRange(1, 20_000), default=125, show_default=True, help="Simulated agents.")
@click.option("--rate", type=Rate(), default="1x", show_default=True, help="1x is a window a device and minute.")
@trusting.options(hidden=True)
@click.option("--minutes", type=click.FloatRange(0.05, 1440), default=1.0, show_default=True, help="How long to send.")
@click.option("--seed", type=int, default=1, show_default=True, help="What varies the windows.")
@click.option("--store", metavar="HOST:PORT", help="A store that runs already.")
@click.option("--db", metavar="URL", help="A database for the store that is started; its windows stay.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def replay(  # noqa: PLR0913, PLR0917 - a parameter for each option
    folder: Path | None,
    synthetic: bool,
    nodes: int,
    rate: float,
    minutes: float,
    seed: int,
    store: str | None,
    db: str | None,
    form: str,
) -> int:
    """Send what a fleet would: simulated agents with the windows of a FOLDER of traces."""
    from roofwatch.cli.fleet import source, trial  # noqa: PLC0415  # numpy, grpc and readers take half a second
    from roofwatch.cli.render import fleet as render  # noqa: PLC0415

    if folder is None and not synthetic:
        raise click.UsageError("give a FOLDER of traces, or --synthetic.")
    if folder is not None and synthetic:
        raise click.UsageError("a FOLDER of traces and --synthetic exclude each other: give one of the two.")
    if store and db:
        raise click.UsageError("--db is for the store that is started; a running one has its own.")
    windows = source.of_folder(folder, sys.stderr.write) if folder else source.drawn(seed)
    result = trial.replayed(windows, trial.plan(nodes, rate, minutes * 60, seed), store, db)
    click.echo(render.replayed_json(result) if form == "json" else "\n".join(render.replayed(result)))
    return 1 if result.wrong else 0


@command.command("bench", epilog=BENCH_EPILOG)
@click.option("--rounds", type=click.IntRange(1, 20), default=3, show_default=True, help="How often; the best counts.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def bench(rounds: int, form: str) -> None:
    """Measure ingest and answers on this machine against what it does alone."""
    import tempfile  # noqa: PLC0415

    from roofwatch.cli.fleet import bench as measure  # noqa: PLC0415  # numpy and grpc take 0.4 s
    from roofwatch.cli.render import fleet as render  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="roofwatch-bench-") as name:
        found = measure.run(measure.fleet_of(), Path(name), rounds)
    click.echo(render.benched_json(found) if form == "json" else "\n".join(render.benched(found)))
