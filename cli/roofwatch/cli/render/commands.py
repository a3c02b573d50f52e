"""The commands of a diagnosis, each once, broken where a shell lets them be."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import text

Row = Mapping[str, Any]

KERNEL_COMMANDS = 3  # in the text; JSON has one for each row
INDENT = "   "
_OUTPUT = re.compile(r"\b(?:kernel|unknown)\d+\b")  # what a command's output is called


def listed(answer: Row, unknown_from: float, room: int) -> list[str]:
    """The commands with their names, each once; of an unknown roof where those are ``unknown_from`` of the span."""
    shown: dict[str, tuple[list[str], Row]] = {}
    for one in answer["commands"]:
        if one["what"] != "kernel":
            _alike(shown, f"the {one['what']}", one)
        elif one["rank"] <= KERNEL_COMMANDS:
            _alike(shown, f"#{one['rank']}", one)
    unknown = answer["unjudged"]
    if (unknown["span_share"] or 0.0) >= unknown_from and unknown["rows"] and unknown["rows"][0]["command"]:
        _alike(shown, "the largest of unknown roof", unknown["rows"][0]["command"])
    return [
        line
        for names, one in shown.values()
        for line in (f"{INDENT}{', '.join(names)}:", *shell(one["arguments"], room), *_then(one, room))
    ]


def _then(command: Row, room: int) -> list[str]:
    """What to open its result with, where the command's own output does not say it."""
    indent = INDENT + "  "
    said = textwrap.wrap(f"then: {command['then']}", room - len(indent)) if command.get("then") else []
    return [indent + line for line in said]


def _alike(shown: dict[str, tuple[list[str], Row]], name: str, command: Row) -> None:
    """Adds a command, or only its name where another one selects the same launches and measures the same."""
    same = _OUTPUT.sub("", command["command"])
    shown.setdefault(same, ([], command))[0].append(name)


def shell(arguments: Sequence[str], room: int) -> list[str]:
    """A command quoted for a shell, broken between its arguments; an option keeps its value beside it."""
    indent = INDENT + "  "
    lines: list[str] = [indent]
    words_ = [shlex.quote(word) for word in arguments]
    groups: list[str] = []
    for word in words_:
        if groups and groups[-1].startswith("-") and " " not in groups[-1] and not word.startswith("-"):
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    for group in groups:
        fits = text.width(lines[-1]) + text.width(group) + 3 <= room
        if lines[-1].strip() and not fits:
            lines[-1] += " \\"
            lines.append(f"{indent}  {group}")
        else:
            lines[-1] += (" " if lines[-1].strip() else "") + group
    return lines
