"""Two sides side by side: the same work on two vendors, in two versions, on two nodes. Pure functions.

The keys are documented in ``docs/answers.md``. Both columns add up to the two times exactly, and so do the parts of
their difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.comparison_excess import excess
from roofwatch.model.comparison_match import TIERS, matched
from roofwatch.model.comparison_pieces import COMMUNICATION, COMPUTE, COPY
from roofwatch.model.comparison_rows import HIDDEN, IDLE, Columns, Row, as_json, columns
from roofwatch.model.comparison_sides import SCALE, Side, Taken, a_unit, taken, tells_phases
from roofwatch.model.comparison_work import same_work, scale_of, warnings
from roofwatch.model.roofline import exceeded

JUDGED_LEAST = 0.5  # of either side's kernel time: what is known of less says nothing of the whole
# What makes the sides' work so different that no verdict on a side's software follows, wherever the roofs are known.
_OTHER_WORK = ("training", "strangers", "work")


def compare(left: Side, right: Side, per: str, *, normalise: bool = False, limit: int = 0) -> dict[str, Any]:
    """All of an answer but ``query`` and ``coverage``; ``limit`` 0 gives all rows.

    Raises:
        IncompleteError: the sides cannot be normalised, since too few FLOPs are known.
    """
    phases = tells_phases(left) and tells_phases(right)
    ours, theirs = taken(left, per, phases=phases), taken(right, per, phases=phases)
    scaled = scale_of(ours, theirs) if normalise else None
    if scaled is not None:
        theirs = replace(theirs, units=theirs.units / scaled)
    more = 1.0 if scaled is None else float(scaled)
    matches = matched(ours.pieces, theirs.pieces, (ours.units, theirs.units), more)
    found = columns(matches, ours, theirs, alike=same_work(ours, theirs))
    times = found.times
    parts = _parts(found)
    lost = excess(found.rows, parts, *times)
    parts[0] |= _split(found.rows, parts[0]["difference_ns"], right_behind=lost.right_behind)
    warned = warnings(ours, theirs, matches, normalised=scaled is not None)
    shown = found.rows[:limit] if limit else found.rows
    rest = found.rows[len(shown) :]
    return {
        "summary": {
            "per": per,
            "scale": SCALE.get(per, 1),
            "left": _side(ours, found, 0),
            "right": _side(theirs, found, 1),
            "ratio": float(theirs.time_ns / theirs.units / (ours.time_ns / ours.units)) if ours.time_ns else None,
            "normalised": None if scaled is None else float(scaled),
            "kernels": _kernels(found, warned),
            "matched": _matched(found.rows),
            "difference_ns": times[1] - times[0],
            "beyond_hardware_ns": times[1] - times[0] - parts[0]["hardware_ns"],
            "parts": parts,
            **lost.as_json(),
            "further": _summed(rest),
        },
        "warnings": warned,
        "rows": [as_json(row, (ours.units, theirs.units), right_behind=lost.right_behind) for row in shown],
    }


def _summed(rows: Sequence[Row]) -> dict[str, int]:
    return {"rows": len(rows), "left_ns": _sum(rows, 0), "right_ns": _sum(rows, 1)}


def _sum(rows: Sequence[Row], side: int) -> int:
    """The time of the left (0) or the right (1)."""
    return sum(map(attrgetter(("left_ns", "right_ns")[side]), rows))


def _side(side: Taken, found: Columns, which: int) -> dict[str, Any]:
    """The left's (0) or the right's (1) figures a unit: ``time_ns`` = ``rows_ns`` − ``overlap_ns`` + ``idle_ns``."""
    counts, exact, beside = side.side.counts, float(side.units), (found.left, found.right)[which]
    hidden = {key: -beside.get(key, 0) for key in HIDDEN}
    idle = {key.removeprefix(IDLE): ns for key, ns in beside.items() if key.startswith(IDLE)}
    communication, copies = (_sum(found.sorts[sort], which) for sort in (COMMUNICATION, COPY))
    outside, startup = a_unit([side.outside_ns, side.startup_ns], side.units)
    return {
        "device": side.side.device,
        "vendor": str(side.side.vendor),
        "models": sorted(side.side.models),
        "windows": counts.windows,
        "windows_without": counts.without(side.per),
        "steps": counts.steps or None,
        "units": exact,
        "time_ns": found.times[which],
        "rows_ns": found.rows_ns[which],
        "overlap_ns": sum(hidden.values()),
        "idle_ns": sum(idle.values()),
        "causes": dict(sorted(idle.items(), key=lambda item: -item[1])),
        "communication_ns": communication,
        "exposed_communication_ns": communication - hidden["hidden_communication"],
        "copies_ns": copies,
        "exposed_copies_ns": copies - hidden["hidden_copies"],
        "layout_ns": _sum([r for r in found.rows if r.tax], which),
        "outside_ns": outside,
        "startup_ns": startup,
    }


def _kernels(found: Columns, warned: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The matched kernels whose roofs are known on both sides, as one row; and how much of all kernels they are.

    Where the rest could be anything, or the sides do other work, ``withheld`` says why there is no ``software_gap``.
    """
    rows, compute = found.rows, found.sorts[COMPUTE]
    judged = [r for r in rows if r.expected is not None]
    left, right = math.fsum([r.left_exact for r in judged]), math.fsum([r.right_exact for r in judged])
    roof_left, roof_right = (math.fsum([getattr(r.roofs, name) or 0.0 for r in judged]) for name in ("left", "right"))
    own_left, own_right = _total([r.roofs.own_left for r in judged]), _total([r.roofs.own_right for r in judged])
    measured, expected = ratio(right, left), ratio(roof_right, roof_left)
    shares = [ratio(left, math.fsum([r.left_exact for r in compute])),
              ratio(right, math.fsum([r.right_exact for r in compute]))]  # fmt: skip
    withheld = _withheld(expected, min(share or 0.0 for share in shares), warned)
    return {
        "left_ns": _sum(judged, 0),
        "right_ns": _sum(judged, 1),
        "ratio": measured,
        "expected_ratio": expected,
        "software_gap": None if withheld or measured is None or not expected else measured / expected,
        "withheld": withheld,
        "left_roof_fraction": None if own_left is None else ratio(own_left, left),
        "right_roof_fraction": None if own_right is None else ratio(own_right, right),
        "left_share": shares[0],
        "right_share": shares[1],
        "unknown_rows": len([r for r in compute if r.expected is None and not r.tax and r.ratio is not None]),
        "exceeded_rows": sum(_exceeds(r) for r in judged),
    }


