"""The reader of Kineto traces: what ``torch.profiler`` writes on CUDA, ROCm and CPU, as ``.json`` or ``.json.gz``.

The path of a record: ``source`` (bytes) → ``document`` (the event list, cut in chunks) → ``events``, ``recover`` and
``repair`` (typed events, damage included) → ``columns`` (numbers) → ``link``, ``selftime``, ``timeline`` (meaning) →
``groups`` → ``profile``.
"""

from roofwatch.collectors.kineto.reader import read, read_captures
from roofwatch.collectors.kineto.refusal import TraceViewError

__all__ = ["TraceViewError", "read", "read_captures"]
