"""The node of the whole-path tests: programs that a user starts, in one private folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("whole_path", Path(__file__).parents[1] / "e2e" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_PARTS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_PARTS)
node = _PARTS.node
