"""An answer as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def render(answer: Mapping[str, Any]) -> str:
    """The object, indented, in ASCII so that any terminal and locale carries it."""
    return json.dumps(answer, indent=2, allow_nan=False) + "\n"
