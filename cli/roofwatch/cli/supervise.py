"""Child processes that are gone when the block ends, however it ends: done, failed, interrupted, even killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from roofwatch.model.errors import RoofwatchError

GRACE_S = 5.0  # from SIGTERM to SIGKILL
POLL_S = 0.05
LAST_LINES = 3  # of a child's output, quoted when it ends by itself
STOPPING = (signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1

_prctl = ctypes.CDLL(None).prctl  # looked up here: a forked child may not load a library


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP arrived: leave as after Ctrl-C, so that everything is stopped on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True, slots=True)
class Child:
    """A process in a group of its own; its output goes to a file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        """The last lines it wrote, as one line."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-LAST_LINES:]) or "it wrote nothing"

    def signal_group(self, number: int) -> bool:
        """Signal the whole group; False where nobody is left in it."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True


def _end_with_parent() -> None:
    """In the child: the kernel sends SIGTERM when the parent is gone, also after a SIGKILL."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Children:
    """What was started, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Child] = []

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> Child:
        """Start a process in a group of its own, without a terminal."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603  # our own programs
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(env),
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509  # one system call, nothing that a thread could hold
            )
        child = Child(name, process, log)
        self._started.append(child)
        return child

    def running(self) -> Sequence[Child]:
        """What was started and not stopped, in order."""
        return tuple(self._started)

    def check(self) -> None:
        """Nothing that was started has ended.

        Raises:
            RoofwatchError: one has; says which, and its last words.
        """
        for child in self._started:
            if (code := child.process.poll()) is not None:
                raise RoofwatchError(f"the {child.name} ended with exit code {code}: {child.tail()}")

    def until(self, ready: Callable[[], bool], what: str, limit_s: float) -> None:
        """Wait until something holds, while everything started is alive.

        Raises:
            RoofwatchError: a child ended, or the time is over.
        """
        end = time.monotonic() + limit_s
        while not ready():
            self.check()
            if time.monotonic() > end:
                raise RoofwatchError(f"{what} within {limit_s:.0f} s: is this machine very busy?")
            time.sleep(POLL_S)

    def ended(self, child: Child, limit_s: float) -> int | None:
        """Wait for one that ends by itself; its exit code, None where it took too long and was ended."""
        try:
            return child.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(child)
            self._started.remove(child)

    def tails(self) -> str:
        """The last words of each."""
        return "; ".join(f"{child.name}: {child.tail()}" for child in self._started)

    def stop(self) -> None:
        """End every group, the last started first; kill what does not go by itself."""
        for child in reversed(self._started):
            _end(child)
        self._started.clear()


def _end(child: Child) -> None:
    """SIGTERM to the group, SIGKILL to what is left of it after a while."""
    child.signal_group(signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while _alive(child) and time.monotonic() < end:
        time.sleep(POLL_S)
    child.signal_group(signal.SIGKILL)
    child.process.wait()


def _alive(child: Child) -> bool:
    child.process.poll()  # reaps the leader: a zombie would keep its group alive
    return child.signal_group(0)


@contextlib.contextmanager
def children(folder: Path) -> Iterator[Children]:
    """Children that do not outlive the block. Signals that arrive while they are being stopped are left aside."""

    def terminate(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    group = Children(folder)
    before = {number: signal.signal(number, terminate) for number in STOPPING}
    before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    try:
        yield group
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        try:
            group.stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
