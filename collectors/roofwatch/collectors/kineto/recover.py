"""Reads what can be read of a stretch of the event list that does not decode as a whole.

The stretch is cut where one event ends and the next begins; halves that decode are done at once, so only the damaged
events are looked at one by one. The work is at most the length of the stretch times the logarithm of its events.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from roofwatch.collectors.kineto.boundaries import BOUNDARY, ends_inside, goes_on, list_end
from roofwatch.collectors.kineto.events import DECODE_ERRORS, KINETO, Events
from roofwatch.collectors.kineto.repair import repairs

_SURE_END = re.compile(rb'\}\s*\](?=\s*(?:,\s*"[A-Za-z]|\}\s*\Z))')  # where the list ends after a lost last event
MAX_JOINED = 64  # an event with objects in its arguments may have been cut into this many pieces


@dataclass(slots=True)
class Recovered:
    """What a stretch gave."""

    kinds: Events = KINETO
    events: list[Any] = field(default_factory=list)
    closed_at: int | None = None  # where, in the stretch, the event list ended (after its bracket)
    dropped: dict[str, int] = field(default_factory=dict)
    damage: list[tuple[int, str]] = field(default_factory=list)  # position in the stretch, what it is; the first few
    damaged: int = 0

    def note(self, at: int, what: str) -> None:
        """Counts one damaged place."""
        self.damaged += 1
        if len(self.damage) < 4:
            self.damage.append((at, what))

    def drop(self, reason: str, count: int = 1) -> None:
        """Counts events that are lost."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count


def recover(stretch: bytes, last: bool, kinds: Events = KINETO) -> Recovered:
    """Events of ``stretch``: text inside the event list, from the beginning of an event.

    Args:
        stretch: the text; unless ``last``, it ends where an event ends.
        last: nothing follows in the file, so the end of the list and the metadata after it may be in it.
        kinds: of events that are looked for.
    """
    result = Recovered(kinds)
    pieces = _pieces(stretch)
    waiting = [(0, len(pieces))]
    done = 0
    while waiting:
        low, high = waiting.pop()
        low = max(low, done)
        if low >= high:
            continue
        start, end = pieces[low][0], pieces[high - 1][1]
        if _take(stretch, start, end, result):
            if result.closed_at is not None:
                break
            done = high
        elif high - low > 1:
            middle = (low + high) // 2
            waiting += [(middle, high), (low, middle)]
        else:
            done = _single(stretch, pieces, low, last, result)
            if result.closed_at is not None:
                break
    return result


def _pieces(stretch: bytes) -> list[tuple[int, int]]:
    pieces: list[tuple[int, int]] = []
    start = 0
    for found in BOUNDARY.finditer(stretch):
        pieces.append((start, found.start() + 1))
        start = found.end()
    end = len(stretch.rstrip(b" \t\r\n,"))
    if end > start:
        pieces.append((start, end))
    return pieces


def _take(stretch: bytes, start: int, end: int, result: Recovered) -> bool:
    """Decodes [start, end) at once; True when that worked, or when the list was found to end inside."""
    text = b"[" + stretch[start:end] + b"]"
    try:
        result.events += result.kinds.decode(text)
    except DECODE_ERRORS as error:
        close = list_end(error, text)
        if close is None or close >= len(text) or goes_on(stretch, start + close - 1):
            return False
        result.events += result.kinds.decode(text[:close])
        result.closed_at = start + close - 1
    return True


def _single(stretch: bytes, pieces: list[tuple[int, int]], at: int, last: bool, result: Recovered) -> int:
    """Makes what can be made of one piece that does not decode; returns the index of the next piece to look at."""
    start, end = pieces[at]
    text = b"[" + stretch[start:end] + b"]"
    for joined in range(at + 1, min(at + MAX_JOINED, len(pieces))):
        if not _is_cut(b"[" + stretch[start : pieces[joined - 1][1]] + b"]", result.kinds):
            break
        if _take(stretch, start, pieces[joined][1], result):
            return joined + 1
    try:
        _take_loosely(text, stretch, start, len(text), result)
    except DECODE_ERRORS as error:
        last = last and at == len(pieces) - 1
        if last and _is_cut(text[:-1], result.kinds):
            result.drop("cut_off")
            result.note(start, "the file ends inside an event")
        elif not _mend(text, stretch, start, result):
            _lose(text, start, str(error), last, result)
    else:
        if not _is_utf8(text):
            result.note(start, "invalid UTF-8")
    return at + 1


def _mend(text: bytes, stretch: bytes, start: int, result: Recovered) -> bool:
    """Takes what is in ``text`` once it is mended; False where nothing mends it."""
    for what, mended in repairs(text):
        try:
            _take_loosely(mended, stretch, start, len(text), result)
        except DECODE_ERRORS:
            continue
        result.note(start, what)
        return True
    return False


def _lose(text: bytes, start: int, error: str, last: bool, result: Recovered) -> None:
    """Counts an event that cannot be read. The end of the list may be in the text of the last one."""
    result.drop("unreadable")
    cut = "truncated" in error
    result.note(start, "an event is cut off" if cut else error.removeprefix("JSON is malformed: ").split(" (byte")[0])
    if last and (end := _SURE_END.search(text, 1, len(text) - 1)) is not None:
        result.closed_at = start + end.end() - 1


def _take_loosely(text: bytes, stretch: bytes, start: int, length: int, result: Recovered) -> None:
    """Takes items of any type from ``text``, a mended or unmended list that is ``length`` bytes long in the stretch.

    Raises:
        one of ``DECODE_ERRORS``: it is not JSON.
    """
    try:
        events, odd = result.kinds.decode_loosely(text)
    except DECODE_ERRORS as error:
        close = list_end(error, text)
        at = -1 if close is None else start + max(0, close - 1 - (len(text) - length))
        if close is None or close >= len(text) or goes_on(stretch, at):
            raise
        events, odd = result.kinds.decode_loosely(text[:close])
        result.closed_at = at
    result.events += events
    if odd:
        result.drop("not_an_event", odd)
        result.note(start, "an item of the event list is not an event")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_cut(text: bytes, kinds: Events) -> bool:
    """True when the text is the beginning of a list whose last item goes on."""
    try:
        kinds.decode_loosely(text)
    except DECODE_ERRORS as error:
        return ends_inside(error, text)
    return False
