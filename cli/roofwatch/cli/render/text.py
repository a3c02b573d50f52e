"""Numbers and names for people: three significant digits, one unit a figure, an en dash for what is unknown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from roofwatch.model.answer import cost_share

UNKNOWN = "–"  # an en dash cannot be taken for a minus sign or a number
ELLIPSIS = "…"
NEARLY = "≈"
MFU_LEAST = 0.001  # as a lower bound less than that says nothing
MFU_WHOLE = 0.95  # of the model kernels' time with known FLOPs: the rest is too little to change the figure

_DURATIONS = (("ns", 1), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9), ("d", 86400e9))
_DECIMAL = (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))
_BINARY = (("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40))


def significant(value: float) -> str:
    """Three significant digits without an exponent: 6.10, 45.3, 812, 1,234."""
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"


def _scaled(value: float, units: Iterable[tuple[str, float]], top: float = 999.5) -> tuple[float, str]:
    """The value in the largest unit that keeps it at least one, rounding considered."""
    steps = list(units)
    for position, (unit, size) in enumerate(steps):
        following = steps[position + 1][1] if position + 1 < len(steps) else None
        if following is None or abs(value) / size < min(top, following / size * 0.9995):
            return value / size, unit
    raise AssertionError("the last unit always fits")


def duration(ns: float | None) -> str:
    """Nanoseconds as "45.3 µs", "12.4 s", "2.50 h"."""
    if ns is None:
        return UNKNOWN
    if ns == 0:
        return "0 s"
    value, unit = _scaled(ns, _DURATIONS)
    return f"{value:.0f} ns" if unit == "ns" else f"{significant(value)} {unit}"


def size(count: float | None) -> str:
    """Bytes as "79.3 GiB"."""
    if count is None:
        return UNKNOWN
    value, unit = _scaled(count, _BINARY, top=1023.5)
    return f"{value:.0f} B" if unit == "B" else f"{significant(value)} {unit}"


def rate(per_second: float | None, unit: str) -> str:
    """A rate as "312 TFLOP/s" or "2.04 TB/s"; ``unit`` is "FLOP/s" or "B/s"."""
    if per_second is None:
        return UNKNOWN
    value, prefix = _scaled(per_second, _DECIMAL)
    return f"{significant(value)} {prefix}{unit}"


def plain(value: float | None) -> str:
    """A ratio without a unit: "153", "0.25"."""
    return UNKNOWN if value is None else significant(value)


def count(value: int | None) -> str:
    """A count with thousands separated: "1,234"."""
    return UNKNOWN if value is None else f"{value:,}"


def plural(value: int, noun: str) -> str:
    """A count of things: "1 window", "1,234 windows"."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def percent(part: float | None) -> str:
    """A share as "31 %", "3.1 %", "<0.1 %"."""
    if part is None:
        return UNKNOWN
    value = part * 100
    if value <= 0:
        return "0 %" if value == 0 else f"-{percent(-part)}"
    if value < 0.1:
        return "<0.1 %"
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.1f} %"


def percent_fine(part: float | None) -> str:
    """A share for a sentence, one decimal (two below 1 %), never rounded up to 100: "97.8 %", "0.12 %"."""
    if part is None:
        return UNKNOWN
    value = part * 100
    if value in {0, 100}:
        return f"{value:.0f} %"
    if 99.95 <= value < 100:
        return "99.9 %"
    if 0 < value < 0.005:
        return "<0.01 %"
    return f"{value:.2f} %" if abs(value) < 1 else f"{value:.1f} %"


def mfu(share: float | None, known_share: float | None) -> str:
    """Model FLOPs utilisation as "38 %", with "≥" where kernels of the model have no known FLOPs."""
    whole = (known_share or 0.0) >= MFU_WHOLE
    if share is None or (not whole and share < MFU_LEAST):
        return UNKNOWN
    return percent(share) if whole else f"≥ {percent(share)}"


def lost_share(share: float | None) -> str:
    """A cost for a sentence: a negative one is noise around nothing, "≈ 0 %"."""
    return f"{NEARLY} 0 %" if share is not None and share < 0 else percent_fine(share)


