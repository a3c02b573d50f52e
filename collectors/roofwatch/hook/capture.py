"""Graph captures: no window opens or closes while one runs, its ops are noted, and its replays are known."""

import functools
import weakref
from typing import Any, Callable, Dict, List, Set

from .graphs import Graphs
from .listening import Listener
from .log import failure


class Capture:
    """One that has begun, or is about to."""

    def __init__(self) -> None:
        self.listener: "Listener | None" = None
        self.graph: Any = None  # weak reference


class Captures:
    """Which graph captures run in this process, and what is known of the graphs.

    A capture runs from its begin to its end. Without an end it runs as long as its graph lives: so it does on the
    device, also where a class of the job's raises from its own begin after torch's has succeeded.
    """

    def __init__(self, torch: Any, begins: Callable[[Capture], None]) -> None:
        """Watch ``torch.cuda.CUDAGraph``; ``begins(capture)`` is called before each capture, and calls ``begun``."""
        self.graphs = Graphs(torch)
        self._torch, self._begins = torch, begins
        # Changed by single calls of set and dict alone, which no thread and no freed graph can come between.
        self._running: Set[Capture] = set()
        self._of: Dict[int, List[Capture]] = {}  # by the graph's id
        self._watched: List[Any] = []
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if isinstance(graph, type) and hasattr(graph, "capture_begin") and hasattr(graph, "capture_end"):
            self.watch(graph, heard=True)
            if hasattr(graph, "replay"):
                self._wrap_replay(graph)

    @property
    def count(self) -> int:
        """How many captures run."""
        return len(self._running)

    def begun(self, capture: Capture) -> None:
        """Count a capture."""
        self._running.add(capture)

    def watch(self, kind: Any, heard: bool) -> None:
        """Count the captures of this class of graphs, and where ``heard`` note their ops and number them."""
        if kind in self._watched:
            return
        self._watched.append(kind)
        begin, end = kind.capture_begin, kind.capture_end

        @functools.wraps(begin)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            capture = Capture()
            try:
                self._begins(capture)
            except Exception as error:
                failure("capture", error)
            try:
                result = begin(graph, *args, **kwargs)
            except BaseException:
                self._running.discard(capture)
                raise
            self._hold(capture, graph)
            if heard and capture.graph is not None and not _overridden(graph, kind):
                capture.listener = self.graphs.begins()
            return result

        @functools.wraps(end)
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            capture = self._ended(graph)
            if heard and capture is not None:
                self.graphs.ends(graph, capture.listener)
            try:
                return end(graph, *args, **kwargs)
            finally:
                if capture is not None:
                    self._running.discard(capture)

        kind.capture_begin, kind.capture_end = capture_begin, capture_end

    def _hold(self, capture: Capture, graph: Any) -> None:
        try:
            key = id(graph)
            self._of.setdefault(key, []).append(capture)
            capture.graph = weakref.ref(graph, lambda _: self._freed(key))
        except Exception as error:
            failure("capture", error)

    def _ended(self, graph: Any) -> "Capture | None":
        """The capture of this graph that is about to end, the last that began; None of one that began before us."""
        held = self._of.get(id(graph))
        capture = held.pop() if held else None
        if not held:
            self._of.pop(id(graph), None)
        return capture

    def _freed(self, key: int) -> None:
        """A graph is freed: what it has begun and not ended is over."""
        for capture in self._of.pop(key, ()):
            self._running.discard(capture)
            if capture.listener is not None:
                capture.listener.stop()

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


def _overridden(graph: Any, kind: Any) -> bool:
    """Whether the graph's class has a begin or end of its own: what it does around torch's is not ours to judge."""
    line = type(graph).__mro__
    own = line[: line.index(kind)] if kind in line else line
    return any("capture_begin" in vars(each) or "capture_end" in vars(each) for each in own)
