"""Fork and exit: a child begins anew, and nothing of ours runs while C++ is taken down."""

import atexit
import os
from typing import Any

from . import groups
from .log import failure
from .pending import PendingCall
from .phases import ARMED, CUT, IDLE, LOST, OPEN
from .quiesce import threads
from .session import Session
from .window import Taker

WAIT_S = 10.0  # longer than any close: a child made in the middle of one could not even exit


class Process:
    """Holds the profiler's state still over a fork."""

    def __init__(self, taker: Taker, session: Session) -> None:
        self.taker, self.session = taker, session
        self._held: Any = ()
        self._stopped = False  # our thread, for a fork
        os.register_at_fork(before=self._before, after_in_parent=self._parent, after_in_child=self._child)
        try:
            self._soon = PendingCall(self._back)
            os.register_at_fork(after_in_parent=self._soon.asking())
        except (AttributeError, OSError):  # a build that does not export it: there only a step brings the thread back
            pass
        atexit.register(self._leave)

    def leave_first(self) -> None:
        """At exit before everything that was registered until now: a device's library may have been, meanwhile."""
        atexit.unregister(self._leave)
        atexit.register(self._leave)

    def _before(self) -> None:
        """No call into kineto is under way, no window records, and the process is as many-threaded as the job made it.

        From Python 3.12 on, ``os.fork`` warns on stderr in a process with threads.
        """
        try:
            taker = self.taker
            if taker.exiting:
                return
            self._held = tuple(lock for lock in (taker.busy, taker.lock) if lock.acquire(timeout=WAIT_S))
            if taker.phase == OPEN and not taker.path.foreign():
                taker.cut_short()
            taker.path.opened()
            taker.wake()
            if taker.phase == IDLE and self.session.running is not None and len(threads()) == 2:
                self._stopped = True
                self.session.stop()
        except Exception as error:
            failure("fork", error)

    def _parent(self) -> None:
        for lock in reversed(self._held):
            lock.release()
        self._held = ()
        if self.session.running is None:
            self.taker.steps.at = 1  # the thread comes back with the next step

    def _back(self) -> None:
        """Where there are no steps the thread comes back once ``os.fork`` has returned: Python 3.13 warns of threads
        that are there when the parent's handlers have run.
        """  # noqa: D205 - one thought
        stopped, self._stopped = self._stopped, False
        try:
            if stopped and not self.taker.steps.count:
                self.session.begin()
        except Exception as error:
            failure("fork", error)

    def _child(self) -> None:
        """Nothing of the parent's is ours: no thread, no connection, and a window that only waits to be thrown away."""
        try:
            taker, session = self.taker, self.session
            if taker.exiting:
                return
            whole, self._held, self._stopped = len(self._held) == 2, (), False
            if session.channel is not None:
                session.channel.close()
            if taker.phase == CUT and whole:
                taker.phase = CUT if taker.path.inherit() else IDLE
            elif taker.phase not in (IDLE, ARMED) or not whole:
                if taker.phase == OPEN and not taker.path.apart:
                    taker.path.abandon(cut=True)  # else C++ would trip over it when the child exits
                taker.phase = LOST
            else:
                taker.phase = IDLE
            taker.window, taker.windows = None, 0
            taker.renew()
            session.alive = False
            session.renew()
            taker.steps.restart()
        except Exception as error:
            failure("child", error)

    def _leave(self) -> None:
        try:
            self.taker.leave()
            groups.leave()
        except Exception as error:
            failure("exit", error)
