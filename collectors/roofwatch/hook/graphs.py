"""The graphs this process has captured, with their op logs, and which of them ran while a window was open."""

import itertools
import json
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from . import protocol
from .listening import Listener
from .log import failure
from .oplog import key_of

MOST_LOG_BYTES = 8 << 20  # of all logs of this process; graphs captured after that have none
MOST_REPLAYS = 4096  # of one window; a decode loop replays a graph every few milliseconds
MESSAGE_BYTES = 200 * 1024  # of logs in one message, which may be 256 KiB
_MARK = "_roofwatch_graph"  # attribute of a graph: its number and the key of its log


class Graphs:
    """Numbers graphs by order of capture; all methods are called on the job's threads and raise nothing."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._numbers = itertools.count(1)  # threads may capture at the same time
        self.logs: Dict[str, str] = {}  # key → JSON text; captures alike share one
        self._bytes = 0
        self._open = False
        self.launched = 0  # replays so far, roughly where several threads replay: whether there are any
        self._opened = 0
        self._replays: List[Tuple[int, int, Any]] = []  # thread, nanoseconds since the opening, mark
        self._missed = 0

    def begins(self) -> Optional[Listener]:
        """A capture has begun on this thread: who listens to it."""
        try:
            return Listener(self._torch)
        except Exception as error:
            failure("graph", error)
            return None

    def ends(self, graph: Any, listener: Optional[Listener]) -> None:
        """The capture is about to end: nothing of ours is in the way of its last call."""
        try:
            text = None
            if listener is not None:
                listener.stop()
                text = listener.log.seal()
            setattr(graph, _MARK, (next(self._numbers), self._keep(text)))
        except Exception as error:
            failure("graph", error)

    def _keep(self, text: Optional[str]) -> Optional[str]:
        if text is None:
            return None
        key = key_of(text)
        if key not in self.logs:
            if self._bytes + len(text) > MOST_LOG_BYTES:
                return None
            self._bytes += len(text)
            self.logs[key] = text
        return key

    def replayed(self, graph: Any) -> None:
        """A graph is about to be launched."""
        self.launched += 1
        if not self._open:
            return
        if len(self._replays) >= MOST_REPLAYS:
            self._missed += 1
            return
        try:
            mark = getattr(graph, _MARK, None) or (0, None)
            self._replays.append((threading.get_native_id(), time.monotonic_ns() - self._opened, mark))
        except Exception as error:
            failure("replay", error)

    def opened(self, opened_ns: int) -> None:
        """A window has opened, at this monotonic time."""
        self._replays, self._missed, self._opened = [], 0, opened_ns
        self._open = True

    def cut(self) -> None:
        """The window has been cut."""
        self._open = False

    def told(self) -> Optional[Dict[str, Any]]:
        """The replays of the window that was cut last, as the ``window`` message tells them; None without any."""
        replays, self._replays = self._replays, []
        if not replays:
            return None
        marks: Dict[Any, int] = {}
        threads: Dict[int, List[int]] = {}
        for thread, at, mark in replays:
            threads.setdefault(thread, []).extend((at, marks.setdefault(mark, len(marks))))
        return {
            "graphs": [list(mark) for mark in marks],
            "threads": [[thread, line] for thread, line in threads.items()],
            "missed": self._missed,
        }

    def messages(self, told: Optional[Dict[str, Any]], sent: Set[str]) -> Iterator[Dict[str, Any]]:
        """The ``graph_logs`` messages that a window's replays need beside those already ``sent``, which grows."""
        batch: List[Dict[str, Any]] = []
        size = 0
        for _, key in told["graphs"] if told else ():
            text = self.logs.get(key)
            if text is None or key in sent:
                continue
            if batch and size + len(text) > MESSAGE_BYTES:
                yield {"type": protocol.GRAPH_LOGS, "logs": batch}
                batch, size = [], 0
            sent.add(key)
            batch.append(dict(json.loads(text), key=key))
            size += len(text)
        if batch:
            yield {"type": protocol.GRAPH_LOGS, "logs": batch}
