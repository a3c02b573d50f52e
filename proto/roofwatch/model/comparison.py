"""Two sides side by side: the same work on two vendors, in two versions, on two nodes. Pure functions.

The keys are documented in ``docs/answers.md``. Both columns add up to the two times exactly, and so do the parts of
their difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.comparison_match import TIERS, matched
from roofwatch.model.comparison_pieces import COMMUNICATION, COMPUTE, COPY
from roofwatch.model.comparison_rows import HIDDEN, IDLE, Columns, Row, as_json, columns, op_of
from roofwatch.model.comparison_sides import SCALE, Side, Taken, a_unit, taken, tells_phases
from roofwatch.model.comparison_work import scale_of, warnings
from roofwatch.model.roofline import exceeded

CLOSING = 3  # rows that are named as what would close the difference


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
    found = columns(matches, ours, theirs)
    times = [_time(found.rows, beside, name) for beside, name in ((found.left, "left_ns"), (found.right, "right_ns"))]
    parts = _parts(found)
    beyond = times[1] - times[0] - parts[0]["hardware_ns"]
    shown = found.rows[:limit] if limit else found.rows
    rest = found.rows[len(shown) :]
    return {
        "summary": {
            "per": per,
            "scale": SCALE.get(per, 1),
            "left": _side(ours, found.left, times[0], found.rows, "left_ns"),
            "right": _side(theirs, found.right, times[1], found.rows, "right_ns"),
            "ratio": float(theirs.time_ns / theirs.units / (ours.time_ns / ours.units)) if ours.time_ns else None,
            "normalised": None if scaled is None else float(scaled),
            "kernels": _kernels(found.rows),
            "matched": _matched(found.rows),
            "difference_ns": times[1] - times[0],
            "beyond_hardware_ns": beyond,
            "parts": parts,
            "closing": _closing(found.rows, beyond),
            "further": _summed(rest),
        },
        "warnings": warnings(ours, theirs, matches, normalised=scaled is not None),
        "rows": [as_json(row, right_behind=beyond >= 0) for row in shown],
    }


def _summed(rows: Sequence[Row]) -> dict[str, int]:
    return {"rows": len(rows), "left_ns": sum(r.left_ns for r in rows), "right_ns": sum(r.right_ns for r in rows)}


def _time(rows: Sequence[Row], beside: Mapping[str, int], name: str) -> int:
    return sum(int(getattr(row, name)) for row in rows) + sum(beside.values())


def _side(side: Taken, beside: Mapping[str, int], time_ns: int, rows: Sequence[Row], name: str) -> dict[str, Any]:
    """One side's figures a unit: ``time_ns`` = ``rows_ns`` − ``overlap_ns`` + ``idle_ns``."""
    counts, exact = side.side.counts, float(side.units)
    hidden = {key: -beside.get(key, 0) for key in HIDDEN}
    idle = {key.removeprefix(IDLE): ns for key, ns in beside.items() if key.startswith(IDLE)}

    def total(sort: str) -> int:
        return sum(getattr(r, name) for r in rows if r.sort == sort)

    outside, startup = a_unit([side.outside_ns, side.startup_ns], side.units)
    return {
        "device": side.side.device,
        "vendor": str(side.side.vendor),
        "models": sorted(side.side.models),
        "windows": counts.windows,
        "windows_without": counts.without(side.per),
        "steps": counts.steps or None,
        "units": exact,
        "time_ns": time_ns,
        "rows_ns": sum(getattr(r, name) for r in rows),
        "overlap_ns": sum(hidden.values()),
        "idle_ns": sum(idle.values()),
        "causes": dict(sorted(idle.items(), key=lambda item: -item[1])),
        "communication_ns": total(COMMUNICATION),
        "exposed_communication_ns": total(COMMUNICATION) - hidden["hidden_communication"],
        "copies_ns": total(COPY),
        "exposed_copies_ns": total(COPY) - hidden["hidden_copies"],
        "layout_ns": sum(getattr(r, name) for r in rows if r.tax),
        "outside_ns": outside,
        "startup_ns": startup,
    }


def _judged(row: Row) -> bool:
    return row.expected is not None


