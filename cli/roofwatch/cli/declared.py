"""Options of a program whose settings are declared once: each takes a text, which the program itself reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from roofwatch.proto.settings import VARIABLE, Program, option

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def options(program: Program) -> Callable[[Decorated], Decorated]:
    """One option a setting, and --config."""

    def decorate(function: Decorated) -> Decorated:
        text = f"Settings in TOML, below variables and flags.  [env var: {VARIABLE}]"
        function = click.option("--config", metavar="FILE", help=text)(function)
        for declared in reversed(fields(program.declared)):
            function = _option(program, declared)(function)
        return function

    return decorate


def _option(program: Program, declared: Any) -> Callable[[Decorated], Decorated]:
    told = declared.metadata["help"]
    text = f"{told[0].upper()}{told[1:]}.  [env var: {program.variable(declared.name)}"
    if declared.type in {bool, "bool"}:
        return click.option(option(declared.name), declared.name, flag_value="1", default=None, help=f"{text}]")
    numeric = isinstance(declared.default, int | float) and declared.metadata["metavar"] != "TIME"
    text += f"; default: {declared.default:g}]" if numeric else "]"
    return click.option(option(declared.name), declared.name, metavar=declared.metadata["metavar"], help=text)
