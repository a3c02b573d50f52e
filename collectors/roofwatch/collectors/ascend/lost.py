"""When so much of a source could not be used that its answer must say so."""

from __future__ import annotations

from collections.abc import Mapping

_RECORDS = ("without_task", "bad_time", "bad_duration", "damaged_row")


def mostly_lost(kept: int, dropped: Mapping[str, int]) -> str | None:
    """A clause if fewer records were kept than lost; ``dropped`` counts no others yet than device records."""
    told = {reason: dropped[reason] for reason in _RECORDS if dropped.get(reason)}
    if sum(told.values()) <= kept:
        return None
    return (
        "most of its records cannot be used (" + ", ".join(f"{n} {r.replace('_', ' ')}" for r, n in told.items()) + ")"
    )
