"""What the side that is behind loses beyond what the hardware explains, in its own time, and where. Pure functions.

Of work that both sides do, a side loses its time less the other's × what the hardware makes of it; of what is unknown
or without a partner all that it takes longer. Kernels are looked at row by row; communication and copies as far as
nothing hides them; overlap, and idle time by cause. Swapped, the sides say the same of the same device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.comparison_pieces import COMPUTE
from roofwatch.model.comparison_rows import Row, lead_of, op_of

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


def excess(rows: Sequence[Row], parts: Sequence[Mapping[str, Any]], left_ns: int, right_ns: int) -> Excess:
    """The loss of a unit that takes ``left_ns`` and ``right_ns``, from all rows and the parts of both times.

    That side is behind which loses the larger share of its own time. Time can be lost in rows of kernels, which have a
    number, and in parts of the time that no kernel's row is.
    """
    numbers = [i for i, sort in enumerate(map(attrgetter("sort"), rows), 1) if sort == COMPUTE]
    others = [part for part in parts if part["part"] not in _KERNEL_PARTS]
    places: list[int | str] = [*numbers, *(part["part"] for part in others)]
    on_right, on_left = ([rows[i - 1].excess_ns(right_behind=side) for i in numbers] for side in (True, False))
    on_right += [part["difference_ns"] for part in others]
    on_left += [-part["difference_ns"] for part in others]
    behind = math.fsum(on_right) * max(left_ns, 1) >= math.fsum(on_left) * max(right_ns, 1)
    losses = on_right if behind else on_left
    lost = math.fsum([loss for loss in losses if loss > 0])
    largest = sorted(range(len(losses)), key=lambda i: -losses[i])[:CLOSING]
    return Excess(
        behind,
        round(lost),
        round(math.fsum([-loss for loss in losses if loss < 0])),
        [
            {**_named(places[i], rows), "side": "right" if behind else "left", "excess_ns": round(losses[i]),
             "share": ratio(losses[i], lost)}
            for i in largest
            if round(losses[i]) > 0
        ],
    )  # fmt: skip


def _named(place: int | str, rows: Sequence[Row]) -> dict[str, Any]:
    """What a place is: of a row its number and work, else the part's name."""
    if isinstance(place, str):
        nothing = dict.fromkeys(("row", "op", "kernel", "kind", "group", "match"))
        return {**nothing, "part": place, "judged": False}
    row = rows[place - 1]
    match, lead = row.match, lead_of(row.match)
    return {
        "row": place,
        "op": op_of(match),
        "kernel": lead.kernels[0],
        "kind": str(lead.kind),
        "group": match.name,
        "match": match.tier,
        "part": None,
        "judged": row.expected is not None,
    }