def _kernels(rows: Sequence[Row]) -> dict[str, Any]:
    """The matched kernels whose roofs are known on both sides, as one row; and how much of all kernels they are."""
    judged = [r for r in rows if _judged(r)]
    left, right = (math.fsum(getattr(r, name) for r in judged) for name in ("left_exact", "right_exact"))
    roof_left, roof_right = (math.fsum(getattr(r.roofs, name) or 0.0 for r in judged) for name in ("left", "right"))
    own_left, own_right = _total([r.roofs.own_left for r in judged]), _total([r.roofs.own_right for r in judged])
    found, expected = ratio(right, left), ratio(roof_right, roof_left)
    compute = [r for r in rows if r.sort == COMPUTE]
    return {
        "left_ns": sum(r.left_ns for r in judged),
        "right_ns": sum(r.right_ns for r in judged),
        "ratio": found,
        "expected_ratio": expected,
        "software_gap": None if found is None or not expected else found / expected,
        "left_roof_fraction": None if own_left is None else ratio(own_left, left),
        "right_roof_fraction": None if own_right is None else ratio(own_right, right),
        "left_share": ratio(left, math.fsum(r.left_exact for r in compute)),
        "right_share": ratio(right, math.fsum(r.right_exact for r in compute)),
        "unknown_rows": sum(not _judged(r) and not r.tax and r.ratio is not None for r in compute),
        "exceeded_rows": sum(_exceeds(r) for r in judged),
    }


def _total(roofs: Sequence[float | None]) -> float | None:
    known = [roof for roof in roofs if roof is not None]
    return math.fsum(known) if len(known) == len(roofs) else None


def _exceeds(row: Row) -> bool:
    pairs = ((row.roofs.own_left, row.left_exact), (row.roofs.own_right, row.right_exact))
    return any(roof is not None and exceeded(roof / exact) for roof, exact in pairs if exact)


def _matched(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Rows and time by how they were matched; ``none`` has no partner."""
    return {tier or "none": _summed([r for r in rows if r.match.tier == tier]) for tier in (*TIERS, None)}


def _parts(found: Columns) -> list[dict[str, Any]]:
    """Where the time of a unit goes on both sides, in parts that add up to both times.

    ``hardware_ns`` of the judged kernels is how much longer the left's would take on the right's device if they reached
    the same part of its roof; ``software_ns`` is the rest of their difference.
    """
    kernels = [r for r in found.rows if r.sort == COMPUTE]
    groups = {
        "kernels": [r for r in kernels if _judged(r)],
        "unknown_roof": [r for r in kernels if not r.tax and not _judged(r) and r.ratio is not None],
        "unmatched": [r for r in kernels if not r.tax and r.ratio is None],
        "layout": [r for r in kernels if r.tax],
        "communication": [r for r in found.rows if r.sort == COMMUNICATION],
        "copies": [r for r in found.rows if r.sort == COPY],
    }  # fmt: skip
    beside = {"communication": "hidden_communication", "copies": "hidden_copies"}
    parts = []
    for name, rows in groups.items():
        left, right = sum(r.left_ns for r in rows), sum(r.right_ns for r in rows)
        if name in beside:
            left, right = left + found.left[beside[name]], right + found.right[beside[name]]
        parts.append(_part(name, left, right))
    expected = math.fsum(r.left_exact * (r.expected or 0.0) for r in groups["kernels"])
    hardware = round(expected - math.fsum(r.left_exact for r in groups["kernels"]))
    parts[0] |= {"hardware_ns": hardware, "software_ns": parts[0]["difference_ns"] - hardware}
    parts.append(_part("overlap", found.left["overlap"], found.right["overlap"]))
    idle = dict.fromkeys(key for side in (found.left, found.right) for key in side if key.startswith(IDLE))
    return parts + [_part(key, found.left.get(key, 0), found.right.get(key, 0)) for key in idle]


def _part(name: str, left: int, right: int) -> dict[str, Any]:
    return {"part": name, "left_ns": left, "right_ns": right, "difference_ns": right - left}


def _closing(rows: Sequence[Row], beyond: int) -> list[dict[str, Any]]:
    """The rows in which the side that is behind loses most; ``share`` is of all that the hardware does not explain."""
    behind = beyond >= 0
    ranked = sorted(enumerate(rows, 1), key=lambda pair: (-pair[1].excess_ns(right_behind=behind), pair[0]))
    return [
        {
            "row": number,
            "side": "right" if behind else "left",
            "op": op_of(row.match),
            "kernel": row.lead.kernels[0],
            "kind": str(row.lead.kind),
            "group": row.match.name,
            "match": row.match.tier,
            "judged": _judged(row),
            "excess_ns": excess,
            "share": ratio(excess, abs(beyond)),
        }
        for number, row in ranked[:CLOSING]
        if (excess := round(row.excess_ns(right_behind=behind))) > 0
    ]
