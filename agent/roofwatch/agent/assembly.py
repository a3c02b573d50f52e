"""The agent's parts put together: started, set anew while they run, asked how they are, and stopped in order."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from typing import Any

from roofwatch.agent import identity, status
from roofwatch.agent.capture import Captures
from roofwatch.agent.commands import Commands
from roofwatch.agent.config import HOT, MIB, PROGRAM, Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.intake import Intake
from roofwatch.agent.listener import Listener
from roofwatch.agent.log import Log
from roofwatch.agent.registry import Registry, Rules
from roofwatch.agent.sealer import Sealer
from roofwatch.agent.spool import Spool
from roofwatch.agent.trusting import Credentials
from roofwatch.agent.uplink import Uplink, check_target
from roofwatch.proto import codec
from roofwatch.proto.service_manager import ALIVE, READY, STOPPING, notify
from roofwatch.proto.service_manager import status as status_line
from roofwatch.proto.v1 import roofwatch_pb2 as pb

STOP_WITHIN_S = 5.0
PARSE_SHARE = 0.5  # of it, for the traces that have arrived
MAINTAIN_S = 60.0


class Agent:
    """One agent. Everything runs in the thread of its event loop."""

    def __init__(
        self, config: Config, spool: Spool, listener: Listener, log: Log, counters: Counters, command: Sequence[str]
    ) -> None:
        self._config = config
        self._spool = spool
        self._listener = listener
        self._log = log
        self._counters = counters
        self._version = _version()
        self._node = identity.node_of(config.node_name, config.labels)
        self._sealer = Sealer(spool, counters, self._sealed, self._in_flight)
        self._intake = Intake(config, self._sealer, counters, log, command)
        self._registry = Registry(
            self._node,
            self._boot_s(),
            self._intake,
            counters,
            log,
            Rules(config.system, config.max_processes, self._version, config.job_map, config.pod_map),
            self._status,
        )
        self._credentials: Credentials | None = None
        self._captures = Captures(self._intake.scheduler, self._intake.keeping, counters, log, self._tell)
        self._uplink = self._make_uplink() if config.store else None
        self._started = time.monotonic()
        self._sending: asyncio.Task[None] | None = None
        self._upkeep: asyncio.TimerHandle | None = None

    def _boot_s(self) -> int | None:
        """The boot time, as first read since this boot: so a process keeps its id over restarts of the agent."""
        kept = self._spool.remember(f"btime {self._node.boot_id}", lambda: str(identity.boot_time_s() or ""))
        return int(kept) if kept else None

    def _make_uplink(self) -> Uplink:
        hello = pb.AgentHello(
            protocol=codec.PROTOCOL,
            agent=self._spool.agent,
            boot=self._spool.boot,
            version=self._version,
            node=pb.Node(host=self._node.host, boot_id=self._node.boot_id, labels=dict(self._node.labels)),
        )
        obey = Commands(self._registry, self._intake.scheduler, self._captures, self._intake.keeping.traces, self._log)
        self._credentials = Credentials(self._config.trust(), self._config.store, self._log)
        return Uplink(self._config.store, self._credentials, hello, self._spool, self._counters, self._log, obey)

    def _sealed(self) -> None:
        if self._uplink is not None:
            self._uplink.wake()

    def _tell(self, message: pb.AgentMessage) -> None:
        if self._uplink is not None:
            self._uplink.tell(message)

    def _in_flight(self) -> frozenset[int]:
        return self._uplink.in_flight() if self._uplink is not None else frozenset()

    def start(self) -> None:
        """Begin to accept, to send, to keep house."""
        self._registry.start(self._listener.sock)
        if self._uplink is not None:
            self._sending = asyncio.create_task(self._uplink.run())
        self._maintain()
        self._log.info(
            "listening",
            socket=self._listener.path,
            store=self._config.store or "none",
            spool=self._spool.path,
            pid=os.getpid(),
        )
        notify(READY, status_line(f"listening on {self._listener.path}, store {self._config.store or 'none'}"))

    async def stop(self) -> None:
        """Take no more windows, finish those that arrived, send what the deadline lets; leave nothing running."""
        began = time.monotonic()
        notify(STOPPING)
        if self._upkeep is not None:
            self._upkeep.cancel()
        self._captures.stop()
        self._intake.scheduler.stop()
        self._registry.stop()
        self._listener.close()
        await self._intake.parser.stop(STOP_WITHIN_S * PARSE_SHARE)
        await self._intake.keeping.stop()
        self._intake.stop()
        self._sealer.flush()
        if self._sending is not None and self._uplink is not None:
            if self._uplink.connected:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._uplink.drained(), began + STOP_WITHIN_S - time.monotonic())
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
        self._log.info("stopped", windows_kept=self._spool.windows, seconds=round(time.monotonic() - began, 2))
        self._spool.close()

    def _maintain(self) -> None:
        self._upkeep = asyncio.get_running_loop().call_later(MAINTAIN_S, self._maintain)
        notify(ALIVE)
        try:
            self._intake.keeping.traces.tidy()  # first: where the disk is full it makes room
            self._spool.expire(self._in_flight())
            self._sealer.flush()
        except (OSError, sqlite3.Error) as error:
            self._log.warning("upkeep_failed", error=error)

    def reload(self, wanted: Config) -> None:
        """Take what a running agent can take of other settings; what it cannot is told in one line."""
        changed = [name for name in PROGRAM.names() if getattr(wanted, name) != getattr(self._config, name)]
        config = replace(self._config, **{name: getattr(wanted, name) for name in changed if name in HOT})
        if config.store and config.trust() != self._config.trust():
            check_target(config.store, config.trust())
            config.trust().load()
        if self._credentials is not None:
            self._credentials.trust(config.trust())
        self._intake.configure(config)
        self._spool.limit(config.spool_mb * MIB, config.spool_hours * 3600)
        self._registry.limit(config.max_processes, config.job_map, config.pod_map)
        self._log.form, self._log.level = config.log_format, config.log_level
        self._config = config
        taken, cold = ([name for name in changed if (name in HOT) is hot] for hot in (True, False))
        told = {"changed": ",".join(taken) or "nothing", "needs_restart": ",".join(cold) or None}
        self._log.warning("reloaded", **told) if cold else self._log.info("reloaded", **told)

    def _status(self, uid: int | None = None) -> Mapping[str, Any]:
        """What it says of itself: to its user and root all of it, to another user what is of that user's processes."""
        parser, uplink = self._intake.parser, self._uplink
        members = [m for m in self._registry.members() if uid is None or m.connection.uid == uid]
        report = status.report(
            version=self._version,
            uptime_s=time.monotonic() - self._started,
            members=[(m, self._intake.books.budget_of(m)) for m in members],
            counters=self._counters,
            spool=self._spool,
            parsing={"alive": parser.workers, "backlog": parser.backlog},
            uplink={
                "store": self._config.store or None,
                "connected": bool(uplink and uplink.connected),
                "last_error": (uplink.last_error if uplink else "") or None,
                "certificates": dict(self._credentials.expires) if self._credentials else {},
            },
            settings={
                "interval_s": self._intake.scheduler.schedule.interval_s,
                "max_events": self._config.max_events,
                "budget": self._config.budget / 100,
                "hard_stop": self._config.hard_stop / 100,
                "system": self._config.system,
                "log_level": self._config.log_level,
            },
        )
        return report if uid is None else status.of_user(report)

    def figures(self) -> Mapping[str, Any]:
        """What metrics tell: the status, and the cost of windows."""
        counted = self._counters
        cost = {
            "lost_ns": counted.lost_ns, "represented_ns": counted.represented_ns,
            "spent_share": max(self._intake.books.spent_shares(), default=None),
        }  # fmt: skip
        traces = self._intake.keeping.traces
        return {**self._status(), "cost": cost, "kept": {"traces": len(traces), "bytes": traces.size}}


def _version() -> str:
    try:
        return metadata.version("roofwatch")
    except metadata.PackageNotFoundError:
        return "unknown"
