"""The wire as the store reads it: columns of kernels and the dictionary are the bytes that came.

A message field that is packed numbers, or a message, lies in a message as its length and bytes. Read by a schema that
calls it bytes it costs a copy; numbers are then made of all windows' columns at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import gt
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from roofwatch.proto import codec
from roofwatch.proto.codec import WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.blocks import Ints
from roofwatch.store.checks import fail

MOST = 10  # bytes of a number on the wire
LONGEST = 8  # bytes of a number: 2⁵⁶ is beyond every limit
BEYOND = 1 << 62  # stands for numbers of more bytes
BLOCK = 1 << 14  # numbers made at once: what fits a processor's cache
_PACKAGE = "roofwatch.columns"
_AS_BYTES = {"Segment": {"dictionary"}, "KernelStats": {field.name for field in pb.KernelStats.DESCRIPTOR.fields}}
_MASKS = np.array([(1 << (8 * length)) - 1 for length in range(1, LONGEST + 1)], np.uint64)
_JOIN = tuple(  # neighbours of 7, 14 and 28 bits: from how many bytes on, which stay, which move, and by how much
    (most, np.uint64(keep), np.uint64(move), np.uint64(by))
    for most, keep, move, by in (
        (0, 0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (2, 0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (4, 0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


def _schema() -> Any:
    """``Segment`` of our contract with some fields as bytes."""
    file = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    file.name, was = f"{_PACKAGE}.proto", f".{file.package}."
    file.package = _PACKAGE
    del file.service[:]
    for message in file.message_type:
        for field in chain(message.field, *(nested.field for nested in message.nested_type)):
            if field.name in _AS_BYTES.get(message.name, ()):
                field.type, field.label = FieldDescriptorProto.TYPE_BYTES, FieldDescriptorProto.LABEL_OPTIONAL
                field.ClearField("type_name")
            if field.type_name:
                field.type_name = field.type_name.replace(was, f".{_PACKAGE}.")
    pool = DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Segment"))


_Segment = _schema()


def read(envelope: pb.SegmentEnvelope) -> Any:
    """A segment whose dictionary and kernels are bytes.

    Raises:
        WireError: as ``codec.unseal``.
    """
    raw = codec.raw(envelope)
    message = _Segment()
    try:
        message.ParseFromString(raw)
        message.DiscardUnknownFields()
        if message.ByteSize() != len(raw):
            # Fields that we do not know, or not in the form in which senders write them: the schema puts them right.
            known = codec.parsed(raw)
            known.DiscardUnknownFields()
            message.ParseFromString(known.SerializeToString())
    except DecodeError as error:
        raise WireError("damaged segment: not a protobuf message") from error
    return message


def counts(parts: Sequence[bytes]) -> list[int]:
    """How many numbers each part of a column has, before any is made."""
    return [len(part) if part.isascii() else int(np.count_nonzero(np.frombuffer(part, np.int8) >= 0)) for part in parts]


def counted(name: str, parts: Sequence[bytes]) -> tuple[npt.NDArray[np.integer[Any]], list[int]]:
    """The numbers of a column's parts, one after the other, and how many each part has; as bytes where they fit.

    Raises:
        ValueError: a part ends within a number.
    """
    buffer = b"".join(parts)
    octets = np.frombuffer(buffer, np.uint8)
    lengths = [len(part) for part in parts]
    if buffer.isascii():  # each number is a byte
        return octets, lengths
    numbers, ends = _numbers(buffer, octets)
    bounds = np.cumsum(lengths)
    if (octets[bounds[np.array(lengths) > 0] - 1] >= 0x80).any():
        fail(f"{name}: a column ends within a number")
    found = np.searchsorted(ends, bounds)
    found[1:] -= found[:-1].copy()
    return numbers, found.tolist()


def columns(parts: dict[str, Sequence[bytes]], counts: list[int]) -> dict[str, Ints]:
    """Columns whose parts have so many numbers each.

    Raises:
        ValueError: a part has more or fewer.
    """
    found: dict[str, Ints] = {}
    long: dict[str, Sequence[bytes]] = {}
    most = [MOST * count for count in counts]
    for name, of in parts.items():
        lengths = list(map(len, of))
        if any(map(gt, lengths, most)):
            fail(f"kernel columns of unequal lengths: {name}")
        buffer = b"".join(of)
        if lengths == counts and buffer.isascii():
            found[name] = np.frombuffer(buffer, np.uint8).astype(np.int64)
        else:
            long[name] = of
    if long:
        numbers, many = counted(", ".join(long), list(chain.from_iterable(long.values())))
        if many != counts * len(long):
            fail(f"kernel columns of unequal lengths, among {', '.join(long)}")
        found.update(zip(long, numbers.reshape(len(long), -1).astype(np.int64, copy=False), strict=True))
    return found


def floats(name: str, parts: Sequence[bytes], counts: list[int]) -> Any:
    """A column of doubles.

    Raises:
        ValueError: a part has more or fewer than it should.
    """
    if [len(part) for part in parts] != [8 * count for count in counts]:
        fail(f"kernel columns of unequal lengths: {name}")
    return np.frombuffer(b"".join(parts), "<f8")


def _numbers(buffer: bytes, octets: Any) -> tuple[Ints, Ints]:
    """Base 128, lowest digit first, with the high bit on all but a number's last byte; and where each number ends.

    The encoding: https://protobuf.dev/programming-guides/encoding/#varints
    """
    ends = np.flatnonzero(octets < 0x80)
    words = np.ndarray((len(buffer),), "<u8", buffer + bytes(LONGEST), strides=(1,))
    numbers = np.empty(len(ends), np.int64)
    begin = 0
    for at in range(0, len(ends), BLOCK):
        of = ends[at : at + BLOCK]
        starts = np.empty_like(of)
        starts[0], end = begin, int(of[-1]) + 1
        np.add(of[:-1], 1, out=starts[1:])
        lengths = of - starts  # but for the last byte
        found = words[begin:end].take(starts - begin)  # of what does not lie in order numpy makes a copy first
        found &= _MASKS.take(lengths, mode="clip")
        longest = int(lengths.max())
        for most, keep, move, by in _JOIN:
            if longest < most:
                break
            found = (found & keep) | ((found & move) >> by)
        if longest >= LONGEST:
            found[lengths >= LONGEST] = BEYOND
        numbers[at : at + BLOCK] = found.view(np.int64)
        begin = end
    return numbers, ends
