"""Between records and wire messages: the one place that knows both.

Encoding builds the dictionary of a segment as it goes; decoding trusts nothing: every index and column length is
checked, every signature's id is recomputed, and a broken segment raises ``WireError`` with what is wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import zstandard
from google.protobuf.message import DecodeError

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import ProcessState, Window
from roofwatch.proto import decode, encode, weight
from roofwatch.proto.v1 import roofwatch_pb2 as pb

SEGMENT_SCHEMA = 1
PROTOCOL = 1
DATABASE_AWAY = (("roofwatch-away", "database"),)  # beside UNAVAILABLE: the store is there, what it says is the reason
MAX_PARSED_BYTES = 384 << 20  # in memory; what an agent seals is a tenth of it
MAX_SEGMENT_BYTES = 64 << 20  # decompressed; a window of 1,000 signatures is about 200 kB


class WireError(RoofwatchError):
    """A segment that cannot be what an agent sealed."""


def segment(
    windows: Sequence[Window], agent_drops: dict[str, int] | None = None, states: Sequence[ProcessState] = ()
) -> pb.Segment:
    """Windows, and how processes stand, as one segment with the dictionary that its columns point into."""
    return encode.Encoder().segment(windows, SEGMENT_SCHEMA, agent_drops or {}, states)


def windows(message: pb.Segment) -> list[Window]:
    """The windows of a segment.

    Raises:
        WireError: an index, a column or an id does not fit.
    """
    if message.schema != SEGMENT_SCHEMA:
        raise WireError(
            f"segment schema {message.schema} is not {SEGMENT_SCHEMA}: "
            "bring the older one of agent and store to the other's version"
        )
    try:
        return decode.Decoder(message.dictionary).windows(message)
    except (IndexError, ValueError, KeyError) as error:
        raise WireError(f"damaged segment: {error}") from error


def states(message: pb.Segment) -> list[ProcessState]:
    """How the processes of a segment stand with their agent.

    Raises:
        WireError: an index does not fit.
    """
    try:
        return decode.Decoder(message.dictionary).states(message)
    except (IndexError, ValueError, KeyError) as error:
        raise WireError(f"damaged segment: {error}") from error


def seal(message: pb.Segment, agent: str, boot: str, sequence: int) -> pb.SegmentEnvelope:
    """Compress a segment under its number."""
    data = message.SerializeToString(deterministic=True)  # maps in order: the same content is the same segment
    payload = zstandard.ZstdCompressor(level=3).compress(data)  # a fresh object: zstd objects are not thread-safe
    return pb.SegmentEnvelope(
        id=pb.SegmentId(agent=agent, boot=boot, sequence=sequence),
        payload=payload,
        crc32=zlib.crc32(payload),
        raw_bytes=len(data),
        windows=len(message.windows),
    )


def unseal(envelope: pb.SegmentEnvelope) -> pb.Segment:
    """Check and decompress an envelope.

    Raises:
        WireError: checksum, size or content is wrong.
    """
    return parsed(raw(envelope))


def raw(envelope: pb.SegmentEnvelope) -> bytes:
    """The bytes of an envelope's segment.

    Raises:
        WireError: checksum or size is wrong, or it would take too much memory.
    """
    if zlib.crc32(envelope.payload) != envelope.crc32:
        raise WireError("damaged segment: the checksum does not fit the payload")
    if envelope.raw_bytes > MAX_SEGMENT_BYTES:
        raise WireError(f"segment of {envelope.raw_bytes} bytes: the limit is {MAX_SEGMENT_BYTES}")
    try:
        announced = zstandard.get_frame_parameters(envelope.payload).content_size
        if announced > MAX_SEGMENT_BYTES:  # zstd allocates what the frame says, whatever the limit below
            raise WireError(f"damaged segment: its frame announces no size, or more than {MAX_SEGMENT_BYTES} bytes")
        if announced != envelope.raw_bytes:
            raise WireError(f"damaged segment: {announced} bytes where {envelope.raw_bytes} were announced")
        found: bytes = zstandard.ZstdDecompressor().decompress(envelope.payload, max_output_size=MAX_SEGMENT_BYTES)
    except zstandard.ZstdError as error:
        raise WireError(f"damaged segment: {error}") from error
    if len(found) != envelope.raw_bytes:
        raise WireError(f"damaged segment: {len(found)} bytes where {envelope.raw_bytes} were announced")
    _check_weight(found)
    return found


def _check_weight(data: bytes) -> None:
    if len(data) <= weight.SMALL_BYTES:
        return
    try:
        size = weight.parsed_bytes(data, pb.Segment.DESCRIPTOR, MAX_PARSED_BYTES)
    except ValueError as error:
        raise WireError(f"damaged segment: not a protobuf message: {error}") from error
    if size > MAX_PARSED_BYTES:
        raise WireError(f"segment of more than {MAX_PARSED_BYTES} bytes in memory")


def parsed(data: bytes) -> pb.Segment:
    """A segment from its bytes.

    Raises:
        WireError: it is none.
    """
    message = pb.Segment()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise WireError("damaged segment: not a protobuf message") from error
    return message
