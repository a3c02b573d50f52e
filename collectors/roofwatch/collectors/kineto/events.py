"""Text of trace events → typed events, at the speed of the JSON decoder, with the unread parts left as text."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct, defstruct

DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_ABSENT = Raw(b"null")
_NO_ARGS = Raw(b"{}")

Id = int | str | float | None


class Complete(Struct, tag_field="ph", tag="X", gc=False):
    """An event with a beginning and a length (``ph`` X). Times are text in microseconds."""

    cat: str = ""
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: Raw = _ABSENT
    dur: Raw = _ABSENT
    args: Raw = _NO_ARGS


class Begin(Struct, tag_field="ph", tag="B", gc=False):
    """The beginning of an event whose end is a separate event."""

    cat: str = ""
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: Raw = _ABSENT
    args: Raw = _NO_ARGS


class End(Struct, tag_field="ph", tag="E", gc=False):
    """The end of the last open event of its thread."""

    pid: Id = None
    tid: Id = None
    ts: Raw = _ABSENT


class Meta(Struct, tag_field="ph", tag="M", gc=False):
    """A name or sort order of a process or thread."""

    name: str = ""
    pid: Id = None
    args: Raw = _NO_ARGS


# Phases of the trace event format that carry nothing for us. A type each: it makes the decoder skip them unread.
_SKIPPED = {
    tag: defstruct(f"Skipped_{i}", [], tag_field="ph", tag=tag, gc=False) for i, tag in enumerate("sftiICbenPNODRcvV()")
}
_items = msgspec.json.Decoder(list[Raw])
_fields = msgspec.json.Decoder(dict[str, Raw])
_scalar = msgspec.json.Decoder()


class Events:
    """Decodes events: those that every reader needs, and ``more`` types for readers that look at other phases too."""

    def __init__(self, *more: type[Struct]) -> None:
        kinds: tuple[Any, ...] = (Complete, Begin, End, Meta, *more)
        self._kinds: dict[object, Any] = {kind.__struct_config__.tag: kind for kind in kinds}
        types: Any = None
        for kind in (*self._kinds.values(), *(one for tag, one in _SKIPPED.items() if tag not in self._kinds)):
            types = kind if types is None else types | kind
        self._decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[types])
        self._one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(types)

    def decode(self, text: bytes) -> list[Any]:
        """The events of a JSON list.

        Raises:
            one of ``DECODE_ERRORS``: the text is not a list of events as this module types them.
        """
        return self._decoder.decode(text)

    def decode_loosely(self, text: bytes) -> tuple[list[Any], int]:
        """The events of a JSON list whose items may be anything, and how many items were none.

        Raises:
            one of ``DECODE_ERRORS``: the text is not JSON at all.
        """
        events: list[Any] = []
        odd = 0
        for item in _items.decode(text):
            event = self._loose(item)
            if event is None:
                odd += 1
            else:
                events.append(event)
        return events, odd

    def _loose(self, item: Raw) -> Any:
        """One event whose fields may have the wrong types; None where the item is no event."""
        try:
            return self._one.decode(item)
        except DECODE_ERRORS:
            pass
        try:
            fields = _fields.decode(item)
            phase = _scalar.decode(fields.get("ph", b"null"))
        except DECODE_ERRORS:
            return None
        if not fields:
            return _SKIPPED["i"]()  # how some writers end a list
        if not isinstance(phase, str):
            return None
        kind = self._kinds.get(phase)
        if kind is None:
            return _SKIPPED["i"]()  # a phase newer than this reader: counted, carries nothing
        return kind(**{name: _coerced(name, fields[name]) for name in kind.__struct_fields__ if name in fields})


def _coerced(field: str, value: Raw) -> Any:
    if field in ("ts", "dur", "args"):
        return value
    try:
        plain = _scalar.decode(value)
    except DECODE_ERRORS:
        plain = None
    if field in ("cat", "name"):
        return plain if isinstance(plain, str) else bytes(value).decode("utf-8", "replace")
    return plain if isinstance(plain, int | str | float) else None


KINETO = Events()
