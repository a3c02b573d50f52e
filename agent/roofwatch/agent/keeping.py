"""Keeps traces: for each one a process of its own copies it (``keeper.py``), and a note tells whose it is."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from roofwatch.agent.config import MIB, Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.log import Log
from roofwatch.agent.messages import WindowMessage
from roofwatch.agent.parsing import ENVIRONMENT
from roofwatch.agent.registry import Member
from roofwatch.agent.traces import Note, Traces

AT_ONCE = 4  # copies; each is a niced process
WAITING_MOST = 32  # each holds an open file of tens of megabytes
CPU_S, WALL_S = 60, 120.0
REMEMBERED = 256  # verdicts nobody has asked for yet
OFF, FULL, TIME, FAILED = "this agent keeps no traces", "too many at once", "time", "failed"
COMMAND = (sys.executable, "-P", "-m", "roofwatch.agent.keeper")

Settled = Callable[[str], None]


class Keeping:
    """All copies of one agent. Runs in the event loop's thread."""

    def __init__(self, config: Config, traces: Traces, counters: Counters, log: Log) -> None:
        self._trace_bytes = config.trace_mb * MIB
        self.traces = traces
        self._counters = counters
        self._log = log
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._copies: dict[str, asyncio.Task[None]] = {}
        self._verdicts: dict[str, str] = {}  # uid → why not kept, "" where it is
        self._waiting: dict[str, list[Settled]] = {}

    def configure(self, config: Config) -> None:
        """Take other limits, from the next trace on."""
        self._trace_bytes = config.trace_mb * MIB
        self.traces.limit(config.keep_traces_mb * MIB, config.keep_traces_hours * 3600)

    def keep(self, uid: str, fd: int, arrived: WindowMessage, member: Member) -> None:
        """Copy a trace; the descriptor stays the caller's."""
        if not self.traces.most_bytes or len(self._copies) >= WAITING_MOST:
            self._verdict(uid, OFF if not self.traces.most_bytes else FULL)
            return
        try:
            own = os.dup(fd)
        except OSError as error:  # too many are open: the window itself is still read
            self._verdict(uid, f"{error.strerror}")
            return
        process = member.process
        note = Note(
            uid, arrived.format, 0, "", 0, arrived.start_unix_ns, f"{process.id:016x}", process.pid, process.job or "",
            process.model or "", process.user or "", -1 if process.rank is None else process.rank,
            arrived.duration_ns, arrived.steps, arrived.first_step,
        )  # fmt: skip
        self._copies[uid] = asyncio.create_task(self._copy(note, own, arrived.size))

    def settled(self, uid: str, told: Settled) -> None:
        """Hear why a trace is not kept, "" where it is; at once or when it is known."""
        if uid in self._verdicts:
            told(self._verdicts.pop(uid))
        elif uid in self._copies:
            self._waiting.setdefault(uid, []).append(told)
        else:
            told("it was not asked for")

    def forget(self, uid: str) -> None:
        """Remove a trace, once it is kept: another will be asked for."""
        self.settled(uid, lambda _: self.traces.remove(uid))

    async def stop(self) -> None:
        """End every copy."""
        copies = list(self._copies.values())
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)

    async def _copy(self, note: Note, fd: int, size: int) -> None:
        why = FAILED
        try:
            async with self._turns:
                why = await self._copied(note, fd, size)
        except OSError as error:
            why = f"disk: {error.strerror}"
        except (ValueError, KeyError, TypeError):  # not a keeper's answer
            why = FAILED
        finally:
            os.close(fd)
            del self._copies[note.window]
            self._verdict(note.window, why)

    async def _copied(self, note: Note, fd: int, size: int) -> str:
        """Why not, "" where it is kept."""
        target = self.traces.draft(note.window)
        try:
            numbers = (fd, target, size, self._trace_bytes, self.traces.most_bytes, CPU_S)
            answer = await _run([*COMMAND, *map(str, numbers)], (fd, target))
            if not answer.get("reason", FAILED):
                size, digest = int(answer["bytes"]), str(answer["sha256"])
                self.traces.add(replace(note, bytes=size, sha256=digest, kept_unix_ns=time.time_ns()))
                return ""
            return str(answer.get("reason", FAILED))
        finally:
            os.close(target)
            self.traces.discard(note.window)

    def _verdict(self, uid: str, why: str) -> None:
        if why:
            self._counters.traces["not_kept"] += 1
            self._log.warning("trace_not_kept", window=uid, reason=why)
        waiting = self._waiting.pop(uid, [])
        for told in waiting:
            told(why)
        if not waiting:
            self._verdicts[uid] = why
            while len(self._verdicts) > REMEMBERED:
                del self._verdicts[next(iter(self._verdicts))]


async def _run(command: list[str], fds: tuple[int, ...]) -> dict[str, Any]:
    """A keeper's answer; it is ended where it takes too long."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=fds,
        env={**os.environ, **ENVIRONMENT}, cwd="/",
    )  # fmt: skip
    try:
        async with asyncio.timeout(WALL_S):
            said, _ = await process.communicate()
    except TimeoutError:
        return {"reason": TIME}
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        answer = json.loads(said)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
