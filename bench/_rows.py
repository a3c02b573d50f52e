"""A row of the table of ``make bench``: what was measured, and whether it keeps what is promised of it.

A benchmark prints one JSON object a row on standard output, and everything else on standard error (``say``). It ends
with 0 where it has measured, whatever its rows say; with ``BROKEN`` if it wants to tell who runs it alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("ROOFWATCH_BENCH_CACHE", ROOT / "build" / "bench"))
TRACES = Path(os.environ.get("ROOFWATCH_TRACES", ROOT.parent / "shared" / "traces"))
BROKEN = 3  # exit code: everything was measured, and a limit does not hold


class Lacking(Exception):  # noqa: N818 - a statement about this machine
    """What a benchmark needs and this machine lacks, in a few words."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure; without a limit nothing is promised of it, and ``ok`` is None."""

    name: str
    value: float | None = None
    unit: str = ""
    limit: str = ""
    ok: bool | None = None
    skipped: str = ""  # why it was not measured
    problem: str = ""  # what went wrong
    beside: dict[str, float] = field(default_factory=dict)  # other figures of the same, by name

    def as_json(self) -> str:
        """One line, without what there is nothing to say of."""
        told = {name: value for name, value in asdict(self).items() if value not in ("", {})}
        return json.dumps({**told, "value": self.value, "ok": self.ok}, ensure_ascii=False)

    @property
    def measured(self) -> str:
        """The figure for people: three significant digits, thousands apart; or why there is none."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        shown = "–" if self.value is None else number(self.value, 3)
        return f"{shown} {self.unit}".strip() + (f" ({self.problem})" if self.problem else "")


def parsed(line: str) -> Row | None:
    """The row in a line of a benchmark's output; None where it is something else."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict) or "name" not in told or told.keys() - {one.name for one in fields(Row)}:
        return None
    return Row(**told)


def number(value: float, digits: int = 4) -> str:
    """``1,234`` or ``0.0123``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def judged(
    value: float,
    unit: str,
    at_least: float | None = None,
    at_most: float | None = None,
    within: tuple[float, float] | None = None,
) -> tuple[str, bool | None]:
    """The limit in words, and whether it holds; ``within``: a figure, and how far from it."""
    if at_least is not None:
        return f"≥ {number(at_least)} {unit}".strip(), value >= at_least
    if at_most is not None:
        return f"≤ {number(at_most)} {unit}".strip(), value <= at_most
    if within is not None:
        return f"{number(within[0], 3)} ± {number(within[1], 3)} {unit}".strip(), abs(value - within[0]) <= within[1]
    return "", None


def row(
    name: str,
    value: float,
    unit: str = "",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    within: tuple[float, float] | None = None,
    problem: str = "",
    **beside: float,
) -> Row:
    """Print a row with one limit or none; with a ``problem`` it does not hold whatever its value."""
    limit, ok = judged(value, unit, at_least, at_most, within)
    others = {other: rounded(figure) for other, figure in beside.items()}
    told = Row(name, rounded(value), unit, limit, False if problem else ok, "", problem, others)
    print(told.as_json(), flush=True)
    return told


def rounded(value: float) -> float:
    """Four digits behind the point, of thousands none."""
    return value if isinstance(value, int) else round(value, 4 if abs(value) < 1000 else 0)


def skip(name: str, why: str) -> None:
    """Print a row of what cannot be measured here."""
    print(Row(name, skipped=why).as_json(), flush=True)


@contextmanager
def or_skipped(name: str) -> Iterator[None]:
    """Where this machine lacks what the block needs, a row says so."""
    try:
        yield
    except Lacking as lack:
        skip(name, str(lack))


def trace(name: str) -> Path:
    """A file of the real profiler output.

    Raises:
        Lacking: it is not there.
    """
    path = TRACES / name
    if not path.is_file():
        raise Lacking(f"no real trace {name.rpartition('/')[2]}: set ROOFWATCH_TRACES to the folder of real traces")
    return path


def say(text: str) -> None:
    """Progress, and what is no row."""
    print(text, file=sys.stderr, flush=True)
