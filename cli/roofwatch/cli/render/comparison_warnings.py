"""What to beware of in a comparison, in words."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.diagnosis import wrapped

Row = Mapping[str, Any]

INDENT = "   "
FRACTION = 0.1  # a factor below it is told as a fraction


def warned(warning: Row) -> str:
    """A warning in words, its figures filled in."""
    names = [name for _, name, _, _ in Formatter().parse(warning["text"]) if name]
    said = warning["text"].format(**{name: _figure(name, warning[name]) for name in names})
    return text.clean(said + (" (scaled away)" if warning["scaled"] else ""))


def warning_lines(warning: Row, room: int) -> list[str]:
    """One point of a list in ``room`` columns."""
    first, *rest = wrapped(warned(warning), room - len(INDENT) - 2)
    return [f"{INDENT}- {first}", *(f"{INDENT}  {line}" for line in rest)]


def _figure(name: str, value: Any) -> str:
    if name.endswith("_ns"):
        return text.duration(value)
    if name == "share":
        return text.percent(value)
    if name == "factor":
        return text.significant(value) if value >= FRACTION else f"1/{text.significant(1 / value)}"
    return text.count(value) if isinstance(value, int) else str(value)
