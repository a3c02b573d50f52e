"""``roofwatch agent``: the daemon of a node. Its settings are declared once, in ``roofwatch.agent.config``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from roofwatch.agent.config import PROGRAM, default_state, resolve
from roofwatch.cli import declared, trusting
from roofwatch.hook.protocol import socket_path

EPILOG = """\b
Examples:
  roofwatch agent
  roofwatch agent --store store.example:7431 --insecure --interval 600
  ROOFWATCH_STORE=127.0.0.1:7431 roofwatch agent --labels cluster=a,rack=12
"""


def _usual_socket() -> str:
    return socket_path({name: value for name, value in os.environ.items() if name != "ROOFWATCH_SOCKET"})


@click.command("agent", epilog=EPILOG)
@declared.options(PROGRAM)
@click.option("--user", is_flag=True, help="Let only this user's processes register (the default).")
def command(user: bool, **given: Any) -> int:
    """Take short profiler windows from the processes of this node and send them to a store.

    Runs until it is interrupted; SIGHUP makes it read its settings again. One agent a socket.
    """
    from roofwatch.agent.daemon import run  # noqa: PLC0415  # settings only, until it starts
    from roofwatch.cli import folders  # noqa: PLC0415

    if user:
        if given["system"]:
            raise click.UsageError("--user and --system exclude each other.")
        given["system"] = "0"
    for name, value in trusting.typed_before().items():  # roofwatch --tls-ca FILE agent
        given[name] = given[name] or value
    config = resolve(given)
    folders.check(Path(config.socket).parent, "--socket", Path(_usual_socket()).parent)
    folders.check(Path(config.state), "--state", Path(default_state()))
    return run(config, again=lambda: resolve(given))
