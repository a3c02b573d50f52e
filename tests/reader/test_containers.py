"""Foreign files, folders, descriptors and gzip: what holds a trace, and what does not."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path

import pytest

from roofwatch.collectors.registry import read, read_path
from roofwatch.model.errors import RoofwatchError

RECORDS = 12  # of the real trace


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"   \n ", "only blanks"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not JSON"),
        (b"PK\x03\x04abc", "zip archive.*unpack"),
        (b"\x28\xb5\x2f\xfdabc", "zstd data.*decompress"),
        (b"SQLite format 3\x00abc", "SQLite database"),
        ("{}".encode("utf-16"), "UTF-16.*UTF-8"),
        (b"12", "not JSON"),
        (b'{"traceEvents": {"a": 1}}', "traceEvents is not a list"),
        (b'{"traceEvents": null}', "traceEvents is not a list"),
        (b'{"a": [1, 2', "not whole JSON at byte 11 and holds no traceEvents"),
        (b'[{"ph":"X","cat":"other","name":"x","ts":1,"dur":1}]', "1 events and among them neither"),
        (
            b'[{"ph":"M","name":"process_name","pid":1,"args":{"name":"Ascend Hardware"}}]',
            "no kernel and no collective",
        ),
        (b"[" * 100_000, "no events|neither"),
        (b'{"a":' * 100_000, "traceEvents"),
        (b"\x1f\x8b", "is empty .*gzip header"),
        (b"\x1f\x8b\x08\x00" + b"\x00" * 6 + b"\xff" * 50, "gzip stream is damaged"),
        (gzip.compress(b"", mtime=0), "is empty"),
    ],
)  # fmt: skip
def test_not_a_trace(read_bytes, data: bytes, sentence: str) -> None:
    """Foreign input is named for what it is."""
    with pytest.raises(RoofwatchError, match=sentence):
        read_bytes(data)


def test_a_folder_and_nothing(tmp_path: Path) -> None:
    """A folder and a missing file are said to be that."""
    with pytest.raises(RoofwatchError, match="cannot be opened: Is a directory"):
        read(tmp_path)
    with pytest.raises(RoofwatchError, match="cannot be opened: No such file"):
        read(tmp_path / "missing.json")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(RoofwatchError, match="Is a directory"):
        read(descriptor)
    os.close(descriptor)


def test_descriptor_is_read_from_its_beginning_and_stays_open(sound: bytes) -> None:
    """A descriptor passed on by the process that wrote the file stands at its end."""
    descriptor = os.memfd_create("window")
    os.write(descriptor, sound)

    assert sum(g.calls for g in read(descriptor).groups) == RECORDS
    assert os.fstat(descriptor).st_size == len(sound)
    with os.fdopen(descriptor, "rb") as file:
        assert sum(g.calls for g in read(file).groups) == RECORDS
        assert not file.closed


def test_progress_is_told(tmp_path: Path, sound: bytes) -> None:
    """Progress counts the bytes of the file, up to its size."""
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(sound))
    told: list[tuple[int, int | None]] = []

    read(path, progress=lambda done, size: told.append((done, size)))

    assert told[-1] == (path.stat().st_size, path.stat().st_size)


def test_gzip_members_and_what_follows_them(read_bytes, sound: bytes) -> None:
    """A trace in three gzip members is one trace; zeros after it are padding, other bytes are told."""
    third = len(sound) // 3
    packed = b"".join(gzip.compress(sound[at : at + third]) for at in range(0, len(sound), third))

    assert read_bytes(packed).problem is None
    assert read_bytes(packed + b"\x00" * 600).problem is None
    followed = read_bytes(packed + b"junk")
    assert sum(g.calls for g in followed.groups) == RECORDS
    assert "not gzip follow" in (followed.problem or "")


def test_wrong_checksum_is_told(read_bytes, sound: bytes) -> None:
    """All is read, and that the checksum is wrong is said."""
    packed = bytearray(gzip.compress(sound))
    packed[-6] ^= 1

    profile = read_bytes(bytes(packed))
    assert sum(g.calls for g in profile.groups) == RECORDS
    assert "checksum is wrong" in (profile.problem or "")


def test_gzip_header_with_all_fields(read_bytes, sound: bytes) -> None:
    """Extra field, file name, comment and header checksum of a gzip header are skipped."""
    header = b"\x1f\x8b\x08\x1e" + b"\x00" * 6 + b"\x03\x00abc" + b"name.json\x00" + b"a comment\x00" + b"\x12\x34"
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(sound) + deflate.flush()
    trailer = zlib.crc32(sound).to_bytes(4, "little") + len(sound).to_bytes(4, "little")

    profile = read_bytes(header + body + trailer)
    assert (sum(g.calls for g in profile.groups), profile.problem) == (RECORDS, None)


def test_a_trace_of_jax_is_refused_by_name(read_bytes):
    """XLA's events have no category, and their list ends with an empty object: that is no damage."""
    event = {"ph": "X", "pid": 1, "tid": 13, "ts": 1, "dur": 2, "name": "loop_add_fusion", "args": {"hlo_op": "add.1"}}
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": [event, {}]}).encode()
    with pytest.raises(RoofwatchError, match=r"2 events of JAX or XLA, which .*torch.profiler\.$"):
        read_bytes(text)


def test_a_folder_of_traces(tmp_path):
    """What torch.profiler's handler writes into a folder are files to choose one of."""
    (tmp_path / "host_1.1.pt.trace.json.gz").write_bytes(b"")
    with pytest.raises(RoofwatchError, match=r"give one of them, such as host_1\.1\.pt\.trace\.json\.gz\.$"):
        read_path(tmp_path)
