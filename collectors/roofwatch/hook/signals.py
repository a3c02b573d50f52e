"""The job's signal handlers, kept waiting while the hook works on the main thread.

Python runs a handler between two bytecodes of whatever the main thread is at. Inside the hook its exception (Ctrl-C, a
time limit) would break off a half-closed profiler, and could be taken for the hook's own. So a signal that arrives
meanwhile is noted, and sent again to the main thread when the hook has left it.
"""

import _thread
import signal
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List

LEFT_S = 0.001  # the few bytecodes between the end of the work and the job's own code take microseconds


@contextmanager
def deferred() -> Iterator[None]:
    """On the main thread: no handler of the job runs inside the block, and each that was due runs soon after it."""
    # By number: of a thread that it does not know, threading makes an entry that the job would count.
    if threading.get_ident() != threading.main_thread().ident:
        yield
        return
    arrived: List[int] = []

    def note(number: int, _frame: Any) -> None:
        arrived.append(number)

    saved = _replace(note)
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
        if arrived:
            _thread.start_new_thread(_again, (threading.get_ident(), arrived))


def _replace(note: Callable[[int, Any], None]) -> Dict[int, Any]:
    """Set ``note`` for every signal that has a handler in Python; what there was.

    Not for asyncio's: its handler does nothing, and the loop has the signal from a pipe already.
    """
    saved = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and not str(getattr(handler, "__module__", "")).startswith("asyncio"):
            signal.signal(number, note)
            saved[int(number)] = handler
    return saved


def _again(main: int, arrived: List[int]) -> None:
    time.sleep(LEFT_S)
    for number in arrived:
        signal.pthread_kill(main, number)
