"""Settings of a program: its default, a file below the environment below flags, and where each value came from.

A program declares its settings once, as fields of a dataclass made by ``setting``. Light: no gRPC in here.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from roofwatch.model.errors import UsageError

VARIABLE = "ROOFWATCH_CONFIG"
SYSTEM_FILE = Path("/etc/roofwatch/config.toml")
SECTIONS = ("agent", "store")
MOST_BYTES = 1 << 20
DEFAULT = "default"
# What Kubernetes tells every pod of a service that is called like a program of ours.
_OF_KUBERNETES = re.compile(r"^_(SERVICE_(HOST|PORT)|PORT$|PORT_\d+_)")
Given = Mapping[str, str | None]  # what was typed, None where nothing was


def setting(default: Any, parse: Callable[[str], Any], text: str, *, metavar: str = "N", env: str = "") -> Any:
    """A field: ``parse`` takes a text and raises ValueError with ``must …``; ``env`` is its variable, "" the usual."""
    metadata = {"parse": parse, "help": text, "metavar": metavar, "env": env}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def flag(text: str) -> bool:
    """A switch."""
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"", "0", "false", "no", "off"}:
        return False
    raise ValueError("must be 1 or 0")


def one_of(*names: str) -> Callable[[str], str]:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"must be {' or '.join(names)}")
        return text

    return parse


@dataclass(frozen=True, slots=True)
class Program:
    """Which settings a program has: a section of the file, the prefix of its variables, its dataclass."""

    section: str
    prefix: str
    declared: type

    def variable(self, name: str) -> str:
        """The environment variable of a setting."""
        found = next(f for f in fields(self.declared) if f.name == name)
        return found.metadata["env"] or self.prefix + name.upper()

    def names(self) -> list[str]:
        """All settings, in order."""
        return [f.name for f in fields(self.declared)]


@dataclass(frozen=True, slots=True)
class Settled:
    """Values that were given somewhere, where each came from, and the file that was read, if any."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]  # of every setting
    file: Path | None


def option(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def settle(program: Program, given: Given, environ: Mapping[str, str] = os.environ) -> Settled:
    """Find each setting: the flag wins over the variable, the variable over the file.

    Raises:
        UsageError: a value is not what its setting takes, or the file names a setting that there is not.
    """
    file = find(given.get("config"), environ)
    in_file = read(file, program) if file is not None else {}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for declared in fields(program.declared):
        name, variable = declared.name, program.variable(declared.name)
        typed, text = given.get(name), environ.get(variable)
        if typed is not None:
            origins[name], told = option(name), f"{option(name)} {typed!r}"
        elif text is not None:
            origins[name], typed, told = variable, text, f"{variable} {text!r}"
        elif name in in_file:
            typed, origins[name] = in_file[name], str(file)
            told = f"{file}: {program.section}.{name.replace('_', '-')} {typed!r}"
        else:
            origins[name] = DEFAULT
            continue
        values[name] = _parsed(declared.metadata["parse"], typed, told)
    return Settled(values, origins, file)


def _parsed(parse: Callable[[str], Any], text: str, told: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        reason = str(error) if str(error).startswith("must") else "must be a number"
        raise UsageError(f"{told}: {reason}") from None


def find(typed: str | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file of settings: the one that is named, else the user's, else the system's; a name of nothing is none."""
    named = typed if typed is not None else environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    base = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    usual = [Path(base) / "roofwatch" / "config.toml"] if base else []
    return next((path for path in (*usual, SYSTEM_FILE) if path.exists()), None)


def read(file: Path, program: Program) -> dict[str, str]:
    """What a file says of a program's settings, as texts.

    Raises:
        UsageError: it cannot be used, others may change it, or it names what there is not.
    """
    whole = _tables(file)
    for section in whole:
        if section not in SECTIONS:
            raise UsageError(f"{file}: there is no section [{section}]{_near(section, SECTIONS)}")
    table = whole.get(program.section, {})
    if not isinstance(table, dict):
        raise UsageError(f"{file}: '{program.section}' is a section: write [{program.section}] on a line of its own")
    found: dict[str, str] = {}
    names = [name.replace("_", "-") for name in program.names()]
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in program.names():
            raise UsageError(
                f"{file}: [{program.section}] has no setting '{key}'{_near(name.replace('_', '-'), names)}"
            )
        if name in found:
            raise UsageError(f"{file}: [{program.section}] has '{key}' twice, with - and with _")
        found[name] = _text(value, f"{file}: {program.section}.{key}")
    return found


def _near(word: str, among: Iterable[str]) -> str:
    near = get_close_matches(word, list(among), 1, 0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def _tables(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            status, data = os.fstat(opened.fileno()), opened.read(MOST_BYTES + 1)
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            raise UsageError(f"{file}: others can change it; close it with: chmod go-w {file}")
        if len(data) > MOST_BYTES:
            raise UsageError(f"{file}: larger than {MOST_BYTES >> 20} MiB")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {os.strerror(error.errno or 0)}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: is not TOML: {error}") from None


def _text(value: Any, where: str) -> str:
    """A value of TOML as it would be typed: a list and a table are joined by commas."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str | int | float):
        return str(value)
    parts = value if isinstance(value, list) else [f"{k}={v}" for k, v in value.items()] if _flat(value) else None
    if parts is None or not all(isinstance(part, str) and "," not in part for part in parts):
        raise UsageError(
            f"{where}: must be a text, a number, true or false, or a list or table of texts without commas"
        )
    return ",".join(parts)


def _flat(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, str | int | float) for entry in value.values())


def unknown(program: Program, environ: Mapping[str, str] = os.environ) -> list[str]:
    """A sentence a variable that is no setting; it may be one of another version, so it ends nothing."""
    known = {program.variable(name) for name in program.names()}
    odd = (name for name in environ if name.startswith(program.prefix) and name not in known)
    names = sorted(name for name in odd if not _OF_KUBERNETES.search(name.removeprefix(program.prefix.rstrip("_"))))
    return [f"there is no setting for the variable {name}{_near(name, known)}" for name in names]


def add_arguments(parser: argparse.ArgumentParser, program: Program) -> None:
    """Declare every setting as a flag; an absent flag is None, so that the environment can speak."""
    parser.add_argument("--config", metavar="FILE", help=f"settings in TOML, below variables and flags [{VARIABLE}]")
    for declared in fields(program.declared):
        text = f"{declared.metadata['help']} [{program.variable(declared.name)}]"
        if declared.type in (bool, "bool"):
            parser.add_argument(option(declared.name), dest=declared.name, action="store_const", const="1", help=text)
        else:
            known = declared.default if isinstance(declared.default, int | float) else None
            text += f" (default {known:g})" if known is not None else ""
            metavar = declared.metadata["metavar"]
            parser.add_argument(option(declared.name), dest=declared.name, metavar=metavar, help=text)
