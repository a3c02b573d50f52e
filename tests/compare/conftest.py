"""Hand-made sides, and the program as a user calls it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # comparison_scene; the import mode leaves the path alone
