"""How to record and close a window: without the GIL where that was proved, else by torch on the stepping thread."""

import os
import threading
import time
from contextlib import nullcontext
from typing import Any, Callable, Dict, Optional

from . import groups, protocol
from .bindings import Bindings
from .muted import Muted, severity
from .native import ConfigLoader, Native, Shared, flavour, proved
from .pending import PendingCall
from .quiesce import quiesce
from .stages import alone
from .trace import save_private


class NativePath:
    """All threads are recorded; any thread may open and cut; the hook's thread closes without the GIL."""

    name = protocol.NATIVE
    timed = any_thread = True
    apart = False  # whether most of the work after the cut is another process's
    stall_ns = None

    def __init__(self, bindings: Bindings) -> None:
        self.bindings, self.native = bindings, Native(bindings.torch)
        self.warms = flavour(bindings.torch) != "cpu"  # one step of warm-up, for the device's own recorder
        self.told: Dict[str, Any] = {}  # what the window's message says beside the rest
        self.state: Optional[Shared] = None  # detached; never released except by close
        self._now: Any = None
        self._groups: Optional[str] = None

    def ready(self, _request: Dict[str, Any]) -> None:
        """On the hook's thread, before anything else. Raises Refused."""
        self._groups = groups.told()

    def full(self) -> bool:
        """Whether an open window has written as much as it may."""
        return False

    def taken(self) -> bool:
        """Whether somebody else's profiler is open."""
        return self.bindings.enabled() or self.native.active()

    def startable(self) -> bool:
        """Whether this thread may open a window without kineto writing to the job's stderr."""
        return self.native.adopt(self.bindings.importer)

    def prepare(self, shapes: bool) -> None:
        """First half of opening."""
        self._now = (self.bindings.config(shapes, all_threads=True), self.bindings.activities())
        with self.native.loader.first_use(self.native.started()), Muted():
            self.bindings.prepare(*self._now)

    def enable(self) -> None:
        """Second half: records from here on."""
        with Muted():
            self.bindings.enable(*self._now)
            self.bindings.note_groups(self._groups)

    def cut(self) -> None:
        """No thread begins another event."""
        self.native.cut()

    def opened(self) -> None:
        """On the hook's thread, after the opening."""
        self.native.loader.end()

    def detach(self) -> None:
        """No thread sees the window any more. Its memory stays until ``close``, for ever where that is not safe."""
        self.state = self.native.detach() or self.state

    def settle(self, stop: Callable[[], bool]) -> bool:
        """Wait until no thread can touch the window's memory; False: it must never be closed."""
        self.detach()
        return quiesce(stop)

    def close(self) -> Any:
        """End the window; its result."""
        state, self.state = self.state, None
        return self.native.close(state) if state is not None else None

    def save(self, result: Any) -> int:
        """The trace as a descriptor. Raises OSError."""
        return save_private(lambda path: self.native.save(result, path))

    def free(self, result: Any) -> None:
        """Give the memory of the result back."""
        self.native.free(result)

    def foreign(self) -> bool:
        """Whether only another thread could close the open window."""
        return False

    def held(self) -> bool:
        """Whether the memory of a window that was never closed is still here."""
        return self.state is not None

    def inherit(self) -> bool:
        """In a forked child, with a window that was cut before: keep it for ``close``. Whether there is one."""
        self.detach()
        return self.held()

    def abandon(self, cut: bool) -> None:
        """The process ends: out of every thread's sight, and never closed."""
        if cut:
            self.native.cut()
        self.detach()

    def interrupt(self, cut: Callable[[], None]) -> None:
        """The window's time is over: cut it from this thread."""
        cut()


