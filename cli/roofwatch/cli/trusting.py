"""Whom a command trusts: options of ``roofwatch`` itself, which every command that asks a store takes as well."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from roofwatch.proto.trust import VARIABLES, Trust

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
_KEY = "roofwatch.trust"  # in click's meta, which a command shares with the group
_OPTIONS = (
    ("ca", "--tls-ca", "The store speaks TLS; its certificate is of this CA."),
    ("cert", "--tls-cert", "A client's certificate, where the store wants one."),
    ("key", "--tls-key", "Its key."),
    ("token_file", "--token-file", "A token, where the store wants one."),
)
_INSECURE = "Allow plain text to a store on another machine."


def options(*, hidden: bool) -> Callable[[Decorated], Decorated]:
    """The options; hidden on commands, since the group shows and describes them, and reads the environment."""

    def decorate(function: Decorated) -> Decorated:
        flag = click.option(
            "--insecure", "trust_insecure", is_flag=True, hidden=hidden, expose_value=False, callback=_kept,
            envvar=None if hidden else VARIABLES["insecure"], show_envvar=not hidden, help=_INSECURE,
        )  # fmt: skip
        function = flag(function)
        for name, option, text in reversed(_OPTIONS):
            declared = click.option(
                option, f"trust_{name}", type=click.Path(), metavar="FILE", hidden=hidden, expose_value=False,
                callback=_kept, envvar=None if hidden else VARIABLES[name], show_envvar=not hidden, help=text,
            )  # fmt: skip
            function = declared(function)
        return function

    return decorate


def _kept(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        ctx.meta.setdefault(_KEY, {})[str(parameter.name).removeprefix("trust_")] = value


def typed() -> dict[str, Any]:
    """The fields of ``Trust`` that the command line or the environment gave."""
    ctx = click.get_current_context(silent=True)
    return {} if ctx is None else dict(ctx.meta.get(_KEY, {}))


def given() -> Trust:
    """What the command line says, and the environment of a program that has none."""
    return Trust.of_environment() if click.get_current_context(silent=True) is None else Trust(**typed())


def typed_before() -> dict[str, str]:
    """The same by the names of the agent's settings; only what was typed, for it reads the environment itself."""
    ctx = click.get_current_context().find_root()
    names = {"ca": "tls_ca", "cert": "tls_cert", "key": "tls_key", "token_file": "token_file", "insecure": "insecure"}
    return {
        names[name]: "1" if value is True else value
        for name, value in typed().items()
        if ctx.get_parameter_source(f"trust_{name}") is ParameterSource.COMMANDLINE
    }


def forget() -> None:
    """For what starts a store of its own on loopback: neither it nor what it starts trusts as the user told."""
    click.get_current_context().meta.pop(_KEY, None)
    for variable in VARIABLES.values():
        os.environ.pop(variable, None)
