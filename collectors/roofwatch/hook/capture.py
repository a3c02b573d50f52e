"""CUDA graph capture: no window opens or closes while one runs, its ops are noted, and its replays are known."""

import functools
from typing import Any, Callable

from .graphs import Graphs
from .log import failure


class Captures:
    """How many graph captures run in this process, and what is known of the graphs."""

    def __init__(self, torch: Any, begins: Callable[[], None]) -> None:
        """Watch ``torch.cuda.CUDAGraph``; ``begins()`` is called before each capture, and counts it."""
        self.count = 0
        self.graphs = Graphs(torch)
        self._torch, self._begins = torch, begins
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if isinstance(graph, type) and hasattr(graph, "capture_begin") and hasattr(graph, "capture_end"):
            self._wrap(graph)
            if hasattr(graph, "replay"):
                self._wrap_replay(graph)

    def _wrap(self, graph: Any) -> None:
        begin, end = graph.capture_begin, graph.capture_end

        @functools.wraps(begin)
        def capture_begin(captured: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self._begins()
            except Exception as error:
                failure("capture", error)
            try:
                result = begin(captured, *args, **kwargs)
            except BaseException:
                self.count = max(0, self.count - 1)
                raise
            self.graphs.begins(captured)
            return result

        @functools.wraps(end)
        def capture_end(captured: Any, *args: Any, **kwargs: Any) -> Any:
            self.graphs.ends(captured)
            try:
                return end(captured, *args, **kwargs)
            finally:
                self.count = max(0, self.count - 1)

        graph.capture_begin, graph.capture_end = capture_begin, capture_end

    def _wrap_replay(self, graph: Any) -> None:
        launch, replayed = graph.replay, self.graphs.replayed

        @functools.wraps(launch)
        def replay(captured: Any, *args: Any, **kwargs: Any) -> Any:
            replayed(captured)
            return launch(captured, *args, **kwargs)

        graph.replay = replay

    def running(self) -> bool:
        """Whether a capture runs: one that was counted, or one of this thread's stream that was begun in C++."""
        cuda = self._torch.cuda
        return self.count > 0 or bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
