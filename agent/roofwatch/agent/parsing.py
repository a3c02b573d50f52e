"""The daemon's side of parsing: a bounded queue of traces, one worker, and a verdict whatever becomes of it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from roofwatch.agent import counters, link
from roofwatch.agent.config import MIB, Config

QUEUE_MOST = 16  # each holds an open, perhaps unlinked file of tens of megabytes
# After which a worker's 60 MB are worth more than the 0.2 s of CPU to start the next. Longer than the usual minute
# between windows: of a node whose cores are all busy, 0.2 s a minute are most of what profiling would take.
IDLE_S = 100.0
WALL_FACTOR, WALL_SLACK_S = 2.0, 10.0  # a niced worker beside busy jobs gets its CPU time late
COMMAND = (sys.executable, "-P", "-m", "roofwatch.agent.worker")
# One thread, one heap: a small address space, so that the memory limit can be tight.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True)
class Job:
    """A trace to read, and for whom; the descriptor is ours to close."""

    task: link.Task
    fd: int
    note: Any
    beside: bytes = b""  # what is known of the graphs that it replays
    lent: bytes = b""  # shapes that it may borrow


class _Worker:
    """One worker process. Tells exactly one end; the job it had then is the owner's to judge."""

    def __init__(
        self,
        command: Sequence[str],
        memory: int,
        answered: Callable[[link.Answer], None],
        ended: Callable[[_Worker], None],
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own program, by the path of our own interpreter
                [*command, str(theirs.fileno()), str(memory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **ENVIRONMENT},
                cwd="/",
            )
        ours.setblocking(False)
        self.sock = ours
        self.timed_out = False
        self.broken = ""
        self._answered = answered
        self._ended = ended
        self._reader = link.AnswerReader()
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self.process.pid)
        self._loop.add_reader(ours.fileno(), self._readable)
        self._loop.add_reader(self._pidfd, self._exited)

    def hang_up(self) -> None:
        """No more tasks: an idle worker ends by itself."""
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock.fileno())
            self.sock.close()

    def kill(self, *, timed_out: bool = False) -> None:
        """End it now."""
        self.timed_out = self.timed_out or timed_out
        self.process.kill()

    def _readable(self) -> None:
        try:
            answer = self._reader.read(self.sock)
        except (EOFError, OSError):
            # It died, or let go of us; killing what is already dying does not change its exit status.
            self.hang_up()
            self.kill()
            return
        except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
            self.broken = str(error)
            self.hang_up()
            self.kill()
            return
        if answer is not None:
            self._answered(answer)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.process.wait()
        if self.sock.fileno() >= 0:
            with suppress(EOFError, OSError, ValueError, KeyError, TypeError):
                answer = self._reader.read(self.sock)  # its last words may still be in the socket
                if answer is not None:
                    self._answered(answer)
        self.hang_up()
        self._ended(self)

    def verdict(self) -> link.Answer:
        """Why a job that this worker took with it was lost."""
        code = self.process.returncode
        if self.broken:
            return link.Answer(counters.PARSE_TOO_LARGE, self.broken)
        if self.timed_out or code == -signal.SIGXCPU:
            return link.Answer(counters.PARSE_TIME, "reading the trace took too long")
        return link.Answer(counters.PARSE_CRASH, f"the parse worker ended with {code}")


class Parser:
    """Reads traces one after the other. Runs in the event loop's thread."""

    def __init__(
        self,
        config: Config,
        count: counters.Counters,
        done: Callable[[Job, link.Answer], None],
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.configure(config)
        self._counters = count
        self._done = done
        self._command = command
        self._queue: deque[Job] = deque()
        self._current: Job | None = None
        self._worker: _Worker | None = None
        self._alive: set[_Worker] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()  # no trace waits or is read
        self._idle.set()
        self._quiet = asyncio.Event()  # no worker lives
        self._quiet.set()
        self._stopping = False

    def configure(self, config: Config) -> None:
        """Limits from the next trace on; that of memory from the next worker on."""
        self._memory = config.worker_memory_mb * MIB
        self._wall_s = config.worker_seconds * WALL_FACTOR + WALL_SLACK_S

    @property
    def backlog(self) -> int:
        """Traces waiting or being read."""
        return len(self._queue) + (self._current is not None)

    @property
    def workers(self) -> int:
        """Worker processes alive, those about to end included."""
        return len(self._alive)

    def submit(self, job: Job) -> None:
        """Queue a trace; its verdict comes through ``done``, at once where the queue is full."""
        if self._stopping or len(self._queue) >= QUEUE_MOST:
            link.close_quietly(job.fd)
            self._done(job, link.Answer(counters.STOPPING if self._stopping else counters.PARSE_QUEUE_FULL))
            return
        self._queue.append(job)
        self._idle.clear()
        self._next()

    async def stop(self, deadline_s: float) -> None:
        """Finish what is queued, as far as the deadline lets, then end every worker."""
        self._stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._idle.wait()
        while self._queue:
            job = self._queue.popleft()
            link.close_quietly(job.fd)
            self._done(job, link.Answer(counters.STOPPING))
        for worker in list(self._alive):
            worker.kill()
        self._set_timer(None)
        await self._quiet.wait()

    def _set_timer(self, seconds: float | None, then: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None and then is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def _next(self) -> None:
        if self._current is not None or not self._queue:
            return
        self._current = job = self._queue.popleft()
        try:
            self._hand_over(job)
        except OSError as error:
            self._retire()
            self._finish(link.Answer(counters.PARSE_CRASH, f"no parse worker: {error.strerror or error}"))
            return
        finally:
            link.close_quietly(job.fd)
        self._set_timer(self._wall_s, self._too_long)

    def _hand_over(self, job: Job) -> None:
        if self._worker is not None and self._worker.sock.fileno() >= 0:
            with suppress(OSError):  # it may have died while idle; a fresh one does not do that
                link.send_task(self._worker.sock, job.task, job.fd, job.beside, job.lent)
                return
        self._retire()
        self._worker = _Worker(self._command, self._memory, self._answered, self._ended)
        self._alive.add(self._worker)
        self._quiet.clear()
        self._counters.workers["started"] += 1
        link.send_task(self._worker.sock, job.task, job.fd, job.beside, job.lent)

    def _too_long(self) -> None:
        if self._worker is not None:
            self._worker.kill(timed_out=True)

    def _retire(self) -> None:
        if self._worker is not None:
            self._worker.hang_up()
            self._worker = None

    def _answered(self, answer: link.Answer) -> None:
        if answer.last:
            self._retire()
        self._finish(answer)

    def _ended(self, worker: _Worker) -> None:
        self._alive.discard(worker)
        if not self._alive:
            self._quiet.set()
        if worker is not self._worker:
            return
        self._worker = None
        if self._current is not None:
            self._counters.workers["lost"] += 1
            self._finish(link.Answer(counters.STOPPING) if self._stopping else worker.verdict())

    def _finish(self, answer: link.Answer) -> None:
        job, self._current = self._current, None
        self._set_timer(IDLE_S, self._retire)
        try:
            if job is not None:
                self._done(job, answer)
        finally:  # a fault there must not keep the others' traces waiting for ever
            if not self._queue:
                self._idle.set()
            else:
                asyncio.get_running_loop().call_soon(self._next)  # not deeper and deeper where every job fails at once
