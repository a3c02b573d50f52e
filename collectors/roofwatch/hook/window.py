"""One profiler window at a time: armed, opened and cut at step boundaries by the thread that steps, closed by ours.

The order is always *cut* (no thread begins another event), *detach* (no thread can see the window), *quiesce* (no
thread is inside a callback), *close*: closing while a thread is inside a callback would end the process.
"""

import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional

from . import clock, padding, protocol, trace
from .activity import LOOK_S, SLOW_LOOK_S
from .cost import cost
from .phases import ARMED, CUT, IDLE, LOST, OPEN, WARM, Phases
from .request import Refused, Window
from .stages import stage
from .steps import NEVER

DRAIN_S = 0.015  # ops in flight at the cut may still record their ends
RESIDUE_STEPS, RESIDUE_S = 10, 4.5  # the protocol allows 5 s
INTERRUPT_S = 0.5  # then the main thread is asked again: it may have been inside the hook's own work
EXPIRE_S = 30.0  # a main thread that runs no bytecode for so long
CAPTURE_S = 5.0
STAGE_S = 0.1  # between two looks, while a window is open, at whether the job loads or saves
STAGED_MOST_S = 300.0  # without a window because of that; a job that reads its data with torch.load always loads


class Taker(Phases):
    """Takes windows in this process. ``take`` runs on the hook's thread."""

    def take(self, request: Dict[str, Any]) -> trace.Taken:
        """Take one window as asked. Raises Refused."""
        if not self.steps.count and not self.path.timed:
            raise Refused(protocol.UNSUPPORTED, "no steps")
        self.path.ready(request)
        self._work_awaited(request)
        by_steps = self.steps.count > 0
        window = Window(request, self.windows == 0, by_steps, self.activity.trial)
        with self.lock:
            if self.phase == CUT and self.window is None:  # inherited over a fork
                self.discard()
            self.check()
            if self.hurry:
                raise Refused(protocol.EXITING)
            if self.phase != IDLE:
                raise Refused(protocol.BUSY)
            first = window.first_boundary(self.steps.count, warm=int(self.path.warms)) if by_steps else NEVER
            padding.ready()
            self.window, self.phase = window, ARMED
            if by_steps:
                self.steps.at = first
            elif self.path.any_thread:
                self._guarded(self._open, window)
        try:
            if self.phase == ARMED and not by_steps:
                self.path.interrupt(self.open_here)
            self._await(window)
            return self._finish(window, request.get("request"))
        except Refused as refusal:
            refusal.opened = window.at.opened > 0
            raise
        finally:
            if self.window is window:
                self.window = None

    def _work_awaited(self, request: Dict[str, Any]) -> None:
        """Wait until a process without steps is at work. Raises Refused, also where it loads a model or saves one."""
        if not self.steps.count and self.path.bindings is not None:
            patience = float(request.get("timeout_ms") or 30_000) / 1e3
            over = lambda: self.exiting or self.hurry or self.steps.count > 0  # noqa: E731
            if not self.activity.awaited(patience, self._slept, over) and not self.steps.count:
                raise Refused(protocol.EXITING if self.exiting or self.hurry else protocol.IDLE)
        found = self._stage()
        if found is not None:
            raise Refused(found)

    def _stage(self) -> Optional[str]:
        """Whether the job loads or saves; None, too, once that has kept it from its windows for too long."""
        now = time.monotonic()
        if self.staged is not None and now - self.staged >= STAGED_MOST_S:
            return None
        found = stage()
        if found is not None and self.staged is None:
            self.staged = now
        return found

    def _slept(self, seconds: float) -> bool:
        return self.wait(lambda: False, seconds)

    def _await(self, window: Window) -> None:
        self.wait(lambda: self.phase not in (ARMED, WARM), window.timeout_s)
        with self.lock:
            if self.phase in (ARMED, WARM):
                window.lost = protocol.EXITING if self.exiting else protocol.NO_STEPS
                self.discard()
        if window.lost:
            raise Refused(window.lost, window.detail)
        if not window.by_steps:
            self.activity.begins()
        left = window.at.opened + (window.max_ns if window.by_steps else window.duration_ns) - time.monotonic_ns()
        self._watch(window, left / 1e9)
        if window.trial:
            self._quietly(window)
        elif not window.by_steps:
            self._linger(window)
        if self.phase == OPEN and not self._interrupted(window):
            window.lost = protocol.GIVEN_UP
            self.steps.at = self.steps.count + 1  # the next step closes it
        if not window.by_steps:
            window.active_ns = self.activity.ends()

    def _linger(self, window: Window) -> None:
        """A window by time in which nothing happened yet goes on until something does, and then for its time."""
        end = window.at.opened + window.max_ns
        while self.phase == OPEN and not window.lost and not self.exiting and not self.activity.seen():
            left = end - time.monotonic_ns()
            if left <= 0 or self.path.full():
                return
            self._watch(window, min(left / 1e9, LOOK_S))
            if self.activity.seen():
                left = min(end - time.monotonic_ns(), window.duration_ns)
                self._watch(window, left / 1e9)

    def _quietly(self, window: Window) -> None:
        """A trial goes on for as long as next to nothing happens, and then for the window's time."""
        while self.phase == OPEN and not window.lost and not self.exiting and not self.hurry and not self.path.full():
            if self.activity.enough():
                self._watch(window, window.duration_ns / 1e9)
                return
            if self.activity.tried_for_long():
                return
            self._watch(window, SLOW_LOOK_S)

    def _interrupted(self, window: Window) -> bool:
        """Have an open window cut wherever its process is; False where that could not be in time."""
        end = time.monotonic() + EXPIRE_S
        while not self.exiting and time.monotonic() < end:
            self.path.interrupt(self.expire)
            if self.path.apart and window.by_steps:
                self.steps.at = self.steps.count + 1  # where another thread than the main one steps
            if self.wait(lambda: self.phase != OPEN, INTERRUPT_S):
                return True
        return False

    def _watch(self, window: Window, seconds: float) -> None:
        """Wait for the cut, or until an open window is to be cut: after ``seconds``, or where it has written enough.

        One in which the job begins to load or to save is given up.
        """
        end = time.monotonic() + seconds
        while self.phase == OPEN and not self.path.full():
            left = end - time.monotonic()
            if left <= 0 or self.exiting:
                return
            found = self._stage()
            if found is not None:
                window.lost = found
                return
            self.wait(lambda: self.phase != OPEN, min(left, STAGE_S))

    def _finish(self, window: Window, request: Any) -> trace.Taken:
        with self.lock:
            self.path.opened()
        time.sleep(DRAIN_S)
        with self.busy:
            with self._no_capture():
                if window.lost:
                    self.discard()
                if self.phase != CUT:
                    raise Refused(window.lost or protocol.GIVEN_UP)
                result = self._close(window)
            if self.path.apart and not window.clock_set:  # who reads what is refused would not be waited for
                self.path.start()
            fd = -1 if self.path.apart else self._save(window, result)
        taken = trace.Taken(self._save(window, result) if fd < 0 else fd)
        if window.trial and not self.activity.tried(-1 if self.path.apart else taken.fd):
            taken.close()
            raise Refused(protocol.IDLE, "no op")
        self.windows += 1
        self.staged = None
        try:
            self._residue(window)
            costs = cost(window.at, self.steps, self.path.name, window.by_steps, self.path.apart)
        except BaseException:
            taken.close()
            raise
        taken.message = trace.message(request, window, self.steps.count, costs, padding.sums())
        taken.message["replays"] = self.captures.graphs.told()
        taken.message.update(self.path.told)
        if "analysis" in self.path.told:
            costs["parse_cpu_ns"] = self.path.told["analysis"]["cpu_ns"]  # on the node, not in the job
        return taken

    @contextmanager
    def _no_capture(self) -> Iterator[None]:
        """The lock, taken while no graph capture runs; after 5 s of one the process is given up."""
        end = time.monotonic() + CAPTURE_S
        while not self.exiting and time.monotonic() < end:
            with self.lock:
                if not self.captures.count:
                    yield
                    return
            time.sleep(0.01)
        with self.lock:
            if self.phase == CUT and self.captures.count:
                self.path.abandon(cut=False)
                self.phase = LOST
            yield

    def _close(self, window: Window) -> Any:
        begun = time.monotonic_ns()
        if not self.path.settle(lambda: self.exiting):
            self.phase = LOST
            raise Refused(protocol.EXITING if self.exiting else protocol.UNSAFE, "not quiet")
        quiet = time.monotonic_ns()
        result = self.path.close()
        window.at.quiesce_ns, window.at.close_ns = quiet - begun, time.monotonic_ns() - quiet
        window.clock_set = clock.was_set(window.offset_ns, time.monotonic_ns() - window.at.opened)
        self.phase = IDLE
        return result

    def _save(self, window: Window, result: Any) -> int:
        begun = saved = time.monotonic_ns()
        try:
            if self.exiting:
                raise Refused(protocol.EXITING)
            if window.clock_set:
                raise Refused(protocol.CLOCK_SET)
            fd: int = self.path.save(result)
            saved = time.monotonic_ns()
        finally:
            if not self.exiting or self.path.apart:  # else its memory goes with the process
                self.path.free(result)
        at = window.at
        at.save_ns, at.free_ns, at.freed_step = saved - begun, time.monotonic_ns() - saved, self.steps.count
        if self.path.stall_ns is not None:  # closed on the stepping thread
            at.close_ns, at.save_ns, at.free_ns = self.path.stall_ns
        if self.path.apart:
            at.freed_step = at.cut_step
        return fd

    def _residue(self, window: Window) -> None:
        """Let some steps pass, to see whether they are slower than before the window."""
        if window.by_steps:
            goal = window.at.freed_step + 1 + RESIDUE_STEPS
            self.steps.at = goal
            self.wait(lambda: self.steps.count >= goal or self.hurry, RESIDUE_S)
