"""Makes the helpers of this folder importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # timelines, slow_timeline; the import mode leaves the path alone
