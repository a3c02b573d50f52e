"""Inputs of ops as ``trace_view.json`` writes them → as Kineto does: ``"32,3;…64"`` → ``[[32,3],[64]]``."""

from __future__ import annotations

import msgspec

from roofwatch.collectors.kineto.events import DECODE_ERRORS
from roofwatch.model.shapes import compact

_BREAK = ";"
_MAX_PLACES = 4096
_MAX_RANK = 64


def as_kineto(text: bytes) -> bytes:
    """Shapes, dtypes, strides and concrete inputs, joined by NUL, each as JSON text; what is already so stays."""
    parts = text.split(b"\0")
    if len(parts) != 4:
        return text
    shapes, dtypes = (_decoded(part) for part in parts[:2])
    if isinstance(shapes, str):
        found = _shapes(shapes)
        parts[0] = b"" if found is None else compact(found).encode()
    if isinstance(dtypes, str):
        parts[1] = compact([word.strip() for word in dtypes.split(_BREAK)[:_MAX_PLACES]]).encode()
    return b"\0".join(parts)


def _decoded(text: bytes) -> object:
    try:
        return msgspec.json.decode(text) if text else None
    except DECODE_ERRORS:
        return None


def _shapes(text: str) -> list[list[int]] | None:
    """The shape of each input, [] for what has none (a scalar, a list of tensors, nothing); None where damaged."""
    result = []
    for part in text.split(_BREAK)[:_MAX_PLACES]:
        words = [word.strip() for word in part.split(",")] if part.strip() else []
        if len(words) > _MAX_RANK or not all(word.isascii() and word.isdigit() and len(word) < 16 for word in words):
            return None
        result.append([int(word) for word in words])
    return result
