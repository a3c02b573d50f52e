"""Moments in local time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from roofwatch.cli.render import text


def shown(moments: Sequence[int | None], now_ns: int) -> list[str]:
    """Unix nanoseconds as "02-02 02:40:00", all with the year where not all are of this one."""
    local = [None if moment is None else datetime.fromtimestamp(moment / 1e9).astimezone() for moment in moments]
    this = datetime.fromtimestamp(now_ns / 1e9).astimezone().year
    year = "" if all(moment is None or moment.year == this for moment in local) else "%Y-"
    return [text.UNKNOWN if moment is None else f"{moment:{year}%m-%d %H:%M:%S}" for moment in local]
