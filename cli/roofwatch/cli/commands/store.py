"""``roofwatch store``: the server that keeps the records."""

from __future__ import annotations

from pathlib import Path

import click

from roofwatch.cli.guessing import Guessing
from roofwatch.store.config import DEFAULT_ADDRESS, ServeConfig, default_url

GROUP_EPILOG = """\b
Examples:
  roofwatch store serve
  roofwatch store serve --help
"""
SERVE_EPILOG = """\b
Examples:
  roofwatch store serve
  roofwatch store serve --listen 0.0.0.0:7431 --insecure \\
      --db sqlite:////var/lib/roofwatch/store.db
\b
Runs until SIGTERM or SIGINT. What it acknowledged is on disk.
"""


@click.group("store", cls=Guessing, epilog=GROUP_EPILOG)
def command() -> None:
    """The server that keeps the records and answers the reading commands."""


@command.command("serve", epilog=SERVE_EPILOG)
@click.option(
    "--listen", default=DEFAULT_ADDRESS, show_default=True, metavar="HOST:PORT", help="Where to listen; port 0 is any."
)
@click.option(
    "--db",
    envvar="ROOFWATCH_DB",
    show_envvar=True,
    metavar="URL",
    help=f"The database; it is made or upgraded.  [default: {default_url().replace(str(Path.home()), '~')}]",
)
@click.option("--insecure", is_flag=True, help="Allow plain text beyond loopback.")
@click.option(
    "--port-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the port here once it listens."
)
def serve(listen: str, db: str | None, insecure: bool, port_file: Path | None) -> None:
    """Keep records that agents send, and answer the reading commands."""
    from roofwatch.cli import folders  # noqa: PLC0415
    from roofwatch.store import server  # noqa: PLC0415  # SQLAlchemy and grpc take 0.4 s

    folders.check_database(db)
    server.serve(ServeConfig(listen=listen, database=db, insecure=insecure, port_file=port_file))
