"""Times as text → integer nanoseconds. Never through a float: at 1.7e15 µs a double is 250 ns coarse."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from msgspec import Raw
    from numpy.typing import NDArray

NO_TIME = np.iinfo(np.int64).min  # stands for a time that is missing or is not a number
_MAX_NS = 1 << 62
_NUMBER = re.compile(rb"-?\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?\Z|-?\.\d{1,40}\Z")
_FAST_BYTES = b"0123456789.,"
_MAX_FAST_DIGITS = 18  # fits int64
_COMMA, _DOT = ord(","), ord(".")
_SCALE = np.array([1000, 100, 10, 1], dtype=np.int64)  # nanoseconds of the last digit, by number of decimals


def text_to_ns(text: bytes) -> int:
    """Nanoseconds of one number of microseconds, plain or in quotes, to the nearest; ``NO_TIME`` if it is none."""
    text = text.strip(b'" \t\r\n')
    if not _NUMBER.match(text):
        return int(NO_TIME)
    value = Decimal(text.decode())
    if value and value.adjusted() > 18:
        return int(NO_TIME)
    ns = round(value * 1000)
    return ns if abs(ns) < _MAX_NS else int(NO_TIME)


def texts_to_ns(texts: Sequence[Raw]) -> NDArray[np.int64]:
    """Nanoseconds of many numbers of microseconds, as ``text_to_ns`` gives them one by one."""
    if not texts:
        return np.empty(0, dtype=np.int64)
    fast = _fast(b",".join(texts).replace(b'"', b""), len(texts))
    if fast is not None:
        return fast
    return np.array([text_to_ns(bytes(text)) for text in texts], dtype=np.int64)


def _fast(joined: bytes, count: int) -> NDArray[np.int64] | None:
    """The same for plain unsigned numbers of at most three decimals; None where one of them is anything else.

    The digits without their point are one integer; where the point stood says by which power of ten to scale it.
    """
    if joined.translate(None, _FAST_BYTES):
        return None
    raw = np.frombuffer(joined, dtype=np.uint8)
    ends = np.append(np.flatnonzero(raw == _COMMA), len(raw))
    if len(ends) != count:
        return None
    lengths = np.diff(ends, prepend=-1) - 1
    dots = np.flatnonzero(raw == _DOT)
    owner = np.searchsorted(ends, dots)
    decimals = np.zeros(count, dtype=np.int64)
    decimals[owner] = ends[owner] - dots - 1
    digits = lengths - np.bincount(owner, minlength=count)
    odd = (digits < 1) | (digits > _MAX_FAST_DIGITS) | (decimals >= len(_SCALE)) | (lengths - digits > 1)
    if odd.any():
        return None
    return _scaled(joined.replace(b".", b""), decimals)


def _scaled(digits: bytes, decimals: NDArray[np.int64]) -> NDArray[np.int64] | None:
    values = np.fromstring(digits, dtype=np.int64, sep=",")
    scale = _SCALE[decimals]
    if len(values) != len(decimals) or (values > _MAX_NS // scale).any():
        return None
    result: NDArray[np.int64] = values * scale
    return result
