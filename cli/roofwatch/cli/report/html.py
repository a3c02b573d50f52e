"""Elements as text. What is no ``Html`` is escaped, so a name from a trace can never become markup."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from roofwatch.cli.render.text import clean

VOID = frozenset({"meta", "br", "rect", "path"})
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s\b|min\b|h\b|d\b|[kMGTP]?(?:FLOP|B)\b|[KMGT]iB\b))")


class Html(str):
    """Markup that is ready to be put into a page."""

    __slots__ = ()


Child = str | None  # an Html stays as it is, any other text is escaped, None is nothing
Attribute = str | int | float | bool | None


def escaped(text: str) -> Html:
    """Text for an element or an attribute; characters that no page may hold (control, format) become "?".

    A figure and its unit stay on one line.
    """
    return Html(html.escape(_UNIT.sub("\u00a0", clean(text))))


def el(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. ``class_`` is ``class``, ``data_v`` is ``data-v``; True is an attribute without a value."""
    told = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID and not children:
        return Html(f"<{name}{told}/>")
    return Html(f"<{name}{told}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    """Several, one after the other."""
    return Html("".join(child if isinstance(child, Html) else escaped(child) for child in children if child))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'


def data(name: str, value: Any) -> Html:
    """JSON that a script reads; it can neither end its element nor begin a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    safe = text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
    return Html(f'<script type="application/json" id="{escaped(name)}">{safe}</script>')
