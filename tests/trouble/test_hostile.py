"""Segments that are damaged, repeated, out of order, or made to harm, sent to a running store beside honest ones.

What each figure of a segment may be is tests/store/test_hostile.py's.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import zstandard
from fleet import Place
from store_builders import GEMM, NORM, RunningStore, hello_of, segment_of, send, stat, uid_of, window_of

from roofwatch.cli.fleet.local import Local
from roofwatch.model.record import Window
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import database
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries

Start = Callable[..., RunningStore]
LARGE = codec.MAX_SEGMENT_BYTES - 4096
GROWN_MOST = 700 << 20  # bytes that the store may ever have


def small(name: str) -> Window:
    """A window of two kernels, 1,050 ns."""
    return window_of(name, [stat(GEMM, [1000]), stat(NORM, [50])])


def raw_segment(raw: bytes, sequence: int, **changed: int) -> pb.SegmentEnvelope:
    """Bytes as a segment; ``changed`` are figures of the envelope that lie."""
    payload = zstandard.ZstdCompressor(level=1).compress(raw)
    told = {"crc32": zlib.crc32(payload), "raw_bytes": len(raw), "windows": 1} | changed
    return pb.SegmentEnvelope(
        id=pb.SegmentId(agent="agent-a", boot="boot-a", sequence=sequence), payload=payload, **told
    )


def part(number: int, content: bytes) -> bytes:
    """A field of bytes, by protobuf's encoding."""
    size, length = bytearray(), len(content)
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def announcing(size: int) -> bytes:
    """A zstd frame that announces so many bytes and has none (RFC 8878: magic, 8-byte size, window, empty block)."""
    return bytes.fromhex("28b52ffd") + b"\xc0\x00" + size.to_bytes(8, "little") + b"\x01\x00\x00"


def framed(frame: bytes, sequence: int, raw_bytes: int) -> pb.SegmentEnvelope:
    """A frame as it is."""
    found = raw_segment(b"", sequence, raw_bytes=raw_bytes, crc32=zlib.crc32(frame))
    found.payload = frame
    return found


