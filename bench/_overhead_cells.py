"""The file that a job of ``bench/overhead.py`` and the benchmark have mapped: which of its numbers is what."""

from __future__ import annotations

COUNT, THREAD, HOOK_NS, OVER, HEAD = 0, 1, 2, 3, 8  # steps so far, the hook's thread, its call in a step, no more, ends
CELLS = HEAD + (1 << 18)
WARM = 20  # steps before the first that is noted
