"""Where the scenes are."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # regression_scene; the import mode leaves the path alone
