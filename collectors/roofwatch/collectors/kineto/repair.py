"""Mends the text of one damaged event, by the kinds of damage that writers of traces really produce.

Each step is linear in the text and is tried on top of the ones before it, gentlest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_REPAIR_BYTES = 1 << 20  # an event beyond this is not worth mending

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SPACE = re.compile(r"[\t\r\n]")
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_NOT_A_NUMBER = re.compile(r"(?<=[:\[,\s])[-+]?(?:NaN|nan|Infinity|inf)(?=\s*[,}\]])")
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
# A name ends where a field that Kineto writes beside it follows, whatever quotes it holds itself.
_NAME = re.compile(
    r'("name"\s*:\s*")(.*?)("\s*,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:|"\s*\}\s*\]?\s*\Z)', re.DOTALL
)
_BARE_QUOTE = re.compile(r'(\\.)|"', re.DOTALL)
# Elsewhere a quote opens a string after one of {[,: and closes it before one of :}] or a comma that a new key or value
# follows.
_OPENS = re.compile(r"[{\[,:]\s*\Z")
_CLOSES = re.compile(r'\s*(?::|[}\]]|,\s*["{\[\d\-tfn]|\Z)')
_WINDOW = 64  # characters looked at on either side of a quote


def repairs(text: bytes) -> Iterator[tuple[str, bytes]]:
    """The stages of mending ``text``: what was mended last, and the text with it and all before it mended."""
    if len(text) > MAX_REPAIR_BYTES:
        return
    mended = text.decode("utf-8", "replace")
    yield "invalid UTF-8", mended.encode("utf-8")
    mended = _SPACE.sub(" ", _CONTROL.sub("\ufffd", mended))
    yield "a control character in a string", mended.encode("utf-8")
    mended = _NOT_A_NUMBER.sub("null", mended)
    yield "a value that is not a number", mended.encode("utf-8")
    mended = _TRAILING_COMMA.sub("", mended)
    yield "a trailing comma", mended.encode("utf-8")
    mended = _double_backslashes(mended)
    yield "a backslash that escapes nothing", mended.encode("utf-8")
    mended = _NAME.sub(_escape_name, mended, count=1)
    yield "a quote inside a name", mended.encode("utf-8")
    yield "a quote inside a string", _escape_quotes(mended).encode("utf-8")


def _double_backslashes(text: str) -> str:
    """Backslashes that begin no valid escape, doubled; pairs are taken from the left so that valid ones stay."""
    out: list[str] = []
    at = 0
    while (found := text.find("\\", at)) >= 0:
        out.append(text[at:found])
        if _BAD_ESCAPE.match(text, found):
            out.append("\\\\")
            at = found + 1
        else:
            out.append(text[found : found + 2])
            at = found + 2
    out.append(text[at:])
    return "".join(out)


def _escape_name(found: re.Match[str]) -> str:
    return found[1] + _BARE_QUOTE.sub(lambda quote: quote[1] or '\\"', found[2]) + found[3]


def _escape_quotes(text: str) -> str:
    """Quotes that neither open nor close a string by what stands around them, escaped."""
    out: list[str] = []
    at = 0
    inside = False
    while (found := text.find('"', at)) >= 0:
        out.append(text[at:found])
        escaped = inside and found > 0 and text[found - 1] == "\\"
        if inside:
            structural = escaped or _CLOSES.match(text[found + 1 : found + 1 + _WINDOW])
        else:
            structural = _OPENS.search(text[max(0, found - _WINDOW) : found])
        if not structural:
            out.append('\\"')
        else:
            out.append('"')
            inside = inside if escaped else not inside
        at = found + 1
    out.append(text[at:])
    return "".join(out)
