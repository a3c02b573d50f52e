"""``roofwatch certs``: a private CA for agents and stores, and tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from roofwatch.cli.guessing import Guessing

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
ROLES = ("ingest", "read", "operate", "admin")
EPILOG = """\b
Examples:
  roofwatch certs ca
  roofwatch certs server store.example 10.0.0.5
  roofwatch certs client gpu-07 --role ingest --node gpu-07
  roofwatch certs token grafana --role read
\b
How to use them: docs/security.md
"""
CA_EPILOG = """\b
Examples:
  roofwatch certs ca
  roofwatch certs ca --folder /root/roofwatch-ca --name "cluster a"
\b
Keep ca.key where nobody else comes; the store and the agents get ca.pem only.
"""
SERVER_EPILOG = """\b
Examples:
  roofwatch certs server store.example 10.0.0.5
  roofwatch certs server store.example --name store --renew
  roofwatch store serve --listen 0.0.0.0:7431 --tls-cert store.pem \\
      --tls-key store.key --tls-client-ca ca.pem
"""
CLIENT_EPILOG = """\b
Examples:
  roofwatch certs client gpu-07 --role ingest --node gpu-07
  roofwatch certs client alice --role read --days 30
  roofwatch agent --store store.example:7431 --tls-ca ca.pem \\
      --tls-cert gpu-07.pem --tls-key gpu-07.key
"""
MAKE_EPILOG = """\b
Examples:
  roofwatch certs token grafana --role read
  roofwatch certs token gpu-07 --role ingest --node gpu-07 --days 90
  roofwatch --token-file roofwatch-certs/grafana.token top
\b
The access file is the store's --access-file and holds a hash of the token.
Delete the token's line there and it is refused within seconds.
"""
SHOW_EPILOG = """\b
Examples:
  roofwatch certs show roofwatch-certs
  roofwatch certs show roofwatch-certs/*.pem
  roofwatch certs show store.pem --format json
\b
Exit code 1 where one has expired.
"""


@click.group("certs", cls=Guessing, epilog=EPILOG)
def command() -> None:
    """A private CA: certificates and tokens for agents, stores and people."""


def _common(days: int) -> Callable[[Decorated], Decorated]:
    def decorate(function: Decorated) -> Decorated:
        function = click.option(
            "--days", type=click.IntRange(1, 36_500), default=days, show_default=True, help="How long it is good."
        )(function)
        return click.option(
            "--folder",
            type=click.Path(file_okay=False, path_type=Path),
            default="roofwatch-certs",
            show_default=True,
            help="Where the CA lies, and what it issues.",
        )(function)

    return decorate


_renew = click.option("--renew", is_flag=True, help="Replace the files that are there: a new key.")
_role = click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, required=True, help="What it may do.")
_node = click.option(
    "--node", "nodes", multiple=True, metavar="HOST", help="Records of this node only; may be repeated."
)


def _check(roles: tuple[str, ...], nodes: tuple[str, ...]) -> None:
    if nodes and set(roles) != {"ingest"}:
        raise click.UsageError("--node restricts whose records are written: it goes with --role ingest alone.")


@command.command("ca", epilog=CA_EPILOG)
@_common(3650)
@click.option("--name", default="roofwatch", show_default=True, help="What it is called.")
def ca(folder: Path, days: int, name: str) -> None:
    """Make a CA: ca.pem for everybody, ca.key for nobody else."""
    from roofwatch.cli import authority  # noqa: PLC0415  # cryptography takes 0.1 s

    made = authority.make_ca(folder, name, days)
    click.echo(f"{made.cert} (for all), {made.key} (keep it here), good until {made.expires:%Y-%m-%d}")


@command.command("server", epilog=SERVER_EPILOG)
@click.argument("hosts", nargs=-1, required=True, metavar="HOST…")
@click.option("--name", help="Of the files.  [default: the first HOST]")
@_common(365)
@_renew
def server(hosts: tuple[str, ...], name: str | None, folder: Path, days: int, renew: bool) -> None:
    """Issue a store's certificate for the names and addresses that it is asked by."""
    from roofwatch.cli import authority  # noqa: PLC0415  # cryptography takes 0.1 s

    wanted = authority.Wanted(name or hosts[0].replace(":", "-"), hosts=hosts, server=True, client=False)
    _tell(authority.issue(folder, wanted, days, replace=renew))


@command.command("client", epilog=CLIENT_EPILOG)
@click.argument("name")
@_role
@_node
@_common(365)
@_renew
def client(name: str, roles: tuple[str, ...], nodes: tuple[str, ...], folder: Path, days: int, renew: bool) -> None:
    """Issue the certificate of an agent or a person, with what it may do."""
    from roofwatch.cli import authority  # noqa: PLC0415  # cryptography takes 0.1 s

    _check(roles, nodes)
    # An agent's /metrics beyond loopback is served with it, under the names of its nodes.
    wanted = authority.Wanted(name, hosts=nodes, roles=roles, nodes=nodes, server=bool(nodes))
    _tell(authority.issue(folder, wanted, days, replace=renew))


def _tell(made: Any) -> None:
    click.echo(f"{made.cert}, {made.key}, good until {made.expires:%Y-%m-%d}")


@command.command("token", epilog=MAKE_EPILOG)
@click.argument("name")
@_role
@_node
@_common(365)
@click.option(
    "--access-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the store reads who may do what.  [default: access in the folder]",
)
@_renew
def token(
    name: str,
    roles: tuple[str, ...],
    nodes: tuple[str, ...],
    folder: Path,
    days: int,
    access_file: Path | None,
    renew: bool,
) -> None:
    """Make a token: NAME.token for who uses it, a line with its hash for the store."""
    from roofwatch.cli import tokens  # noqa: PLC0415  # --help must not pay for it

    _check(roles, nodes)
    made = tokens.make(folder, access_file or folder / "access", tokens.Wanted(name, roles, nodes, days), replace=renew)
    click.echo(f"{made.token}, its hash in {made.access}, good until {made.expires:%Y-%m-%d}")


@command.command("show", epilog=SHOW_EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE|FOLDER…")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def show(files: tuple[Path, ...], form: str) -> int:
    """Say what stands in certificates: names, roles, nodes, and how long they are good.

    Of a folder, and of keys, tokens and access files beside them, what each file is.
    """
    from roofwatch.cli import certs_shown  # noqa: PLC0415  # cryptography takes 0.1 s
    from roofwatch.cli.render import certs as render  # noqa: PLC0415

    now, found = time.time(), list(certs_shown.shown(files))
    pairs = [(each.file, one) for each in found for one in each.certificates]
    rows = [render.row(file, one, now) for file, one in pairs]
    others = [{"file": str(each.file), "what": each.other} for each in found if each.other]
    answer = {"schema_version": 1, "query": {"name": "certs"}, "rows": rows, "others": others}
    click.echo(json.dumps(answer) if form == "json" else "\n".join(render.lines(rows, others)))
    return 1 if any(one.expired(now) for _, one in pairs) else 0
