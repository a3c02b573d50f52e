"""Kernels that compiled code and jobs launch by name, without an op: their launchers, wrapped while a capture is heard.

The wrappers are the process's, a capture is one thread's: each kernel goes to the log of the thread that launches it.
"""

import functools
import sys
import threading
from typing import Any, Callable, Dict, Optional, Set, Tuple

from .dynamo import skip_in_dynamo
from .log import failure
from .oplog import OpLog

# Module, class, how a kernel is named.
_LAUNCHERS: Tuple[Tuple[str, str, Callable[[Any], Any]], ...] = (
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", lambda kernel: kernel.fn.__name__),
    ("triton.runtime.jit", "JITFunction", lambda kernel: kernel.__name__),
)
BUSY_S = 1.0  # for the other thread that is wrapping or unwrapping, which takes microseconds

_here = threading.local()  # log: of the capture that is heard on this thread
_logs: Set[OpLog] = set()  # of all threads
_wrapped: Dict[Any, Tuple[Any, Any]] = {}  # class → its own ``run`` and ours
_changing = threading.Lock()


def current() -> Optional[OpLog]:
    """The log of the capture that is heard on this thread."""
    oplog: Optional[OpLog] = getattr(_here, "log", None)
    return None if oplog is None or oplog.over else oplog


def note(torch: Any, oplog: OpLog) -> bool:
    """This thread's launches go to this log, until it is over. False where that could not be done."""
    if not _changing.acquire(timeout=BUSY_S):
        return False
    try:
        _logs.add(oplog)
        _here.log = oplog
        for module, name, named in _LAUNCHERS:
            kind: Any = getattr(sys.modules.get(module), name, None)
            run = None if kind is None else kind.__dict__.get("run")
            if run is not None and run is not _wrapped.get(kind, (None, None))[1]:
                ours = _launching(torch, run, named)
                skip_in_dynamo(torch, ours, within=False)
                _wrapped[kind] = (run, ours)
                kind.run = ours
    finally:
        _changing.release()
    return True


def over(oplog: OpLog) -> None:
    """This log, which is over, takes no more; with the last one the launchers are the job's again."""
    _logs.discard(oplog)
    if getattr(_here, "log", None) is oplog:
        _here.log = None
    _unwrap()


def _unwrap() -> None:
    """Never waits: it may interrupt another of these on its own thread. What is left so, the next launch finds."""
    if _logs or not _changing.acquire(False):
        return
    try:
        while _wrapped and not _logs:
            kind, (run, ours) = _wrapped.popitem()
            if kind.__dict__.get("run") is ours:
                kind.run = run
    finally:
        _changing.release()


def _launching(torch: Any, run: Callable[..., Any], named: Callable[[Any], Any]) -> Callable[..., Any]:
    """A launcher's ``run`` that notes the kernel once it has launched."""
    backward = getattr(torch._C, "_current_autograd_node", lambda: None)

    @functools.wraps(run)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        if not _logs:
            _unwrap()
            return result
        oplog = current()
        if oplog is None and len(_logs) == 1 and backward() is not None:
            oplog = next(iter(_logs.copy()), None)  # backward work of a capture runs on autograd's own threads
        if oplog is None or oplog.over or kwargs.get("warmup"):
            return result
        try:
            oplog.kernel(str(named(self)), args)
        except Exception as error:
            oplog.over = oplog.cut = True
            failure("graph log", error)
        return result

    return call
