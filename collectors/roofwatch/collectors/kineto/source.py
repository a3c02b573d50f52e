"""Bytes of a trace, decompressed on the way, never more than a block at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from isal import igzip_lib, isal_zlib

from roofwatch.collectors.base import Limits
from roofwatch.model.errors import RoofwatchError

Progress = Callable[[int, int | None], None]  # compressed bytes read so far, size of the file where known

READ_BYTES = 1 << 18
INFLATE_BYTES = 1 << 18  # a block that turns out damaged is lost whole, so it is kept small
_GZIP = b"\x1f\x8b"
_TRAILER_BYTES = 8
_EXTRA, _NAME, _COMMENT, _HEADER_CRC = 4, 8, 16, 2

# Containers that a trace may come in and that are not read here, by their first bytes.
_OTHER_FORMATS = (
    (b"\x28\xb5\x2f\xfd", "zstd data", "decompress it first"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"BZh", "bzip2 data", "decompress it first"),
    (b"\xfd7zXZ", "xz data", "decompress it first"),
    (b"SQLite format 3\x00", "an SQLite database", "give the file, not a pipe"),
    (b"\xff\xfe", "UTF-16 text", "convert it to UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "convert it to UTF-8"),
)


class Source:
    """One input file as blocks of plain bytes. ``problem`` says, after the last block, why it ended early."""

    def __init__(self, file: BinaryIO, name: str, limits: Limits, progress: Progress | None = None) -> None:
        self.name = name
        self.problem: str | None = None
        self.over_limit = False
        self._file = file
        self._limits = limits
        self._progress = progress
        self._read = 0
        self._size = _size_of(file)

    def blocks(self) -> Iterator[bytes]:
        """Blocks of decompressed bytes, at most ``READ_BYTES`` each.

        Raises:
            RoofwatchError: the file cannot be read, or is of a format that is not JSON.
        """
        first = self._next()
        for magic, what, advice in _OTHER_FORMATS:
            if first.startswith(magic):
                raise RoofwatchError(f"{self.name} is {what}, not a JSON trace: {advice}.")
        plain = self._gunzip(first) if first.startswith(_GZIP) else self._plain(first)
        total = 0
        for block in plain:
            total += len(block)
            if total > self._limits.max_bytes:
                self.over_limit = True
                self.problem = f"only the first {self._limits.max_bytes} bytes were read (the size limit)"
                return
            yield block

    def _plain(self, first: bytes) -> Iterator[bytes]:
        while first:
            yield first
            first = self._next()

    def _next(self) -> bytes:
        try:
            block = self._file.read(READ_BYTES)
        except OSError as error:
            raise RoofwatchError(f"{self.name} cannot be read: {error.strerror or error}.") from error
        self._read += len(block)
        if self._progress is not None:
            self._progress(self._read, self._size)
        return block

    def _more(self, data: bytes, need: int) -> bytes:
        """``data`` with at least ``need`` bytes, fewer only at the end of the file."""
        while len(data) < need and (block := self._next()):
            data += block
        return data

    def _gunzip(self, data: bytes) -> Iterator[bytes]:
        """All members of a gzip file; a damaged one ends the stream after its last whole block."""
        while data.startswith(_GZIP):
            body = self._skip_header(data)
            if body is None:
                self.problem = "the gzip header is damaged or cut off"
                return
            inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)
            crc = size = 0
            while not inflater.eof:
                if inflater.needs_input and not body:
                    body = self._next()
                    if not body:
                        self.problem = f"the gzip stream is cut off after {self._read} bytes"
                        return
                try:
                    block = inflater.decompress(body, INFLATE_BYTES)
                except igzip_lib.IsalError:  # type: ignore[misc]  # its stub says it is an instance
                    self.problem = f"the gzip stream is damaged before byte {self._read}"
                    return
                body = b""
                crc, size = isal_zlib.crc32(block, crc), size + len(block)
                if block:
                    yield block
            data = self._more(inflater.unused_data, _TRAILER_BYTES)
            if data[:_TRAILER_BYTES] != crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little"):
                self.problem = "the gzip checksum is wrong, so some of the text may be"
                return
            data = self._more(data[_TRAILER_BYTES:], len(_GZIP))
        if data.strip(b"\x00"):
            self.problem = "bytes that are not gzip follow the compressed trace and were left out"

    def _skip_header(self, data: bytes) -> bytes | None:
        """What follows the header of a gzip member (RFC 1952 §2.3), None where the header is not whole."""
        data = self._more(data, READ_BYTES)
        if len(data) < 10 or data[2] != 8:
            return None
        flags, at = data[3], 10
        if flags & _EXTRA:
            at += 2 + int.from_bytes(data[at : at + 2], "little")
        for flag in (_NAME, _COMMENT):
            if flags & flag:
                at = data.find(b"\x00", at) + 1
                if at == 0:
                    return None
        if flags & _HEADER_CRC:
            at += 2
        return data[at:] if at < len(data) else None


def _size_of(file: BinaryIO) -> int | None:
    try:
        size = os.fstat(file.fileno()).st_size
    except (OSError, AttributeError, ValueError):
        return None
    return size or None
