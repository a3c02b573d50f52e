"""``roofwatch config``: the settings of agent and store, and where each came from."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from roofwatch.cli import options
from roofwatch.cli.guessing import Guessing

SHOW_EPILOG = """\b
Examples:
  roofwatch config show
  roofwatch config show agent --origin
  roofwatch config show store --config /etc/roofwatch/config.toml
  roofwatch config show agent --origin -- --interval 30
\b
The file is TOML with a section for each program, and names as the flags have
them:
  [agent]
  interval = 30
  store = "store.example:7431"
  labels = { cluster = "a", rack = "7" }
  [store]
  keep-raw = "24h"
\b
A flag wins over its variable, the variable over the file, the file over the
default. It is the file of --config, else of ROOFWATCH_CONFIG, else
~/.config/roofwatch/config.toml, else /etc/roofwatch/config.toml. A name that
is no setting is an error. 'kill -HUP' makes a running agent or store read it
again.
"""
EPILOG = """\b
Examples:
  roofwatch config show --origin
  roofwatch config show --help
"""
_LENGTHS = frozenset({"keep-raw", "keep-hourly", "keep-daily"})  # seconds, typed with a unit
_UNITS, _LEAST = (("d", 86_400), ("h", 3600), ("m", 60)), 3  # 48h is what people say, and 30d
_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@/\s]+@")


class _Program(click.Choice[str]):
    """Agent or store; a flag in its place says what is missing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name."""
        if isinstance(value, str) and value.startswith("-"):
            raise click.UsageError(f"whose flag is {value}? Write: roofwatch config show agent -- {value} … (or store)")
        return super().convert(value, param, ctx)


@click.group("config", cls=Guessing, epilog=EPILOG)
def command() -> None:
    """The settings of agent and store, and where each came from."""


@command.command("show", epilog=SHOW_EPILOG)
@click.argument("program", type=_Program(["agent", "store"]), required=False)
@click.argument("flags", nargs=-1)
@click.option("--origin", is_flag=True, help="Say where each value came from: default, file, variable or flag.")
@click.option("--config", metavar="FILE", help="Settings in TOML.  [env var: ROOFWATCH_CONFIG]")
@options.output
def show(program: str | None, flags: Sequence[str], origin: bool, config: str | None, form: str) -> None:
    """Show what a PROGRAM would run with if it was started here, with FLAGS."""
    from roofwatch.cli import showing  # noqa: PLC0415  # --help must not pay for it
    from roofwatch.model.answer import SCHEMA_VERSION  # noqa: PLC0415

    wanted = [program] if program else ["agent", "store"]
    rows = [row for name in wanted for row in _rows(name, list(flags), config)]
    keys = ("program", "setting", "value", "origin") if origin else ("program", "setting", "value")
    answer = {
        "schema_version": SCHEMA_VERSION,
        "query": {"name": "config", "program": program, "flags": list(flags)},
        "rows": [{key: row[key] for key in keys} for row in rows],
    }
    showing.show(answer, form, keys, _table, empty="there are no settings.")


def _rows(name: str, flags: list[str], file: str | None) -> list[dict[str, Any]]:
    from roofwatch.cli import errors  # noqa: PLC0415
    from roofwatch.proto.settings import unknown  # noqa: PLC0415

    if name == "agent":
        from roofwatch.agent.config import PROGRAM, settled  # noqa: PLC0415
    else:
        from roofwatch.store.config import PROGRAM, settled  # type: ignore[assignment]  # noqa: PLC0415
    usual = _usual(name)
    given = _typed(PROGRAM, flags)
    given["config"] = given["config"] if file is None else file
    chosen, found = settled(given)
    for sentence in unknown(PROGRAM):
        errors.say(f"{sentence}.")
    return [
        {
            "program": name,
            "setting": setting.replace("_", "-"),
            "value": _shown(getattr(chosen, setting) or usual.get(setting, getattr(chosen, setting))),
            "origin": found.origins[setting],
        }
        for setting in PROGRAM.names()
    ]


def _usual(name: str) -> dict[str, str]:
    """What stands for an empty setting."""
    from roofwatch.store.config import default_url  # noqa: PLC0415

    return {"db": default_url()} if name == "store" else {}


def _typed(program: Any, flags: list[str]) -> dict[str, str | None]:
    from roofwatch.proto.settings import add_arguments  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        prog=f"roofwatch config show {program.section} --", add_help=False, allow_abbrev=False
    )
    add_arguments(parser, program)
    return vars(parser.parse_args(flags))


def _shown(value: Any) -> Any:
    """As it would be typed; what may be a password in a URL is not told."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={entry}" for key, entry in value.items())
    if isinstance(value, tuple):
        return ",".join(value)
    return _PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value


def _table(answer: Mapping[str, Any], _columns: int) -> str:
    """Setting, value, and where it came from."""
    from roofwatch.cli.render.text import clean  # noqa: PLC0415

    rows = answer["rows"]
    named = [(f"{row['program']}.{row['setting']}", clean(_written(row["setting"], row["value"]))) for row in rows]
    first = max(len(name) for name, _ in named)
    second = max((len(value) for _, value in named if len(value) <= 40), default=0)
    lines = [
        f"{name:<{first}}  {value:<{second}}  {clean(row.get('origin', ''))}".rstrip()
        for (name, value), row in zip(named, rows, strict=True)
    ]
    return "\n".join(lines) + "\n"


def _written(setting: str, value: Any) -> str:
    if setting in _LENGTHS:
        unit, size = next((each for each in _UNITS if not value % each[1] and value >= _LEAST * each[1]), ("s", 1))
        return f"{value // size}{unit}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value) or "–"
