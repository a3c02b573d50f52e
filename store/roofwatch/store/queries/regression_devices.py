"""How one device model was compared in ``regressions``, how its devices ran, and its whole steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from roofwatch.model.regression import (
    FINDINGS,
    Enough,
    Interval,
    Limits,
    Tails,
    Verdict,
    enough,
    judge_step,
    ratio_of,
    with_clock,
)
from roofwatch.store.queries.regression_numbers import Compared
from roofwatch.store.queries.regression_rows import Group
from roofwatch.store.queries.regression_windows import Unit


def steps(group: Group, limits: Limits, tails: Tails) -> Iterator[dict[str, Any]]:
    """A row a time of whole steps."""
    t = group.table
    scaled = with_clock(zip(t.bounds, t.total.sum(axis=1).tolist(), strict=True))
    for name, of in group.whole_steps.items():
        half = float(Compared.half_width(_one(of), tails.time)[0])
        time = Interval(float(of.effect), half)
        before, after = ratio_of(float(of.before)), ratio_of(float(of.before + of.effect))
        busy = ratio_of(float(group.whole_steps["device"].before))
        elastic = scaled * min(1.0, busy / before) if busy and before else 0.0
        verdict = judge_step(time, group.clock, elastic, limits)
        yield {
            "verdict": str(verdict),
            "finding": verdict in FINDINGS,
            "time": name,
            "device": t.device,
            "before_ns": before,
            "after_ns": after,
            **time.as_json("ratio", "ratio_low", "ratio_high"),
            "clock_ratio": ratio_of(group.clock.effect) if verdict is Verdict.CLOCK and group.clock else None,
            "noise": None if not math.isfinite(float(of.noise_before)) else float(of.noise_before),
            "windows_before": int(of.n_before),
            "windows_after": int(of.n_after),
        }


def _one(of: Compared) -> Compared:
    """A row of figures as arrays of one."""
    return Compared(*(np.atleast_1d(getattr(of, name)) for name in Compared.__dataclass_fields__))


def windows_enough(group: Group, limits: Limits, tails: Tails) -> Enough:
    """Whether there are enough windows for what is looked for, in the kernel in the middle of device time."""
    t, call = group.table, group.call
    shared = np.array([bool(p.before and p.after) for p in t.pieces], dtype=np.bool_) & np.isfinite(call.spread)
    if not shared.any():
        return Enough(None, 0.0, None)
    have = float(np.median(2.0 / call.spread[shared]))
    noise = call.error / np.sqrt(call.spread)
    share = t.share.max(axis=0)
    kernels = [(float(share[i]), float(noise[i]), float(call.df[i])) for i in np.flatnonzero(shared)]
    return enough(kernels, have, limits, tails)


def device(group: Group, limits: Limits, tails: Tails) -> dict[str, Any]:
    """How one device model was compared, and how its devices ran."""
    t, told = group.table, windows_enough(group, limits, tails)
    before, after = ([u for u, own in zip(t.units, side, strict=True) if own] for side in (~t.after, t.after))
    clock = None if group.clock is None else group.clock.as_json("ratio", "ratio_low", "ratio_high")
    count, share_before, share_after = t.rest
    return {
        "device": t.device,
        "vendor": t.units[0].vendor,
        "windows_before": len(before),
        "windows_after": len(after),
        "blocks": t.blocks,
        "blocks_count": len(set(t.block.tolist())),
        "pieces": len(t.pieces),
        "rest": {"signatures": count, "share_before": share_before, "share_after": share_after},
        "noise": told.noise,
        "windows_worth": told.have,
        "windows_needed": told.needed,
        "findable": told.findable,
        "complete": told.complete,
        "clock": None if clock is None else {**(_means(before, after, "clock_hz", "hz") or {}), **clock},
        **{name: _means(before, after, name, None) for name in ("power_limit_w", "power_w", "temperature_c")},
        "throttle": _throttles(before, after),
    }


def _means(before: Sequence[Unit], after: Sequence[Unit], name: str, suffix: str | None) -> dict[str, Any] | None:
    """What was read on the sides, on average; None where it was read on neither."""
    found = {}
    for side, units in (("before", before), ("after", after)):
        read = [value for unit in units if (value := unit.mean(name)) is not None]
        found[side if suffix is None else f"{side}_{suffix}"] = sum(read) / len(read) if read else None
    return found if any(value is not None for value in found.values()) else None


def _throttles(before: Sequence[Unit], after: Sequence[Unit]) -> dict[str, dict[str, float] | None] | None:
    """What held the clock down, and in which share of the windows where it was read; None: it was not."""
    found: dict[str, dict[str, float] | None] = {}
    for side, units in (("before", before), ("after", after)):
        read = [unit.throttle for unit in units if unit.throttle is not None]
        counts = Counter(word for words in read for word in words)
        found[side] = {word: n / len(read) for word, n in sorted(counts.items())} if read else None
    return found if any(value is not None for value in found.values()) else None