def _withheld(expected: float | None, share: float, warned: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why nothing can be said of a side's software: warnings' names, ``share`` (too little is known), ``unknown``."""
    little = expected is None or share < JUDGED_LEAST
    names = [w["warning"] for w in warned if not w["scaled"]]
    other = [name for name in _OTHER_WORK if name in names and (little or name != "work")]  # equal parts are matched
    return other + (["unknown"] if expected is None else ["share"] if little else [])


def _total(roofs: Sequence[float | None]) -> float | None:
    known = [roof for roof in roofs if roof is not None]
    return math.fsum(known) if len(known) == len(roofs) else None


def _exceeds(row: Row) -> bool:
    ours, theirs = row.roofs.own_left, row.roofs.own_right
    left = ours is not None and row.left_exact > 0 and exceeded(ours / row.left_exact)
    return left or (theirs is not None and row.right_exact > 0 and exceeded(theirs / row.right_exact))


def _matched(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Rows and time by how they were matched; ``none`` has no partner."""
    groups: dict[str | None, list[Row]] = {tier: [] for tier in (*TIERS, None)}
    for row in rows:
        groups[row.tier].append(row)
    return {tier or "none": _summed(of) for tier, of in groups.items()}


def _parts(found: Columns) -> list[dict[str, Any]]:
    """Where the time of a unit goes on both sides, in parts that add up to both times."""
    kernels = found.sorts[COMPUTE]
    others = [r for r in kernels if r.expected is None]
    groups = {
        "kernels": [r for r in kernels if r.expected is not None],
        "unknown_roof": [r for r in others if not r.tax and r.ratio is not None],
        "unmatched": [r for r in others if not r.tax and r.ratio is None],
        "layout": [r for r in others if r.tax],
        "communication": found.sorts[COMMUNICATION],
        "copies": found.sorts[COPY],
    }
    beside = {"communication": "hidden_communication", "copies": "hidden_copies"}
    parts = []
    for name, rows in groups.items():
        left, right = _sum(rows, 0), _sum(rows, 1)
        if name in beside:
            left, right = left + found.left[beside[name]], right + found.right[beside[name]]
        parts.append(_part(name, left, right))
    parts.append(_part("overlap", found.left["overlap"], found.right["overlap"]))
    idle = dict.fromkeys(key for side in (found.left, found.right) for key in side if key.startswith(IDLE))
    return parts + [_part(key, found.left.get(key, 0), found.right.get(key, 0)) for key in idle]


def _part(name: str, left: int, right: int) -> dict[str, Any]:
    return {"part": name, "left_ns": left, "right_ns": right, "difference_ns": right - left}


def _split(rows: Sequence[Row], difference_ns: int, *, right_behind: bool) -> dict[str, int]:
    """The judged kernels' difference in two: what the side that is ahead would lose or win on the other's device if it
    reached as much of that one's roof (``hardware_ns``), and what the side that is behind loses beyond it
    (``software_ns``, in its own time; below 0 on the left). Swapped sides turn both signs.
    """  # noqa: D205 - one thought
    if right_behind:
        hardware = math.fsum(r.left_exact * (r.expected - 1.0) for r in rows if r.expected is not None)
    else:
        hardware = math.fsum(r.right_exact * (1.0 - 1.0 / r.expected) for r in rows if r.expected is not None)
    return {"hardware_ns": round(hardware), "software_ns": difference_ns - round(hardware)}
