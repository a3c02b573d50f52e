"""``roofwatch agent``: the daemon of a node. Its settings are declared once, in ``roofwatch.agent.config``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from roofwatch.agent.config import Config, resolve, variable_of

EPILOG = """\b
Examples:
  roofwatch agent
  roofwatch agent --store store.example:7700 --insecure --interval 600
  ROOFWATCH_STORE=127.0.0.1:7700 roofwatch agent --labels cluster=a,rack=12
"""


def _settings(function: Callable[..., int]) -> Callable[..., int]:
    """One option a field of the agent's Config; the agent itself parses and checks the values."""
    for declared in reversed(fields(Config)):
        flag = "--" + declared.name.replace("_", "-")
        text = f"{declared.metadata['help']}.  [env var: {variable_of(declared.name)}"
        if declared.type in {bool, "bool"}:
            option = click.option(flag, declared.name, flag_value="1", default=None, help=f"{text}]")
        else:
            known = declared.default if isinstance(declared.default, int | float) else None
            text += f"; default: {known:g}]" if known is not None else "]"
            option = click.option(flag, declared.name, metavar=declared.metadata["metavar"], help=text)
        function = option(function)
    return function


@click.command("agent", epilog=EPILOG)
@_settings
@click.option("--user", is_flag=True, help="Let only this user's processes register (the default).")
def command(user: bool, **given: Any) -> int:
    """Take short profiler windows from the processes of this node and send them to a store.

    Runs until it is interrupted. One agent a socket.
    """
    from roofwatch.agent.daemon import run  # noqa: PLC0415  # settings only, until it starts

    if user:
        if given["system"]:
            raise click.UsageError("--user and --system exclude each other.")
        given["system"] = "0"
    return run(resolve(given))
