"""A moving window on a stream of blocks."""

from __future__ import annotations

from collections.abc import Iterator

CHUNK_BYTES = 1 << 20  # text decoded at once: large enough to be fast, small beside the memory of the interpreter
BLANK = b" \t\r\n"


class Buffer:
    """The part of a file that is being looked at: ``text``, which begins at position ``base`` of the file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.text = b""
        self.base = 0
        self.ended = False  # the file has no more than what is in ``text``
        self._blocks = blocks

    def fill(self, size: int) -> bool:
        """Makes ``text`` at least ``size`` bytes long; False where the file ends before."""
        if len(self.text) >= size:
            return True
        parts = [self.text]
        have = len(self.text)
        while have < size and not self.ended:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
            else:
                parts.append(block)
                have += len(block)
        self.text = b"".join(parts)
        return have >= size

    def skip(self, count: int) -> None:
        """Moves on by ``count`` bytes."""
        self.text = self.text[count:]
        self.base += count

    def skip_blanks(self) -> bool:
        """Moves to the next byte that is not blank; False at the end of the file."""
        while True:
            rest = self.text.lstrip(BLANK)
            self.skip(len(self.text) - len(rest))
            if rest:
                return True
            if not self.fill(1):
                return False
