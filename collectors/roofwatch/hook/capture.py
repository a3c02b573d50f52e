"""CUDA graph capture: no window opens or closes while one runs."""

import functools
import time
from typing import Any, Callable

WAIT_S = 5.0


class Captures:
    """How many graph captures run in this process."""

    def __init__(self, torch: Any, begins: Callable[[], None]) -> None:
        """Count the captures of ``torch.cuda.CUDAGraph``; ``begins()`` is called before each."""
        self._torch, self._running, self._begins = torch, 0, begins
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if isinstance(graph, type) and hasattr(graph, "capture_begin") and hasattr(graph, "capture_end"):
            self._wrap(graph)

    def _wrap(self, graph: Any) -> None:
        begin, end = graph.capture_begin, graph.capture_end

        @functools.wraps(begin)
        def capture_begin(*args: Any, **kwargs: Any) -> Any:
            self._running += 1
            try:
                self._begins()
                return begin(*args, **kwargs)
            except BaseException:
                self._running -= 1
                raise

        @functools.wraps(end)
        def capture_end(*args: Any, **kwargs: Any) -> Any:
            try:
                return end(*args, **kwargs)
            finally:
                self._running = max(0, self._running - 1)

        graph.capture_begin, graph.capture_end = capture_begin, capture_end

    def running(self) -> bool:
        """Whether a capture runs: one that was counted, or one of this thread's stream that was begun in C++."""
        cuda = self._torch.cuda
        return self._running > 0 or bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def wait(self) -> bool:
        """Wait until no capture runs; False after 5 s."""
        end = time.monotonic() + WAIT_S
        while self._running > 0:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True
