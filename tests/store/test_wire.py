"""Columns as the bytes that came: the same numbers as protobuf's own reader, and nothing hostile passes."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
import zstandard
from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]
from store_builders import COPY, GEMM, NORM, stat, window_of

from roofwatch.proto import codec
from roofwatch.proto.codec import WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import wire
from roofwatch.store.unpack import Unpacked, Unpacker


def encoded(numbers: list[int]) -> bytes:
    """Numbers one by one, by protobuf's own encoder."""
    return b"".join(_VarintBytes(number) for number in numbers)


@pytest.mark.parametrize("bits", [1, 7, 8, 14, 15, 28, 29, 42, 50, 56])
def test_numbers_of_every_length(bits: int) -> None:
    """Each number of a column, more than one block of them, in parts of any size, none included."""
    draw = random.Random(bits)
    parts = [[draw.getrandbits(draw.randint(1, bits)) for _ in range(n)] for n in (0, 1, 3, wire.BLOCK, 700, 0)]
    numbers, counts = wire.counted("calls", [encoded(part) for part in parts])
    assert numbers.tolist() == [number for part in parts for number in part]
    assert counts == [len(part) for part in parts]


def test_numbers_beyond_every_limit() -> None:
    """What takes nine bytes or more is far out of range, whatever it is."""
    numbers, _ = wire.counted("calls", [encoded([5, 1 << 56, (1 << 64) - 1, 7])])
    assert numbers.tolist() == [5, wire.BEYOND, wire.BEYOND, 7]


@pytest.mark.parametrize("parts", [[b"\x05\x80"], [b"\x05\x80", b"\x01"], [b"", b"\xff" * 30]])
def test_a_column_that_ends_within_a_number(parts: list[bytes]) -> None:
    """The rest of a number is not looked for in the next window."""
    with pytest.raises(ValueError, match="ends within a number"):
        wire.counted("calls", parts)


def test_columns_of_unequal_lengths() -> None:
    """One window's surplus does not fill the gap of another, whether numbers are short or long."""
    for big in (1, 300):
        with pytest.raises(ValueError, match="unequal lengths"):
            wire.columns({"calls": [encoded([big]), encoded([big] * 3)]}, [2, 2])


def test_floats() -> None:
    """Eight bytes each, and as many as there are rows."""
    given = np.array([1.5, np.nan, -0.0])
    assert wire.floats("ridge", [given[:1].tobytes(), given[1:].tobytes()], [1, 2]).tobytes() == given.tobytes()
    with pytest.raises(ValueError, match="unequal lengths"):
        wire.floats("ridge", [given.tobytes(), b""], [2, 1])


def sealed(data: bytes) -> pb.SegmentEnvelope:
    """Bytes as a segment, whatever they are."""
    payload = zstandard.ZstdCompressor().compress(data)
    name = pb.SegmentId(agent="agent-a", boot="boot-a", sequence=1)
    return pb.SegmentEnvelope(id=name, payload=payload, crc32=zlib.crc32(payload), raw_bytes=len(data), windows=2)


def field(number: int, data: bytes) -> bytes:
    """A field with a length."""
    return encoded([number << 3 | 2, len(data)]) + data


def contents(found: Unpacked) -> list[object]:
    """What would be stored of it."""
    return [
        (w.window, w.facts.columns.tolist(), w.facts.histograms.each(), w.devices, w.process_id) for w in found.windows
    ] + [found.signatures, found.roofs, found.drops]


@pytest.fixture
def message() -> pb.Segment:
    """Two windows, one of them with the longest columns."""
    kernels = [stat(GEMM, [1000, 70_000, 300_000], roof_ns=100.0), stat(NORM, [50])]
    return codec.segment([window_of("a", kernels), window_of("b", [stat(COPY, [7] * 200)])], {"late": 3})


def test_other_encodings_are_read_alike(message: pb.Segment) -> None:
    """What protobuf lets a sender do: numbers one by one, columns in pieces, fields of a later version."""
    plain = Unpacker().unpack(sealed(message.SerializeToString()))
    kernels = message.windows[0].kernels
    pieces = field(3, encoded([kernels.calls[0]])) + field(3, encoded(kernels.calls[1:]))
    singly = b"".join(encoded([4 << 3, number]) for number in kernels.total_ns)
    rest = pb.KernelStats()
    rest.CopyFrom(kernels)
    rest.ClearField("calls")
    rest.ClearField("total_ns")
    window = pb.Window()
    window.CopyFrom(message.windows[0])
    window.ClearField("kernels")
    whole = window.SerializeToString() + field(14, rest.SerializeToString() + pieces) + field(14, singly)
    later = field(999, b"of a later version")
    other = pb.Segment(schema=1, dictionary=message.dictionary, agent_drops=message.agent_drops)
    data = (
        other.SerializeToString() + field(3, whole + later) + field(3, message.windows[1].SerializeToString()) + later
    )
    assert contents(Unpacker().unpack(sealed(data))) == contents(plain)
    assert len(plain.windows[0].facts) == 2


def test_every_damage_is_refused_or_read(message: pb.Segment) -> None:
    """A byte changed anywhere: refused with a reason, or read as protobuf itself reads it."""
    data, draw, refused = message.SerializeToString(), random.Random(8), 0
    unpacker = Unpacker()
    for _ in range(1500):
        damaged = bytearray(data)
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            found = unpacker.unpack(sealed(bytes(damaged)))
        except WireError:
            refused += 1
            continue
        told = codec.windows(pb.Segment.FromString(bytes(damaged)))
        assert [len(w.kernels) for w in told] == [len(w.facts) for w in found.windows]
        for record, own in zip(told, found.windows, strict=True):
            assert [k.total_ns for k in record.kernels] == own.facts.columns[1].tolist()
            assert [k.histogram for k in record.kernels] == own.facts.histograms.each()
    assert 300 < refused < 1500


def test_a_dictionary_that_comes_again_is_the_same_object(message: pb.Segment) -> None:
    """Recognised by the hash of its bytes, from the second time on; one byte more and it is checked anew."""
    unpacker = Unpacker()
    once = unpacker.unpack(sealed(message.SerializeToString()))
    first = unpacker.unpack(sealed(message.SerializeToString()))
    message.windows[0].uid = bytes(16)
    again = unpacker.unpack(sealed(message.SerializeToString()))
    message.dictionary.strings.append("more")
    other = unpacker.unpack(sealed(message.SerializeToString()))
    assert first.dictionary is again.dictionary
    assert once.dictionary is not first.dictionary
    assert other.dictionary is not first.dictionary
    assert other.signatures == first.signatures
    assert other.dictionary.catalog is first.dictionary.catalog
