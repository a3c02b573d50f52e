"""Makes broken input from good: the changes that a torn disk, another version and an attacker make."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

NUMBERS = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"-9223372036854775808", b"9223372036854775807",
    b"18446744073709551616", b"1e308", b"1e-320", b"-0.0", b"NaN", b"Infinity", b"1" * 400, b"null",
    b'"7"', b"[]", b"true",
)  # fmt: skip
TEXTS = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\\ud800",
    b"A" * 5000,
    b"%s%n",
    b"';--",
    b"../../etc/passwd",
    b"\xe2\x80\xae",
    b"{}",
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_TEXT = re.compile(rb'"[^"\\\n]{1,60}"')

Change = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _slice(draw: random.Random, data: bytes, most: int = 200) -> tuple[int, int]:
    begin = draw.randrange(len(data) + 1)
    return begin, min(len(data), begin + draw.randrange(1, most))


def flip(draw: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """One bit."""
    if not data:
        return data
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def cut(draw: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A piece is missing."""
    begin, end = _slice(draw, data)
    return data[:begin] + data[end:]


def end(draw: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """It ends early."""
    return data[: draw.randrange(len(data) + 1)]


def again(draw: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A piece comes twice, or many times."""
    begin, stop = _slice(draw, data)
    return data[:stop] + data[begin:stop] * draw.choice((1, 1, 3, 100)) + data[stop:]


def other(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A piece of another file in the middle."""
    begin, stop = _slice(draw, source := draw.choice(seeds), 2000)
    at = draw.randrange(len(data) + 1)
    return data[:at] + source[begin:stop] + data[at:]


def zero(draw: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A piece that was never written."""
    begin, stop = _slice(draw, data)
    return data[:begin] + bytes(stop - begin) + data[stop:]


def _replaced(draw: random.Random, data: bytes, what: re.Pattern[bytes], by: bytes) -> bytes:
    start = draw.randrange(len(data) + 1)
    found = what.search(data, start) or what.search(data)
    return data if found is None else data[: found.start()] + by + data[found.end() :]


def number(draw: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A number is another, or none."""
    return _replaced(draw, data, _NUMBER, draw.choice(NUMBERS))


def text(draw: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A text is another."""
    return _replaced(draw, data, _TEXT, b'"' + draw.choice(TEXTS) + b'"')


BYTES: tuple[Change, ...] = (flip, flip, cut, end, again, other, zero)
WORDS: tuple[Change, ...] = (*BYTES, number, number, number, text, text)


def mutated(draw: random.Random, seeds: Sequence[bytes], changes: Sequence[Change]) -> bytes:
    """One of the seeds, changed a few times."""
    data = draw.choice(seeds)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        data = draw.choice(changes)(draw, data, seeds)
    return data[: 4 << 20]
