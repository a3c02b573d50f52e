"""``regressions``: what became slower from one side to the other, over windows, within each device model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection

from roofwatch.model.errors import UsageError
from roofwatch.model.regression import ALPHA, POWER, Limits, Tails, Verdict, number, ranked, windows_apart
from roofwatch.store.filter import Asked
from roofwatch.store.queries import regression_devices as ran
from roofwatch.store.queries import regression_rows as told
from roofwatch.store.queries.regression_rows import Group
from roofwatch.store.queries.regression_tables import NO_BLOCK, largest, tabled
from roofwatch.store.queries.regression_windows import (
    Side,
    Stats,
    Unit,
    affordable,
    read_side,
    read_stats,
    shared,
    signatures_of,
)

WEEK_NS = 7 * 86_400 * 1_000_000_000
OTHER_WORK = 0.2  # of device time on either side that the other one does not have: the sides do not run the same


def regressions(connection: Connection, asked: Asked) -> dict[str, Any]:
    """The comparison; ``asked.scope`` is before, ``asked.other`` after.

    Options: ``tolerance, find`` (ratios − 1), ``least_share`` (of device time), ``skip_start_ns``.

    Raises:
        UsageError: a side is missing, both have windows in common, or an option says nothing that could be meant.
    """
    if asked.other is None:
        raise UsageError("regressions compares two sides: name the windows before and those after")
    limits = Limits.of(asked.options)
    skip_ns = int(number(asked.options, "skip_start_ns", 0, 0, WEEK_NS))
    if common := shared(connection, asked.scope, asked.other):
        raise UsageError(
            f"{common:,} windows are on both sides: add what tells the sides apart, such as a label, or until= on the "
            "one and since= on the other"
        )
    sides = (read_side(connection, asked.scope, skip_ns), read_side(connection, asked.other, skip_ns))
    groups = [g for model in _common(sides) if (g := _group(connection, sides, model, limits)) is not None]
    tails = Tails.of(sum(g.times for g in groups), sum(len(g.table.pieces) for g in groups))
    too_few: list[str] = []
    rows = ranked(row for g in groups for row in told.rows(g, limits, tails, too_few))
    steps = [row for g in groups for row in ran.steps(g, limits, tails)]
    devices = [ran.device(g, limits, tails) for g in groups]
    return {
        "verdict": _verdict(rows, steps, devices, too_few, tails),
        "sides": {"before": _side(sides[0], groups, late=False), "after": _side(sides[1], groups, late=True)},
        "devices": devices,
        "steps": steps,
        "warnings": _warnings(sides, devices, rows),
        "rows": rows[: asked.limit] if asked.limit else rows,
    }


def _common(sides: Sequence[Side]) -> list[str]:
    """The device models of both sides, those with most windows first."""
    models = sides[0].of_windows.keys() & sides[1].of_windows.keys()
    return sorted(models, key=lambda m: (-min(side.of_windows[m] for side in sides), m))


def _group(connection: Connection, sides: Sequence[Side], model: str, limits: Limits) -> Group | None:
    """One device model; None where a side's windows hold no kernels of it."""
    units = affordable(connection, [[unit for unit in side.units if unit.device == model] for side in sides])
    late = {unit.window_id for unit in sides[1].units}
    stats = _of_units(read_stats(connection, [unit.window_id for unit in units]), units)
    having = set(stats.window_id.tolist())
    empty = [sum(u.window_id not in having and (u.window_id in late) == side for u in units) for side in (False, True)]
    units = [unit for unit in units if unit.window_id in having]  # without kernels a window says nothing of them
    after = np.array([unit.window_id in late for unit in units], dtype=np.bool_)
    if not after.any() or after.all():
        return None
    known = signatures_of(connection, largest(stats, units, after, limits.least_share))
    return Group(tabled(stats, units, after, known), known, (empty[0], empty[1])).tested(limits.least_share)


def _of_units(stats: Stats, units: Sequence[Unit]) -> Stats:
    """The rows of the units' own devices: a window may have others."""
    places = {(unit.window_id, position) for unit in units for position in unit.positions}
    pairs = zip(stats.window_id.tolist(), stats.device.tolist(), strict=True)
    own = np.fromiter((pair in places for pair in pairs), np.bool_, len(stats.window_id))
    return stats if own.all() else stats.only(own)


