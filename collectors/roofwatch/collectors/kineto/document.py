"""The outline of a trace file: head, event list, tail, perhaps another document; streamed, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from roofwatch.collectors.kineto.boundaries import BEFORE_WINDOW, BOUNDARY, closes, ends_inside, last_boundary
from roofwatch.collectors.kineto.buffer import BLANK, CHUNK_BYTES, Buffer
from roofwatch.collectors.kineto.events import DECODE_ERRORS, KINETO, Events
from roofwatch.collectors.kineto.outline import top_fields
from roofwatch.collectors.kineto.recover import MAX_JOINED, recover
from roofwatch.collectors.kineto.repair import repairs
from roofwatch.collectors.kineto.source import Source
from roofwatch.model.errors import RoofwatchError

MAX_EVENT_BYTES = 4 << 20  # one event longer than this is left out
MAX_OUTLINE_BYTES = 32 << 20  # the same for all that stands before, or after, the event list
_BOM = b"\xef\xbb\xbf"
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_KEY = re.compile(rb'"traceEvents"\s*:\s*([^\s\[])')
_LIST_OVERLAP = 64  # a match may be cut by the end of a block
_POSITION = re.compile(r"\(byte (\d+)\)")
# Read without the rest of the object where that is damaged.
_RESCUED = re.compile(rb'"(baseTimeNanoseconds|record_shapes)"\s*:\s*"?(\d{1,20})')


class Document:
    """Reads one file. ``batches`` first; after it ``fields``, ``dropped`` and ``problems`` are complete."""

    def __init__(self, source: Source, kinds: Events = KINETO) -> None:
        self.fields: dict[str, bytes] = {}  # of the first document: key (of ``outline.FIELDS``) → its JSON text
        self.dropped: Counter[str] = Counter()
        self.problems: list[str] = []
        self._in_object = False
        self._source = source
        self._kinds = kinds
        self._buffer = Buffer(source.blocks())
        self._index = 0
        self._closed = False  # whether the current event list was seen to end
        self.whole = False  # whether the first one was
        self._damage: list[tuple[int, str]] = []
        self._damaged = 0

    def batches(self) -> Iterator[list[Any]]:
        """The events of the first document, a chunk at a time.

        Raises:
            RoofwatchError: there is no event list to read.
        """
        while self._open():
            for batch in self._list():
                if self._index:
                    self.dropped["another_document"] += len(batch)
                else:
                    yield batch
            if not self._close():
                break
            self._index += 1
        self._conclude()

    # The head

    def _open(self) -> bool:
        """Moves to the first event of the next document; False where there is no other."""
        if not self._buffer.fill(1):
            if self._index == 0:
                raise RoofwatchError(f"{self._source.name} is empty{self._because()}: nothing was written to it.")
            return False
        if self._index == 0 and self._buffer.fill(len(_BOM)) and self._buffer.text.startswith(_BOM):
            self._buffer.skip(len(_BOM))
        if not self._buffer.skip_blanks():
            if self._index == 0:
                raise RoofwatchError(f"{self._source.name} holds only blanks: nothing was written to it.")
            return False
        self._in_object = not self._buffer.text.startswith(b"[")
        if not self._in_object:
            self._buffer.skip(1)
            return True
        if not self._buffer.text.startswith(b"{"):
            return self._refuse(f"it begins with {self._buffer.text[:12]!r}, which is not JSON")
        return self._open_object()

    def _open_object(self) -> bool:
        searched = 0
        while True:
            found = _LIST.search(self._buffer.text, searched)
            if found is not None:
                break
            searched = max(0, len(self._buffer.text) - _LIST_OVERLAP)
            if len(self._buffer.text) > MAX_OUTLINE_BYTES:
                return self._refuse(f"its first {MAX_OUTLINE_BYTES >> 20} MiB hold no traceEvents list")
            if not self._buffer.fill(len(self._buffer.text) + CHUNK_BYTES) and self._buffer.ended:
                if (found := _LIST.search(self._buffer.text)) is not None:
                    break
                return self._refuse(self._why_no_list())
        if self._index == 0:
            self._keep_fields(self._buffer.text[: found.start()].rstrip(BLANK + b",") + b"}", "before")
        self._buffer.skip(found.end())
        return True

    def _why_no_list(self) -> str:
        if _KEY.search(self._buffer.text):
            return "its traceEvents is not a list"
        try:
            msgspec.json.decode(self._buffer.text, type=msgspec.Raw)
        except DECODE_ERRORS as error:
            at = _POSITION.search(str(error))
            where = (
                f" at byte {self._buffer.base + int(at[1])}"
                if at
                else f" at byte {self._buffer.base + len(self._buffer.text)}"
            )
            return f"it is not whole JSON{where} and holds no traceEvents list{self._because()}"
        return "it is JSON without a traceEvents list"

    def _refuse(self, why: str) -> bool:
        if self._index == 0:
            raise RoofwatchError(f"{self._source.name} is not a Kineto trace: {why}.")
        self.problems.append(f"what follows the trace from byte {self._buffer.base} on was left out")
        return False

    def _because(self) -> str:
        return f" ({self._source.problem})" if self._source.problem else ""

    # The event list

    def _list(self) -> Iterator[list[Any]]:
        """Batches of events up to the end of the list; the buffer then begins after it."""
        while True:
            end, following = self._cut()
            last = end < 0
            stretch = self._buffer.text if last else self._buffer.text[:end]
            closed = None
            text = b"[" + stretch + b"]"
            try:
                batch = self._kinds.decode(text)
                if last:
                    self._note(len(stretch), "the event list is not closed")
            except DECODE_ERRORS as error:
                earlier = None if last or not ends_inside(error, text) else self._earlier(end)
                if earlier is None:
                    batch, closed = self._recover(stretch, last)
                else:
                    batch, following = earlier
            self._closed = closed is not None
            if closed is not None:
                self._buffer.skip(closed)
                self.whole = True
            else:
                self._buffer.skip(len(stretch) if last else following)
            if batch:
                yield batch
            if last or closed is not None:
                return

    def _earlier(self, end: int) -> tuple[list[Any], int] | None:
        """Events up to an earlier boundary, and where the next begins: the last one was inside an event."""
        for _ in range(MAX_JOINED):
            found = last_boundary(self._buffer.text[:end], 0)
            if found is None:
                return None
            end, following = found
            try:
                return self._kinds.decode(b"[" + self._buffer.text[:end] + b"]"), following
            except DECODE_ERRORS as error:
                if not ends_inside(error, self._buffer.text[: end + 2]):
                    return None
        return None

    def _recover(self, stretch: bytes, last: bool) -> tuple[list[Any], int | None]:
        result = recover(stretch, last, self._kinds)
        self.dropped.update(result.dropped)
        self._damaged += result.damaged - len(result.damage)
        for at, what in result.damage:
            self._note(at, what)
        if last and result.closed_at is None and not result.dropped.get("cut_off"):
            self._note(len(stretch), "the event list is not closed")
        return result.events, result.closed_at

    def _cut(self) -> tuple[int, int]:
        """Where the last whole event of a chunk ends and the next begins; (-1, -1) where the file ends before that."""
        searched = 0
        size = CHUNK_BYTES
        while self._buffer.fill(size):
            found = last_boundary(self._buffer.text, searched)
            if found is not None:
                return found
            searched = max(0, len(self._buffer.text) - BEFORE_WINDOW)
            size = len(self._buffer.text) + CHUNK_BYTES
            if len(self._buffer.text) > MAX_EVENT_BYTES:
                if closes(self._buffer.text):
                    return len(self._buffer.text), len(self._buffer.text)
                self._skip_oversized()
                searched, size = 0, CHUNK_BYTES
        if len(self._buffer.text) > CHUNK_BYTES and (found := last_boundary(self._buffer.text, searched)) is not None:
            return found
        return -1, -1

    def _skip_oversized(self) -> None:
        """Leaves out text up to the next place where an event begins."""
        self.dropped["oversized"] += 1
        self._note(0, f"an event is longer than {MAX_EVENT_BYTES >> 20} MiB")
        while True:
            found = BOUNDARY.search(self._buffer.text)
            if found is not None:
                self._buffer.skip(found.end())
                return
            self._buffer.skip(max(0, len(self._buffer.text) - BEFORE_WINDOW))
            if not self._buffer.fill(CHUNK_BYTES):
                if (found := BOUNDARY.search(self._buffer.text)) is not None:
                    self._buffer.skip(found.end())
                return

    def _note(self, at: int, what: str) -> None:
        self._damaged += 1
        if len(self._damage) < 4:
            self._damage.append((self._buffer.base + at, what))

    # The tail

    def _close(self) -> bool:
        """Reads what follows the event list; True where another document may follow."""
        if not self._in_object:
            return self._buffer.skip_blanks()
        size = 1
        while True:
            more = self._buffer.fill(size)
            text = b"{" + self._buffer.text.lstrip(BLANK + b",")
            cut = len(self._buffer.text) + 1 - len(text)
            try:
                fields, end = _object(text)
            except DECODE_ERRORS as error:
                if more and "truncated" in str(error) and len(self._buffer.text) < MAX_OUTLINE_BYTES:
                    size = 2 * len(self._buffer.text) + CHUNK_BYTES
                    continue
                return self._close_damaged(text)
            if self._index == 0:
                self.fields |= fields
            self._buffer.skip(cut + end - 1)  # less the brace that was put before it
            return self._buffer.skip_blanks()

    def _close_damaged(self, text: bytes) -> bool:
        if self._index == 0:
            self._keep_fields(text, "after")
        if self._closed and text.strip(BLANK) == b"{":
            self._note(len(self._buffer.text), "the file ends right after the event list")
        self._buffer.skip(len(self._buffer.text))
        return False

    def _keep_fields(self, text: bytes, where: str) -> None:
        """Keeps the top-level fields of an object's text, mended or piecemeal where it is damaged."""
        try:
            self.fields |= _object(text)[0]
            return
        except DECODE_ERRORS:
            pass
        for _, mended in repairs(text):
            try:
                self.fields |= _object(mended)[0]
            except DECODE_ERRORS:
                continue
            return
        for key, value in _RESCUED.findall(text):
            self.fields[key.decode()] = value
        if text.strip(BLANK) != b"{":
            self.problems.append(f"the metadata {where} the event list is damaged")

    def _conclude(self) -> None:
        """Puts all that went wrong into ``problems``, a clause each."""
        if self._source.problem:
            self.problems.insert(0, self._source.problem)
        if self._source.over_limit:
            self.dropped["over_size_limit"] += 1
        if self._damage:
            first_at, first = self._damage[0]
            places = "1 damaged place" if self._damaged == 1 else f"{self._damaged} damaged places, the first"
            self.problems.append(f"{places} at byte {first_at}: {first}")
        if self.dropped["another_document"]:
            self.problems.append("a second document follows the first and was left out")


def _trailing(error: msgspec.DecodeError) -> int:
    found = _POSITION.search(str(error))
    return int(found[1]) - 1 if found and "trailing" in str(error) else -1


def _object(text: bytes) -> tuple[dict[str, bytes], int]:
    """The fields of the JSON object that ``text`` begins with, and where it ends."""
    end = len(text)
    try:
        fields = top_fields(text)
    except msgspec.DecodeError as error:
        end = _trailing(error)
        if end < 0:
            raise
        fields = top_fields(text[:end])
    return fields, end
