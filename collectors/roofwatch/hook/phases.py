"""Every change of the profiler's state in this process: armed, opened and cut at step boundaries, closed, given up.

What the thread that steps does, and any thread that has to: it opens and cuts. What takes longer is for the hook's own
thread (``window.py``).
"""

import _thread
import threading
import time
from typing import Any, Callable, Optional

from . import clock, padding, protocol
from .activity import Activity
from .capture import Capture, Captures
from .log import failure
from .request import Refused, Window
from .signals import deferred
from .steps import NEVER, Steps

IDLE, ARMED, WARM, OPEN, CUT, LOST = "idle", "armed", "warm", "open", "cut", "lost"

EXIT_S = 10.0  # longer than any close


class Phases:
    """Which phase the one window is in. Whoever changes it holds ``lock``; ``wait`` is for the hook's thread."""

    def __init__(self, path: Any, steps: Steps, captures: Captures) -> None:
        self.path, self.steps, self.captures = path, steps, captures
        self.phase = IDLE
        self.window: Optional[Window] = None
        self.windows = 0
        self.job_profiler = 0  # the job's own profiler is prepared or running
        self.exiting = False
        self.hurry = False  # the hook's thread is to end: what takes long is dropped
        self.renew()

    def renew(self) -> None:
        """Fresh locks, at the start and in a forked child."""
        self.activity = Activity(lambda: self.captures.graphs.launched)
        self.staged: Optional[float] = None  # since when windows are not taken because the job loads or saves
        self.lock = threading.RLock()  # around every change of the profiler's state
        self.busy = threading.Lock()  # around saving and freeing, which touch only the window's own memory
        self._gate = _thread.allocate_lock()
        self._gate.acquire()

    # --- on the thread that steps -------------------------------------------------------------------------------------

    def boundary(self, count: int) -> None:
        """A step has just ended. Never waits: when the lock is taken, the next step will do."""
        if self.phase in (ARMED, WARM, OPEN):
            if not self.lock.acquire(False):
                self.steps.at = count + 1
                return
            try:
                with deferred():
                    self._advance()
            finally:
                self.lock.release()
        self.wake()

    def _advance(self) -> None:
        window = self.window
        if self.exiting:
            return
        if self.path.foreign() or (self.path.apart and self.captures.count):
            self.steps.at = self.steps.count + 1  # closed by the thread that opened it, and never inside a capture
        elif window is None:
            self.discard()
        elif self.phase == OPEN:
            self._cut(window, whole=True)
        elif self.phase == ARMED:
            self._guarded(self._open, window)
        elif self.phase == WARM:
            self._guarded(self._enable, window)

    def _guarded(self, opening: Callable[[Window], None], window: Window) -> None:
        """The one place where torch may refuse to start."""
        try:
            opening(window)
        except Refused as refusal:
            window.lost, window.detail, self.phase = refusal.reason, refusal.detail, IDLE
        except Exception as error:
            failure("open", error)
            if self.phase == OPEN:
                self.path.cut()
            window.lost, self.phase = protocol.ERROR, LOST

    # --- opening and cutting, lock held -------------------------------------------------------------------------------

    def _open(self, window: Window) -> None:
        self.check()
        if not self.path.startable():
            raise Refused(protocol.UNSUPPORTED, "thread")
        begun, window.offset_ns = time.monotonic_ns(), clock.offset_ns()
        self.phase = WARM
        self.path.prepare(window.shapes)
        window.at.open_ns += time.monotonic_ns() - begun
        if self.path.warms and window.by_steps:
            self.steps.at = self.steps.count + 1
        else:
            self._enable(window)

    def _enable(self, window: Window) -> None:
        begun = time.monotonic_ns()
        self.path.enable()
        self.phase = OPEN
        window.start_unix_ns = time.time_ns()
        at = window.at
        at.open_ns += time.monotonic_ns() - begun
        at.opened, at.opened_step = time.monotonic_ns(), self.steps.count
        padding.start()
        self.captures.graphs.opened(at.opened)
        if window.by_steps:
            self.steps.at = at.opened_step + window.steps

    def _cut(self, window: Window, whole: bool) -> None:
        window.at.cut, window.at.cut_step = time.monotonic_ns(), self.steps.count  # the plain path closes in its cut
        self.phase = CUT
        self.path.cut()
        padding.end()
        self.captures.graphs.cut()
        window.whole = whole and window.by_steps

    def check(self) -> None:
        """Raise Refused where no window may be opened now."""
        if self.exiting:
            raise Refused(protocol.EXITING)
        if self.phase == LOST:
            raise Refused(protocol.UNSAFE, "a window could not be closed")
        if self.job_profiler or self.path.taken():
            raise Refused(protocol.OWN_PROFILER)
        if self.captures.running():
            raise Refused(protocol.GRAPH_CAPTURE)

    # --- where the process is, on its main thread ---------------------------------------------------------------------

    def open_here(self) -> None:
        """Open a window that is armed, on this thread; for a window by time where only a thread itself can."""
        if not self._amid() and self.lock.acquire(False):  # taken: somebody gives this window up
            try:
                with deferred():
                    if self.phase == ARMED and self.window is not None:
                        self._guarded(self._open, self.window)
            finally:
                self.lock.release()
        self.wake()

    def _amid(self) -> bool:
        """Whether this thread was interrupted inside the hook's own work, which must not be begun a second time."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]  # as threading.Condition asks it

    def expire(self) -> None:
        """Cut an open window here and now, wherever the steps are."""
        if not self._amid():
            with self.lock:
                self.cut_short()
            self.wake()

    def cut_short(self) -> None:
        """The same with the lock held."""
        with deferred():
            if self.phase == OPEN and self.window is not None:
                self._cut(self.window, whole=False)
            elif self.phase == OPEN:  # its request has been answered long ago
                self.discard()

    # --- when something else comes first ------------------------------------------------------------------------------

    def give_up(self, reason: str) -> None:
        """Throw an open window away, at once and for good: when this returns, kineto is as it was. On any thread."""
        with self.busy, self.lock, deferred():
            if self.window is not None and self.phase != IDLE:
                self.window.lost = reason
            self.discard()
        self.wake()

    def capture_begins(self, capture: Capture) -> None:
        """A graph capture is about to begin: an open window records nothing more, and is closed after it."""
        with self.lock:
            self.captures.begun(capture)
            if self.phase == OPEN and not self.path.foreign():
                if self.window is not None:
                    self.window.lost = protocol.GRAPH_CAPTURE
                self.cut_short()
        self.wake()

    def discard(self) -> None:
        """Whatever is armed, open or cut is closed without being kept. Lock held."""
        if self.phase == ARMED:
            self.phase = IDLE
        if self.phase not in (WARM, OPEN, CUT, LOST) or self.path.foreign():
            return
        if self.phase == WARM:
            try:
                self.path.enable()  # kineto has no other way back from a prepared profiler
            except Exception as error:
                failure("discard", error)
        if self.phase in (WARM, OPEN):
            self.path.cut()
        padding.end()
        self.captures.graphs.cut()
        if self.phase == LOST and not self.path.held():
            return
        if self.path.settle(lambda: False):
            self.path.free(self.path.close())
            self.phase = IDLE if self.phase != LOST else LOST
        else:
            self.phase = LOST

    def leave(self) -> None:
        """The process exits: whatever is open is cut and its memory kept, what C++ is doing for us ends first."""
        self.exiting = True
        self.steps.at = NEVER
        self.wake()
        if self.lock.acquire(timeout=EXIT_S):
            try:
                if self.phase in (OPEN, CUT):
                    self.path.abandon(cut=self.phase == OPEN)
                elif self.path.apart and self.phase == WARM:
                    self.discard()
                self.phase = LOST
            finally:
                self.lock.release()
        self.busy.acquire(timeout=EXIT_S)  # and never released

    # --- for the hook's thread ----------------------------------------------------------------------------------------

    def change(self, path: Any) -> bool:
        """Take windows in another way from now on. False while one is being taken."""
        with self.lock:
            if self.phase != IDLE or self.window is not None:
                return False
            self.path = path
            return True

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Sleep until ``done()``, looked at whenever somebody calls ``wake``; False at exit and after ``seconds``."""
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            if left <= 0 or self.exiting:
                return False
            self._gate.acquire(True, min(left, threading.TIMEOUT_MAX))
        return True

    def wake(self) -> None:
        """Have the hook's thread look again."""
        try:
            self._gate.release()
        except RuntimeError:  # it is awake
            pass