class PlainPath:
    """torch.profiler as it is, on the thread that steps, which alone is recorded: no race, and a stall at the end."""

    name = protocol.PLAIN
    any_thread = False
    warms = False
    apart = False
    loader: Optional[ConfigLoader] = None  # kineto's; where another profiler records, there is none to end

    def __init__(self, bindings: Bindings) -> None:
        self.bindings: Any = bindings
        severity()  # a build whose messages cannot be muted gets no windows
        try:
            self.loader = ConfigLoader(bindings.torch)
        except (AttributeError, OSError):  # not exported by this build: as a profiler of the job's own would leave it
            self.loader = None
        self.started = False
        self.told: Dict[str, Any] = {}
        self.thread: Optional[int] = None  # that has the profiler open
        self.fd = -1
        self.stall_ns = (0, 0, 0)  # of close, save, free, on the stepping thread
        self._now: Any = None
        self._groups: Optional[str] = None
        self._act: Optional[Callable[[], None]] = None
        # For the life of the process: Python may run it long after it was asked to, while the main thread waits.
        self._call = PendingCall(self._on_main)

    def ready(self, _request: Dict[str, Any]) -> None:
        """On the hook's thread, before anything else. Raises Refused."""
        self._groups = groups.told()

    def full(self) -> bool:
        """Whether an open window has written as much as it may."""
        return False

    def taken(self) -> bool:
        """Whether somebody else's profiler is open."""
        return bool(self.bindings.enabled())

    def startable(self) -> bool:
        """Kineto must be started by the thread that imported torch."""
        return self.started or threading.get_ident() == self.bindings.importer

    def prepare(self, shapes: bool) -> None:
        """First half of opening, on the stepping thread."""
        self._now = (self.bindings.config(shapes, all_threads=False), self.bindings.activities())
        started, self.started = self.started, True
        with self.loader.first_use(started) if self.loader else nullcontext(), Muted():
            self.bindings.prepare(*self._now)

    def enable(self) -> None:
        """Second half: records from here on."""
        self.thread = threading.get_ident()
        with Muted():
            self.bindings.enable(*self._now)
            self.bindings.note_groups(self._groups)

    def cut(self) -> None:
        """Close and save at once: the stall. Where nothing is open (a close was broken off): nothing."""
        self._finish(keep=True)

    def _finish(self, keep: bool) -> None:
        self.thread = None
        if not self.bindings.torch._C._autograd._profiler_enabled():  # without one, closing would end the process
            return
        stamps = [time.monotonic_ns()]
        with Muted():
            result = self.bindings.disable()
            stamps.append(time.monotonic_ns())
            try:
                self.fd = save_private(result.save) if keep else -1
            finally:
                stamps.append(time.monotonic_ns())
                del result
        stamps.append(time.monotonic_ns())
        self.stall_ns = (stamps[1] - stamps[0], stamps[2] - stamps[1], stamps[3] - stamps[2])

    def opened(self) -> None:
        """On the hook's thread after the opening, and before a fork."""
        if self.loader:
            self.loader.end()

    def settle(self, stop: Callable[[], bool]) -> bool:
        """Nothing to wait for: the thread that recorded is the one that has closed."""
        return not stop()

    def close(self) -> Any:
        """Done by ``cut``."""

    def save(self, _result: Any) -> int:
        """The trace as a descriptor. Raises OSError when it could not be written."""
        fd, self.fd = self.fd, -1
        if fd < 0:
            raise OSError("the trace could not be written")
        return fd

    def free(self, _result: Any) -> None:
        """Give back what nobody asked for."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def foreign(self) -> bool:
        """Whether only another thread could close the open window."""
        return self.thread is not None and self.thread != threading.get_ident()

    def held(self) -> bool:
        """Whether a window that nobody wants is still open."""
        return self.thread is not None

    def inherit(self) -> bool:
        """In a forked child: the parent's trace is the parent's."""
        self.free(None)
        return False

    def abandon(self, cut: bool) -> None:
        """The process ends: nobody waits for the trace, and to save it takes longer than to close."""
        if cut and not self.foreign():
            self._finish(keep=False)

    @property
    def timed(self) -> bool:
        """Whether a process without steps may have windows: the device's records are of all its threads.

        Of the ops only the main thread's are recorded. On a CPU, where ops are the records, a server whose other
        threads compute would look idle: there it may where Python has no thread but that one and ours.
        """
        return "cuda" in {activity.name.lower() for activity in self.bindings.activities()} or alone()

    def interrupt(self, act: Callable[[], None]) -> None:
        """Open or cut a window by time: on the main thread between two of its bytecodes, or else at its next step."""
        self._act = act
        self._call.soon()

    def _on_main(self) -> None:
        act, self._act = self._act, None
        if act is not None and not self.foreign():
            act()


class NoPath(PlainPath):
    """No windows: the process is only seen."""

    name = protocol.NONE
    any_thread = True
    timed = True

    def __init__(self) -> None:
        self.bindings = None
        self.thread = None
        self.fd = -1

    def taken(self) -> bool:
        """Nobody's concern here."""
        return False

    def startable(self) -> bool:
        """Never."""
        return False


def choose(torch: Any, environ: Any = os.environ) -> Any:
    """The path for this build. ``ROOFWATCH_HOOK_CLOSE`` names one to use instead."""
    wish = environ.get("ROOFWATCH_HOOK_CLOSE")
    if wish == protocol.NONE or "KINETO_USE_DAEMON" in environ:  # kineto has another master there
        return NoPath()
    unfit = (AttributeError, ImportError, OSError, ValueError)  # a build that lacks what the path needs
    try:
        bindings = Bindings(torch)
        if wish == protocol.NATIVE or (wish is None and proved(torch)):
            try:
                return NativePath(bindings)
            except unfit:
                pass
        return PlainPath(bindings)
    except unfit:
        return NoPath()
