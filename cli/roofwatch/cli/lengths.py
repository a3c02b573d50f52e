"""Lengths of sequences as a user gives them: numbers, or a file with a number or a batch a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roofwatch.hook.padding import MOST_LENGTH, MOST_LENGTHS, coarse
from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.model.padding import of_batches
from roofwatch.model.record import Padding

MOST_BYTES = 64 << 20
_HEAD = 4096
_NUMBERS = re.compile(r"[\d,;\s]*\d[\d,;\s]*")

Batches = list[list[int]]


def is_lengths(path: Path) -> bool:
    """Whether a file begins like one of lengths: digits, commas and white space."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head.isascii() and _NUMBERS.fullmatch(head.decode("ascii")) is not None


def batches_of(given: str, batch_size: int | None) -> Batches:
    """The batches in a text of numbers, or in the file that it names.

    A line with several numbers is a batch; where every line has one, all together are, or so many as ``batch_size``.

    Raises:
        UsageError: it is neither.
        RoofwatchError: the file cannot be read.
    """
    if _NUMBERS.fullmatch(given):
        return _grouped([_numbers(given, "--lengths")], batch_size)
    path = Path(given)
    if not path.is_file():
        raise UsageError(f"{given!r} is neither a list of lengths like 120,2048,96 nor a file.")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RoofwatchError(f"{path} is larger than {MOST_BYTES >> 20} MiB: give a part of it, as a sample.")
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise RoofwatchError(f"{path} cannot be read: {error.strerror or error}.") from error
    lines = [_numbers(line, f"{path}, line {i}") for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{path} holds no lengths: write a number, or the numbers of a batch, a line.")
    single = all(len(line) == 1 for line in lines)
    return _grouped([[line[0] for line in lines]] if single else lines, batch_size)


def _numbers(text: str, where: str) -> list[int]:
    if not _NUMBERS.fullmatch(text):
        raise UsageError(f"{where}: {text.strip()[:40]!r} is no list of lengths like 120,2048,96.")
    found = [int(word) if len(word) <= 18 else MOST_LENGTH + 1 for word in re.findall(r"\d+", text)]
    if max(found) > MOST_LENGTH:
        raise UsageError(f"{where}: a length above {MOST_LENGTH:,} tokens is none.")
    return found


def _grouped(batches: Batches, size: int | None) -> Batches:
    """Batches of a size, in the given order, where one is given."""
    if size is None:
        return batches
    every = [length for batch in batches for length in batch]
    return [every[i : i + size] for i in range(0, len(every), size)]


def padding_of(batches: Sequence[Sequence[int]], padded_to: int | None) -> Padding:
    """The record of these batches, as a hook tells it: with too many distinct lengths they are rounded up."""
    found = of_batches(batches, padded_to)
    if len(found.lengths) <= MOST_LENGTHS:
        return found
    lengths, moved = coarse(dict(found.lengths), MOST_LENGTHS)
    return replace(found, lengths=tuple((length, count) for length, count in lengths), coarsened=moved)


def cut(batches: Sequence[Sequence[int]], padded_to: int | None) -> str | None:
    """A sentence where sequences are longer than what batches are padded to."""
    lengths = [length for batch in batches for length in batch]
    longer = sum(length > padded_to for length in lengths) if padded_to is not None else 0
    if not longer:
        return None
    return (
        f"{longer:,} of {len(lengths):,} sequences are longer than --padded-to {padded_to:,} and count as cut to it: "
        f"the longest has {max(lengths):,} tokens."
    )