HOSTILE: list[tuple[Callable[[int], pb.SegmentEnvelope], str]] = [
    (lambda n: raw_segment(b"\x08\x01" + b"\x1a\x00" * (LARGE // 2), n), "bytes in memory"),  # windows
    (lambda n: raw_segment(b"\x08\x01" + part(2, b"\x0a\x00" * (LARGE // 2)), n), "bytes in memory"),  # of strings
    (lambda n: raw_segment(b"\x08\x01" + part(3, part(10, b"\x22\x00" * (LARGE // 2))), n), "bytes in memory"),
    (lambda n: raw_segment(b"\x08\x01" + part(3, part(14, part(3, b"\x01" * LARGE))), n), "bytes in memory"),  # numbers
    (lambda n: framed(announcing(1 << 60), n, 100), "announces no size, or more"),
    (lambda n: framed(announcing(1 << 20), n, 100), "1048576 bytes where 100 were announced"),
    (lambda n: raw_segment(b"\x08\x01", n, raw_bytes=1 << 60), "the limit is"),
    (lambda n: raw_segment(b"\x08\x01", n, crc32=1), "the checksum does not fit"),
    (lambda n: framed(raw_segment(b"\x08\x01" * 5000, 1).payload[:-7], n, 10_000), "damaged segment"),
    (lambda n: raw_segment(b"\xff" * 300_000, n), "damaged segment"),
]  # fmt: skip


def acks(found: list[pb.StoreMessage]) -> list[tuple[int, str]]:
    """Status and reason of each."""
    return [(message.ack.status, message.ack.reason) for message in found]


def kernel_time(place: Place) -> dict[str, int]:
    """What ``top`` tells of each kernel."""
    opened = database.open(place.url)
    try:
        return {row["kernel"]: row["total_ns"] for row in Queries(opened).run("top", Filter())["rows"]}
    finally:
        opened.close()


def test_sizes_that_lie(tmp_path: Path, start: Start) -> None:
    """Each is refused with its reason, at no cost of memory, while honest segments of the same stream are stored."""
    place = Place(tmp_path / "store.db")
    store = start(place)
    messages: list[pb.AgentMessage | pb.SegmentEnvelope] = []
    for i, (made, _) in enumerate(HOSTILE):
        messages += [made(2 * i + 1), segment_of([small(f"w{i}")], 2 * i + 2)]
    found = {m.ack.id.sequence: m.ack for m in send(store.address, messages, len(messages))}
    for i, (_, reason) in enumerate(HOSTILE):
        assert found[2 * i + 1].status == pb.REJECTED
        assert reason in found[2 * i + 1].reason
        assert found[2 * i + 2].status == pb.STORED
    assert Local(store.address, store.process.pid).largest_bytes() < GROWN_MOST
    assert store.terminate()[0] == 0
    assert sorted(place.uids()) == sorted(uid_of(f"w{i}") for i in range(len(HOSTILE)))
    assert kernel_time(place) == {GEMM.kernel: 1000 * len(HOSTILE), NORM.kernel: 50 * len(HOSTILE)}


def test_repeated_and_out_of_order(place: Place, start: Start) -> None:
    """Segments come in any order, each three times, some at once in two streams: each counts once."""
    store = start(place)
    segments = [segment_of([small(f"{i}")], i) for i in range(1, 21)]
    mixed = [*segments[10:], *segments[:10]] + segments[::-1] + [s for s in segments for _ in range(1)]
    found = acks(send(store.address, list(mixed), len(mixed)))
    assert sorted(status for status, _ in found) == [pb.STORED] * 20 + [pb.DUPLICATE] * 40
    assert [status for status, _ in acks(send(store.address, list(segments), 20))] == [pb.DUPLICATE] * 20
    assert sorted(place.uids()) == sorted(uid_of(f"{i}") for i in range(1, 21))
    assert kernel_time(place) == {GEMM.kernel: 20_000, NORM.kernel: 1000}


def test_a_window_in_two_segments(place: Place, start: Start) -> None:
    """One window, sealed into two segments."""
    store = start(place)
    sent = [segment_of([small("a"), small("b")], 1), segment_of([small("b"), small("c")], 2)]
    assert {status for status, _ in acks(send(store.address, [*sent], 2))} == {pb.STORED}
    assert sorted(place.uids()) == sorted(map(uid_of, "abc"))
    assert kernel_time(place) == {GEMM.kernel: 3000, NORM.kernel: 150}


def test_a_dictionary_that_takes_an_id(place: Place, start: Start) -> None:
    """A segment gives a known id to another kernel, before and after the id's owner came: neither becomes the other."""
    store = start(place)
    false = codec.segment([window_of("false", [stat(NORM, [7])])])
    false.dictionary.signatures.id[0] = GEMM.id
    new = codec.segment([window_of("new", [stat(NORM, [7])])])
    new.dictionary.signatures.id[0] = 12345
    sent = [
        codec.seal(false, "agent-a", "boot-a", 1),  # before its owner
        segment_of([small("a")], 2),
        codec.seal(false, "agent-a", "boot-a", 3),  # and after
        codec.seal(new, "agent-a", "boot-a", 4),  # of nobody
        segment_of([small("b")], 5),
    ]
    found = [acks(send(store.address, [one], 1))[0] for one in sent]
    assert [status for status, _ in found] == [pb.REJECTED, pb.STORED, pb.REJECTED, pb.REJECTED, pb.STORED]
    assert all("is not the hash of its content" in found[i][1] for i in (0, 2, 3))
    assert kernel_time(place) == {GEMM.kernel: 2000, NORM.kernel: 100}
    names = place.ask("SELECT t.value, s.flops FROM signatures s JOIN texts t ON t.id = s.kernel_id ORDER BY s.flops")
    assert [tuple(row) for row in names] == [(NORM.kernel, NORM.flops), (GEMM.kernel, GEMM.flops)]


def test_two_agents_with_one_identity(place: Place, start: Start) -> None:
    """A machine was cloned while it ran: what both sent is stored once, what only one sent is stored or told of."""
    store = start(place)
    before = [segment_of([small(f"both-{i}")], i) for i in range(1, 4)]
    first = [*before, *(segment_of([small(f"first-{i}")], i) for i in range(4, 8))]
    clone = [*before, *(segment_of([small(f"clone-{i}")], i) for i in range(4, 10))]
    assert {status for status, _ in acks(send(store.address, [*first], 7))} == {pb.STORED}
    found = {m.ack.id.sequence: m.ack for m in send(store.address, [*clone], 9)}
    statuses = [found[i].status for i in range(1, 10)]
    assert statuses == [pb.DUPLICATE] * 3 + [pb.REJECTED] * 4 + [pb.STORED] * 2
    assert {found[i].reason.partition(": ")[2] for i in range(4, 8)} == {"two agents share one identity"}
    expected = [f"both-{i}" for i in range(1, 4)] + [f"first-{i}" for i in range(4, 8)] + ["clone-8", "clone-9"]
    assert sorted(place.uids()) == sorted(map(uid_of, expected))
    assert kernel_time(place) == {GEMM.kernel: 9000, NORM.kernel: 450}


def test_a_hello_that_cannot_be_stored(tmp_path: Path, start: Start) -> None:
    """A text that no database takes is refused with the reason, not passed over."""
    store = start(Place(tmp_path / "store.db"))
    for field in ("agent", "boot", "host"):
        with grpc.insecure_channel(store.address) as channel, pytest.raises(grpc.RpcError) as told:
            list(rpc.IngestStub(channel).Stream(iter([hello_of(**{field: "a\0b"})]), timeout=20))
        assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "not text" in told.value.details()


def test_results_without_an_end(tmp_path: Path, start: Start) -> None:
    """An agent answers a command for ever: the store keeps some of it."""
    store = start(Place(tmp_path / "store.db"))
    result = pb.AgentMessage(result=pb.CommandResult(id="one", reason="x" * 10_000))
    send(store.address, [result] * 20_000 + [segment_of([small("a")], 1)], 1)  # 200 MB
    assert Local(store.address, store.process.pid).largest_bytes() < 200 << 20
