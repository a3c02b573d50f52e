"""Text of a CSV table → where each cell is, and its numbers: for a whole block of rows at once.

The tables have up to fifty cells a row and a million rows; as Python strings they take ten times their size and most of
the time. No cell of them holds a line break, so a line is a row whatever stands in quotes: what damages one row cannot
swallow the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto.times import text_to_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Bytes = NDArray[np.uint8]

_COMMA, _NEWLINE, _RETURN, _QUOTE, _DOT, _ZERO = (ord(c) for c in ',\n\r".0')
_BLANK = np.isin(np.arange(256), [ord(c) for c in ' \t\r"'])
_MOST_BLANKS = 4  # around a number: a tab, a return and quotes; what has more is read one by one
_WIDEST = 20  # characters of a number that is read in bulk: 16 digits of microseconds, a point, and three more
_POINT, _TEN = np.uint8(254), np.uint8(10)  # "." less "0", and the first that is no digit
_MOST = 1 << 62
_PART = 10  # digits that are summed at once: far below the 2⁵³ up to which a double counts
_NS = np.array([1000, 100, 10, 1], dtype=np.int64)  # nanoseconds of the last digit, by number of decimals
_TENS = 10 ** np.arange(19, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Cells:
    """The rows of a block that have the table's number of cells: where each cell begins and ends, row by column."""

    text: bytes
    start: Ints
    end: Ints
    odd: list[tuple[int, bytes]]  # the other rows: line, text; too few cells, too many, or a quote that is not closed
    lines: int

    def __len__(self) -> int:
        return len(self.start)

    def at(self, chosen: Mask | slice) -> Cells:
        """Some of the rows, without the odd ones."""
        return Cells(self.text, self.start[chosen], self.end[chosen], [], self.lines)

    def texts(self, first: int, last: int) -> list[bytes]:
        """The text from one column to another of each row, as written, separators between them included."""
        text = self.text
        bounds = zip(self.start[:, first].tolist(), self.end[:, last].tolist(), strict=True)
        return [text[low:high] for low, high in bounds]

    def times(self, column: int) -> Ints:
        """Nanoseconds of a column of microseconds, exactly; ``NO_TIME`` where a cell is no number."""
        found = self._numbers([column])
        scale = _NS[np.minimum(found.decimals, 3)]
        fits = found.good & (found.decimals <= 3) & (found.value <= _MOST // scale)
        result = np.where(fits, found.value, 0) * scale
        for row in np.flatnonzero(~fits).tolist():
            result[row] = text_to_ns(self._cell(row, column).strip(b' \t\r\n"'))
        return result

    def decimals(self, columns: Sequence[int]) -> Floats:
        """The numbers of columns, a row each; NaN where a cell is none."""
        found = self._numbers(columns)
        result = np.where(found.good, found.value / _TENS[found.decimals], np.nan)
        for at in np.flatnonzero(found.perhaps).tolist():
            result[at] = _float(self._cell(at % len(self), columns[at // len(self)]))
        return result.reshape(len(columns), len(self))

    def _cell(self, row: int, column: int) -> bytes:
        return self.text[int(self.start[row, column]) : int(self.end[row, column])]

    def _numbers(self, columns: Sequence[int]) -> _Numbers:
        raw = np.frombuffer(self.text, dtype=np.uint8)
        return _numbers(raw, *_stripped(raw, self.start[:, columns].T.ravel(), self.end[:, columns].T.ravel()))


def _stripped(raw: Bytes, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Bounds of cells without the blanks, tabs and quotes around them."""
    for _ in range(_MOST_BLANKS):
        blank = _BLANK[raw[end - 1]] & (end > start)
        if not blank.any():
            break
        end = end - blank
    for _ in range(_MOST_BLANKS):
        blank = _BLANK[raw[start]] & (end > start)
        if not blank.any():
            break
        start = start + blank
    return start, end


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Digits of unsigned decimal numbers as one integer, how many of them are decimals, and whether that is all."""

    value: Ints
    decimals: Ints
    good: Mask
    perhaps: Mask  # not good, but perhaps a number: too long, signed, or with an exponent


def _numbers(raw: Bytes, start: Ints, end: Ints) -> _Numbers:
    """Reads numbers that stand right-aligned, a row of a matrix a place; what is left of them counts as zeros."""
    length = end - start
    good = (length > 0) & (length <= _WIDEST)
    width = int(length[good].max()) if good.any() else 0
    back = np.arange(width, 0, -1)[:, None]
    at = end - back
    digit = raw[np.maximum(at, 0)] - np.uint8(_ZERO)  # wraps below "0"
    digit[at < start] = 0
    point = digit == _POINT
    is_digit = digit < _TEN
    good &= (is_digit | point).all(axis=0)
    points = point.sum(axis=0, dtype=np.int64)
    decimals = (point * (back - 1)).sum(axis=0)  # the place of the point from the right, where there is one
    good &= (points <= 1) & (length > points) & (decimals < _PART)
    digit *= is_digit
    low, high = _summed(digit[-_PART:]), _summed(digit[:-_PART])
    decimals = np.where(good, decimals, 0)
    after, shift = _TENS[decimals], _TENS[_PART - np.minimum(points, 1) - decimals * (points == 1)]
    good &= high < _MOST // (after * shift)
    whole, fraction = np.divmod(low, after)
    whole = np.where(points == 1, whole // 10, whole)  # the point took the place of a digit
    value = (np.where(good, high, 0) * shift + whole) * after + fraction
    return _Numbers(np.where(good, value, 0), decimals, good, ~good & (length > 0))


def _summed(digits: Bytes) -> Ints:
    """The integers that columns of digits are."""
    powers = _TENS[: len(digits)][::-1].astype(np.float64)
    result: Ints = (powers @ digits.astype(np.float64)).astype(np.int64)
    return result


def _float(cell: bytes) -> float:
    try:
        value = float(cell.strip(b' \t\r\n"').replace(b"_", b"?"))  # Python's own digit separator is none here
    except ValueError:
        return np.nan
    return value if np.isfinite(value) else np.nan


def cells_of(text: bytes, columns: int) -> Cells:
    """The cells of whole lines, of a table with a number of columns. The last line may lack its line break."""
    if text and not text.endswith(b"\n"):
        text += b"\n"
    raw = np.frombuffer(text, dtype=np.uint8)
    newline = raw == _NEWLINE
    line_end = np.flatnonzero(newline)
    line_start = np.append(0, line_end[:-1] + 1)[: len(line_end)]
    marked = (raw == _COMMA) | newline
    good = np.ones(len(line_end), dtype=np.bool_)
    if b'"' in text:
        inside, good = _quoted(raw, line_start, line_end)
        marked &= ~inside
    marks = np.flatnonzero(marked)
    count = np.diff(np.searchsorted(marks, line_end), prepend=-1)
    good &= count == columns
    if not good.all():
        marks = marks[np.repeat(good, count)]
    end = marks.reshape(-1, columns)
    start = np.empty_like(end)
    start[:, 1:] = end[:, :-1] + 1
    start[:, 0] = line_start[good]
    return Cells(text, start, end, _odd(text, np.flatnonzero(~good), line_start, line_end), len(line_end))


def _quoted(raw: Bytes, line_start: Ints, line_end: Ints) -> tuple[Mask, Mask]:
    """Which characters are in quotes, each line counted anew, and which lines close all of theirs."""
    quote = (raw == _QUOTE).view(np.uint8)
    parity = np.bitwise_xor.accumulate(quote)
    at_start = np.append(np.uint8(0), parity[line_end[:-1]])[: len(line_end)]  # a line break is no quote
    closed = parity[line_end] == at_start
    if at_start.any():
        parity ^= np.repeat(at_start, line_end - line_start + 1)
    inside = parity.view(np.bool_)
    inside[line_end] = False
    return inside, closed


def _odd(text: bytes, lines: Ints, start: Ints, end: Ints) -> list[tuple[int, bytes]]:
    """Rows without the right number of cells; blank lines are none."""
    lines = lines[end[lines] > start[lines]]
    bounds = zip(lines.tolist(), start[lines].tolist(), end[lines].tolist(), strict=True)
    rows = ((line, text[low:high].rstrip(b"\r")) for line, low, high in bounds)
    return [(line, row) for line, row in rows if row.strip()]


def row_of(line: bytes) -> list[str]:
    """What the cells of a line say; a comma in quotes separates nothing."""
    cells = [b""]
    for at, part in enumerate(line.rstrip(b"\r\n").split(b'"')):
        if at:
            cells[-1] += b'"'
        if at % 2:
            cells[-1] += part
        else:
            first, *more = part.split(b",")
            cells[-1] += first
            cells += more
    return [_unquoted(cell) for cell in cells]


def _unquoted(cell: bytes) -> str:
    """A cell without blanks and quotes around it; doubled quotes inside are one."""
    text = cell.strip(b" \t\r\n")
    if len(text) >= 2 and text[:1] == text[-1:] == b'"':
        text = text[1:-1].replace(b'""', b'"')
    return text.decode("utf-8", "replace")
