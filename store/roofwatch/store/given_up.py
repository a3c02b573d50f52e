"""Pieces whose sums cannot be made, so that they are not tried again and again: no more than so many are remembered."""

from __future__ import annotations

import logging

MOST = 20_000  # remembered one by one: 4 MB, and rows that a look at what is due passes over
Piece = tuple[int, int, int]  # grain, beginning, process
_log = logging.getLogger(__name__)


class GivenUp(set[Piece]):
    """Those that failed since the start.

    Once there are too many the older half is forgotten, and whatever begins ``before_ns`` is not summed up any more: to
    try the forgotten ones again would leave no time for others. Answers take what is not summed up from windows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before_ns = 0
        self.forgotten = 0

    @property
    def count(self) -> int:
        """How many failed."""
        return len(self) + self.forgotten

    def add(self, piece: Piece) -> None:
        """One more."""
        super().add(piece)
        if len(self) <= MOST:
            return
        self.before_ns = max(self.before_ns, sorted(bucket for _, bucket, _ in self)[len(self) // 2] + 1)
        old = {one for one in self if one[1] < self.before_ns}
        self -= old
        self.forgotten += len(old)
        _log.warning("%d sums cannot be made: none of before %d is, until a restart", self.count, self.before_ns)
