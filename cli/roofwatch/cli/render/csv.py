"""The rows of an answer as CSV with the JSON's names: unknown is empty, lists and maps are compact JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

# What moves a terminal's cursor or recolours it is no part of a name: it is written as Python writes it.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}


def render(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """Header and rows; the header is written also where there are no rows."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for row in rows:
        writer.writerow([_cell(row.get(key)) for key in keys])
    return out.getvalue()


def _cell(value: Any) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(",", ":"))
    return value.translate(_CONTROLS) if isinstance(value, str) else value
