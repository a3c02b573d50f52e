"""When a process's windows may go without shapes, and what they borrow: the step of its last windows with them. Pure.

A step is lent once two windows with shapes in a row had the same one, to the last shape: shapes that change from batch
to batch are not lent. It holds for so many windows; then one with shapes comes again. A window whose ops or kernels are
not that step's borrows nothing, and after it two must agree anew. The daemon looks at nothing but the digest in front.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.collectors.base import BORROWED

DIGEST = 16  # bytes, before what is lent
MOST = 1 << 20  # bytes of one process; a step of 6,000 ops takes 20 kB
TOTAL = 64 << 20  # bytes of all


@dataclass(slots=True)
class Lending:
    """What one process's windows lend."""

    kept: bytes = b""
    agreed: bool = False  # the last two windows with shapes had the same step
    since: int = 0  # windows without shapes since the last one with them

    def with_shapes(self, lent: bytes, room: int) -> None:
        """A window with shapes was read; ``lent`` is empty where its steps were not alike. ``room``: bytes left."""
        lent = lent if len(lent) <= min(MOST, room) else b""
        self.agreed = bool(lent) and lent[:DIGEST] == self.kept[:DIGEST]
        self.kept, self.since = lent, 0

    def without(self, became: str) -> None:
        """A window without shapes was read."""
        self.since += 1
        if became != BORROWED:
            self.agreed, self.kept = False, b""

    def may_go_without(self, most: int) -> bool:
        """Whether the next window may go without, when ``most`` in a row may."""
        return self.agreed and self.since < most

    @property
    def lent(self) -> bytes:
        """What a window without shapes may borrow; empty where nothing."""
        return self.kept[DIGEST:] if self.agreed else b""
