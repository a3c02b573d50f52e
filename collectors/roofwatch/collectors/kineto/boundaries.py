"""Where events and their list end, by the text alone and by what the JSON decoder says of it."""

from __future__ import annotations

import re

from roofwatch.collectors.kineto.events import DECODE_ERRORS, KINETO

# The end of an object and the beginning of the next in a list. In valid JSON a brace and then a quote never stand
# inside a string, so this matches real boundaries only (at any depth).
BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"[^"\\]{0,40}"\s*:)')
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
# What may follow the end of the list: a key, the end of the object, another document, or a bracket of ours.
_AFTER_LIST = re.compile(rb'\s*(?:,\s*"|\}|\{(?!\s*"ph"\s*:)|\[|\]?\Z)')
_MORE_EVENTS = re.compile(rb'\}\s*,\s*\{\s*"ph"\s*:|"traceEvents"')
_POSITION = re.compile(r"\(byte (\d+)\)")
_USUAL_START = re.compile(rb'\{\s*"ph"\s*:')  # what Kineto begins an event with; objects inside events do not
_START = re.compile(rb'\{\s*"[^"\\]{0,40}"\s*:')
_BEFORE = re.compile(rb"\}\s*,\s*\Z")
BEFORE_WINDOW = 256


def ends_inside(error: BaseException, text: bytes) -> bool:
    """True when ``text``, a list closed by a bracket of ours, failed to decode only because an item is not complete."""
    message = str(error)
    if "truncated" in message:
        return True
    found = _POSITION.search(message)
    return found is not None and "trailing" not in message and int(found[1]) >= len(text) - 1


def list_end(error: BaseException, text: bytes) -> int | None:
    """Where the list in ``text`` (an opening bracket included) ends, if ``error`` says that something follows it."""
    found = _TRAILING.search(str(error))
    if found is None:
        return None
    end = int(found[1]) - 1  # the message counts from one, and names the first byte too many
    return end if _AFTER_LIST.match(text, end) and not goes_on(text, end) else None


def goes_on(text: bytes, end: int) -> bool:
    """Whether events go on after what looks like the end of their list: then it was a stray bracket.

    Those of another document do not count.
    """
    more = _MORE_EVENTS.search(text, end)
    return more is not None and not more[0].startswith(b'"') and text[end : end + 1] not in (b"{", b"[")


def closes(text: bytes) -> bool:
    """True when the event list ends inside ``text``, which begins with an event."""
    try:
        KINETO.decode(b"[" + text)
    except DECODE_ERRORS as error:
        return list_end(error, b"[" + text) is not None
    return True


def last_boundary(text: bytes, since: int) -> tuple[int, int] | None:
    """Where the last event that is surely whole ends, and where the one after it begins."""
    return _boundary(text, since, _USUAL_START) or _boundary(text, since, _START)


def _boundary(text: bytes, since: int, begins: re.Pattern[bytes]) -> tuple[int, int] | None:
    at = len(text)
    while (at := text.rfind(b"{", since, at)) >= 0:
        if not begins.match(text, at):
            continue
        before = _BEFORE.search(text[max(0, at - BEFORE_WINDOW) : at])
        if before is not None:
            return max(0, at - BEFORE_WINDOW) + before.start() + 1, at
    return None
