"""Figures of ``regressions`` in words: what was compared, its change, and the interval of the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofwatch.cli.render import text
from roofwatch.model.regression import Verdict

Row = Mapping[str, Any]

HUGE = 1e5  # a ratio of noise: its digits say nothing
_COUNTED = frozenset({Verdict.CALLED_MORE, Verdict.CALLED_LESS})


def limit(share: float) -> str:
    """A share that somebody typed: "3 %", "0.1 %"."""
    return f"{share * 100:.6g} %"


def values(row: Row) -> tuple[str, str]:
    """What was compared, before and after: calls a step, or time of a call or a step."""
    if row["verdict"] in _COUNTED:
        return f"{row['calls_before']:.3g}/step", f"{row['calls_after']:.3g}/step"
    return text.duration(row["before_ns"]), text.duration(row["after_ns"])


def change(row: Row) -> tuple[str, str]:
    """The change, and its interval: "+5.1 %", "+3.4 to +6.8 %"."""
    names = ("calls_ratio", "calls_low", "calls_high") if row["verdict"] in _COUNTED else (
        "ratio", "ratio_low", "ratio_high"
    )  # fmt: skip
    ratio, low, high = (row[name] for name in names)
    if ratio is None:
        return text.UNKNOWN, text.UNKNOWN
    return signed(ratio), text.UNKNOWN if low is None or high is None else between(low, high)


def between(low: float, high: float) -> str:
    """An interval as changes: "+3.4 to +6.8 %"."""
    if low == high:
        return "exact"  # counts that never vary
    ends = signed(low), signed(high)
    return f"{ends[0].removesuffix(' %') if ends[1].endswith(' %') else ends[0]} to {ends[1]}"


def signed(ratio: float | None) -> str:
    """A ratio as a change: "+5.1 %", "-12 %", "×3.4" from twice as much on."""
    if ratio is None:
        return text.UNKNOWN
    if ratio >= 2:
        return f"×{text.significant(ratio)}" if ratio < HUGE else f"×{ratio:.0e}"
    value = (ratio - 1) * 100
    shown = f"{value:+.0f}" if abs(value) >= 9.95 else f"{value:+.1f}"
    return "0 %" if shown in {"+0.0", "-0.0"} else f"{shown} %"
