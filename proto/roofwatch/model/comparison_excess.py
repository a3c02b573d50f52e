"""What the side that is behind loses beyond what the hardware explains, in its own time, and where. Pure functions.

Of work that both sides do, a side loses its time less the other's × what the hardware makes of it; of what is unknown
or without a partner all that it takes longer. Kernels are looked at row by row; communication and copies as far as
nothing hides them; overlap, and idle time by cause. Swapped, the sides say the same of the same device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.comparison_pieces import COMPUTE
from roofwatch.model.comparison_rows import Row, op_of

CLOSING = 3  # places that are named as what would close the difference
_KERNEL_PARTS = frozenset({"kernels", "unknown_roof", "unmatched", "layout"})  # whose rows are looked at one by one


@dataclass(frozen=True, slots=True)
class Excess:
    """The loss: ``lost_ns`` where the side that is behind is slower, ``won_ns`` what it makes up for elsewhere."""

    right_behind: bool
    lost_ns: int
    won_ns: int
    closing: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """``behind, lost_ns, won_ns, closing``; ``behind`` is null where nobody loses anything."""
        return {
            "behind": ("right" if self.right_behind else "left") if self.lost_ns else None,
            "lost_ns": self.lost_ns,
            "won_ns": self.won_ns,
            "closing": self.closing,
        }


@dataclass(frozen=True, slots=True)
class _Place:
    """Where time can be lost: a row of kernels, by its number, or a part of the time that no kernel's row is."""

    name: int | str
    on_right: float
    on_left: float

    def lost(self, *, right_behind: bool) -> float:
        return self.on_right if right_behind else self.on_left


def excess(rows: Sequence[Row], parts: Sequence[Mapping[str, Any]], left_ns: int, right_ns: int) -> Excess:
    """The loss of a unit that takes ``left_ns`` and ``right_ns``, from all rows and the parts of both times.

    That side is behind which loses the larger share of its own time.
    """
    places = [
        _Place(i, row.excess_ns(right_behind=True), row.excess_ns(right_behind=False))
        for i, row in enumerate(rows, 1)
        if row.sort == COMPUTE
    ]
    places += [
        _Place(part["part"], part["difference_ns"], -part["difference_ns"])
        for part in parts
        if part["part"] not in _KERNEL_PARTS
    ]
    right, left = (math.fsum(p.lost(right_behind=side) for p in places) for side in (True, False))
    behind = right * max(left_ns, 1) >= left * max(right_ns, 1)
    losses = [(p.lost(right_behind=behind), p) for p in places]
    lost = math.fsum(loss for loss, _ in losses if loss > 0)
    largest = sorted(enumerate(losses), key=lambda one: (-one[1][0], one[0]))[:CLOSING]
    return Excess(
        behind,
        round(lost),
        round(math.fsum(-loss for loss, _ in losses if loss < 0)),
        [
            {**_named(place, rows), "side": "right" if behind else "left", "excess_ns": round(loss),
             "share": ratio(loss, lost)}
            for _, (loss, place) in largest
            if round(loss) > 0
        ],
    )  # fmt: skip


def _named(place: _Place, rows: Sequence[Row]) -> dict[str, Any]:
    """What a place is: of a row its number and work, else the part's name."""
    if isinstance(place.name, str):
        nothing = dict.fromkeys(("row", "op", "kernel", "kind", "group", "match"))
        return {**nothing, "part": place.name, "judged": False}
    row = rows[place.name - 1]
    return {
        "row": place.name,
        "op": op_of(row.match),
        "kernel": row.lead.kernels[0],
        "kind": str(row.lead.kind),
        "group": row.match.name,
        "match": row.match.tier,
        "part": None,
        "judged": row.expected is not None,
    }