def cost(told: Mapping[str, Any] | None) -> str:
    """What profiling cost, of an answer's ``cost``: noise as "≈ 0 %", unknown with too few steps inside windows."""
    share = cost_share(told)
    noise = told is not None and share == 0 and told["share"]
    return f"{NEARLY} 0 %" if noise else percent_fine(share)


def lost_time(ns: float | None) -> str:
    """Time lost, a negative one as "≈ 0"."""
    return f"{NEARLY} 0" if ns is not None and ns < 0 else duration(ns)


def clean(text: str) -> str:
    """Text that cannot move the cursor or recolour a terminal: control and format characters become "?"."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("?" if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else c for c in text)


def width(text: str) -> int:
    """Columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cell(c) for c in text)


def _cell(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """The text in at most that many columns, the cut marked."""
    if width(text) <= columns:
        return text
    kept, used = [], 1
    for character in text:
        used += _cell(character)
        if used > columns:
            break
        kept.append(character)
    return "".join(kept).rstrip() + ELLIPSIS


def cut_middle(text: str, columns: int) -> str:
    """The text in at most that many columns, its head and its tail kept."""
    if width(text) <= columns:
        return text
    tail, used = [], 0
    for character in reversed(text):
        used += _cell(character)
        if used > (columns - 1) // 2:
            break
        tail.append(character)
    end = "".join(reversed(tail))
    return cut(text, columns - width(end)) + end


def cut_apart(texts: Sequence[str], columns: int) -> list[str]:
    """Each text in at most that many columns: cut at its end, or inside where that tells more of them apart."""
    alike: dict[str, set[str]] = {}
    for text in texts:
        alike.setdefault(cut(text, columns), set()).add(text)
    shown: dict[str, str] = {}
    for head, group in alike.items():
        inside = {text: cut_middle(text, columns) for text in group}
        shown |= inside if len(set(inside.values())) > 1 else dict.fromkeys(group, head)
    return [shown[text] for text in texts]


def joined(parts: Iterable[str], columns: int, separator: str = " · ") -> list[str]:
    """Parts set side by side in lines of at most that many columns; a part is cut only where it alone is too long."""
    lines: list[str] = []
    for part in (cut(part, columns) for part in parts):
        if lines and width(lines[-1]) + width(separator) + width(part) <= columns:
            lines[-1] += separator + part
        else:
            lines.append(part)
    return lines


_RETURN_TYPE = re.compile(r"^(?:void|static void|__global__ void)\s+")
_NAMESPACES = re.compile(r"(?:\(anonymous namespace\)|[A-Za-z_]\w*)::(?=[A-Za-z_(~])")


def kernel(name: str) -> str:
    """A kernel's name without return type, namespaces and parameter list; an operator's name stays whole.

    ``void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int, …)`` becomes
    ``vectorized_elementwise_kernel<4, AddFunctor>``.
    """
    name = clean(name)
    if re.fullmatch(r"\w+::[\w.]+", name):  # aten::add_, c10d::allreduce_
        return name
    short = _RETURN_TYPE.sub("", name)
    if short.endswith(")"):
        short = short[: _parameters_at(short)]
    return _NAMESPACES.sub("", short).strip() or name


def _parameters_at(name: str) -> int:
    """Where the last balanced parenthesis of a name opens; its length where it is the whole name."""
    depth = 0
    for position in range(len(name) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[position], 0)
        if depth == 0:
            return position
    return len(name)


SHAPES_SHOWN = 4  # operands; a concatenation may have hundreds


def shapes(inputs: Sequence[Any] | None) -> str:
    """An op's inputs as "2048×512·512×2048"; vectors and scalars are left out beside anything larger."""
    if inputs is None:
        return UNKNOWN
    found = list(_dimensions(inputs))
    shown = [dims for dims in found if len(dims) > 1] or found
    words = ["×".join(map(str, dims)) for dims in shown[:SHAPES_SHOWN]]
    return "·".join([*words, *([ELLIPSIS] if len(shown) > SHAPES_SHOWN else [])]) or UNKNOWN


def _dimensions(value: Sequence[Any]) -> Iterator[list[int]]:
    """The shapes in nested lists, such as a list of tensors; a scalar has none."""
    if value and all(isinstance(each, int) for each in value):
        yield list(value)
        return
    for each in value:
        if isinstance(each, list):
            yield from _dimensions(each)
