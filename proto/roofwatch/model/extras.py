"""How what is optional is installed."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that adds an extra to the Roofwatch of this Python, and the one in a folder of its source."""
    return f"pip install 'roofwatch[{extra}]' (in a folder of its source: pip install '.[{extra}]')"