def _verdict(
    rows: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    devices: Sequence[Mapping[str, Any]],
    too_few: Sequence[str],
    tails: Tails,
) -> dict[str, Any]:
    """The whole in a few figures; shares are of device time, the larger of the two sides'."""
    shares = [(row["verdict"], max(row["share_before"], row["share_after"])) for row in rows]
    whole = sum(share for _, share in shares)
    unclear = sum(share for verdict, share in shares if verdict == Verdict.UNCLEAR)
    needed = [d["windows_needed"] for d in devices] + ([windows_apart(tails.calls)] if too_few else [])
    return {
        "findings": sum(row["finding"] for row in rows),
        "step_findings": sum(row["finding"] for row in steps),
        "complete": bool(devices) and not too_few and all(d["complete"] for d in devices),
        "windows_needed": max(needed) if needed and None not in needed else None,
        "too_few_for": sorted(too_few),
        "unclear_share": unclear / whole if whole else None,
        "verdicts": {str(v): n for v in Verdict if (n := sum(verdict == v for verdict, _ in shares))},
        "alpha": ALPHA,
        "power": POWER,
        "alpha_time": 2 * tails.time,
        "alpha_calls": 2 * tails.calls,
    }


def _side(side: Side, groups: Sequence[Group], *, late: bool) -> dict[str, Any]:
    """What one side is: all its windows, how many of them were looked at, and why not the others."""
    used = [u for g in groups for u, own in zip(g.table.units, g.table.after, strict=True) if own == late]
    sampled = side.units
    whole = sum(side.of_windows.values())
    left_out = {
        "other_device": whole - sum(side.of_windows[g.table.device] for g in groups),
        "without_kernels": sum(g.empty[late] for g in groups),
    }
    return {
        "windows": whole,
        "windows_used": len(used),
        "left_out": {**left_out, "not_sampled": whole - len(used) - sum(left_out.values())},
        "devices": dict(sorted(side.of_windows.items())),
        "processes": len({u.process_id for u in sampled}),
        "nodes": sorted({u.host for u in sampled}),
        "models": sorted({u.run for u in sampled if u.run is not None}),
        "first_unix_ns": min((u.start_unix_ns for u in sampled), default=None),
        "last_unix_ns": max((u.start_unix_ns for u in sampled), default=None),
    }


def _warnings(
    sides: Sequence[Side], devices: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What makes the comparison less than it seems, each with a sentence."""
    found: list[dict[str, Any]] = []

    def warn(mistake: str, text: str, **figures: Any) -> None:
        found.append({"mistake": mistake, "text": text, **figures})

    models = sorted({u.run for side in sides for u in side.units if u.run is not None})
    if len(models) > 1:
        warn(
            "models",
            f"windows of {len(models)} models are compared as one ({', '.join(models[:3])}): name one with --model.",
        )
    alone = [sum(row[f"share_{side}"] for row in rows if not row[f"kernels_{other}"])
             for side, other in (("before", "after"), ("after", "before"))]  # fmt: skip
    if min(alone) > OTHER_WORK:
        warn(
            "work",
            f"the sides do not run the same: {_percent(alone[0])} of the time before is in kernels that are not there "
            f"after, {_percent(alone[1])} of the time after in new ones; other shapes or dtypes are other work.",
            share_before=alone[0],
            share_after=alone[1],
        )
    for device in devices:
        if device["blocks"] == NO_BLOCK and len({u.process_id for side in sides for u in side.units}) > 2:
            warn(
                "devices",
                f"the sides ran on different devices of {device['device']}, in no ranks that both have: what differs "
                "between devices counts as noise, or as a difference where there is one device a side.",
            )
        caps = device["power_limit_w"]
        if device["clock"] is None and caps and None not in caps.values() and caps["after"] < caps["before"]:
            warn(
                "power_cap",
                f"the power cap of {device['device']} is {caps['before']:.0f} W before, {caps['after']:.0f} W after, "
                "and no clock was read: what is bound by compute may be slower for that.",
            )
    return found


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
