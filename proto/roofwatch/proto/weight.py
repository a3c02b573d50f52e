"""What a segment would take in memory once it is parsed, told from its bytes before it is.

Two bytes are an empty window, and a parsed window takes some 300: a segment of a few kilobytes that unpacks to 64 MB of
them would end a store. Small segments cannot, and are not looked at.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

SMALL_BYTES = 256 << 10
MESSAGE_BYTES = 400  # the largest of our messages, as protobuf and Python hold it
TEXT_BYTES = 250  # besides its characters: of protobuf, of Python, and of what is kept beside it
NUMBER_BYTES = 8
MAX_FIELDS = 4_000_000  # looked at one by one, 0.3 µs each; what an agent seals has a hundredth
_FIXED = {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64}  # as many bytes parsed as on the wire
_VARINT, _EIGHT, _COUNTED, _FOUR = 0, 1, 2, 5  # how a field is written: protobuf.dev/programming-guides/encoding


def parsed_bytes(raw: bytes, of: Any, limit: int) -> int:
    """About as many, at most, for a message of that descriptor; stops to count beyond ``limit``.

    Raises:
        ValueError: it is no message of ours.
    """
    total, ends = 0, [(len(raw), of)]
    at = fields = 0
    while ends and total <= limit:
        end, message = ends[-1]
        if at == end:
            ends.pop()
            continue
        if (fields := fields + 1) > MAX_FIELDS:
            raise ValueError(f"more than {MAX_FIELDS} fields")
        tag, at = _varint(raw, at, end)
        number, how = tag >> 3, tag & 7
        if how == _COUNTED:
            size, at = _varint(raw, at, end)
            if size > end - at:
                raise ValueError("a part that is longer than the whole")
            field = message.fields_by_number.get(number)
            total += _weight(field, size)
            if field is not None and field.message_type is not None:
                ends.append((at + size, field.message_type))
                continue
            at += size
        elif how == _VARINT:
            _, at = _varint(raw, at, end)
            total += NUMBER_BYTES
        elif how in {_EIGHT, _FOUR}:
            at += 8 if how == _EIGHT else 4
            total += NUMBER_BYTES
        else:
            raise ValueError("a field of no known kind")
        if at > end:
            raise ValueError("a number that is longer than the whole")
    return total


def _weight(field: FieldDescriptor | None, size: int) -> int:
    if field is None:
        return size
    if field.message_type is not None:
        return MESSAGE_BYTES
    if field.type in {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}:
        return TEXT_BYTES + size
    return size if field.type in _FIXED else size * NUMBER_BYTES


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number that does not end")
