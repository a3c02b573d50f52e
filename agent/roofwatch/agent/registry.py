"""Who is registered: accepts peers, checks who they are, and hands on what they send."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from roofwatch.agent import identity, messages
from roofwatch.agent.connection import Connection
from roofwatch.agent.counters import Counters
from roofwatch.agent.log import Log
from roofwatch.agent.place import Places
from roofwatch.hook import protocol
from roofwatch.model.record import Node, Process

STATUS = "status"  # asked by local tools, answered once; not part of what a hook says
ACCEPTS_A_TURN = 64  # so that a flood of connections does not starve those that exist
ACCEPT_PAUSE_S = 1.0  # when descriptors have run out
AWAY_S, AWAY_MOST = 30.0, 1024  # how long who flooded is hung up on unheard; so many pids at most
HELLOS_MOST, HELLOS_PERIOD_S = 50, 10.0  # of one process: it registers once, and again where its connection broke
LEAVE_S, LEAVING_MOST = 0.5, 32  # for peers that are turned away to read why
DESCRIPTORS_A_PEER = 6  # the socket, the descriptors a message may carry, one being parsed
DESCRIPTORS_RESERVED = 64


@dataclass(slots=True, eq=False)
class Member:
    """A registered process."""

    connection: Connection
    process: Process
    hello: messages.Hello
    registered: float  # loop time
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def seen(self) -> bool:
        """The kernel told us its pid (else it lives in a pid namespace we cannot see)."""
        return self.connection.pid > 0


class Handler(Protocol):
    """What the registry tells the daemon."""

    def registered(self, member: Member) -> None:
        """A process registered."""

    def gone(self, member: Member) -> None:
        """A registered process is gone."""

    def window(self, member: Member, message: Mapping[str, Any], fd: int | None) -> None:
        """A window arrived; the descriptor belongs to the callee."""

    def refused(self, member: Member, message: Mapping[str, Any]) -> None:
        """A process would not or could not take its window."""

    def graph_logs(self, member: Member, message: Mapping[str, Any]) -> None:
        """A process tells the ops that its graphs were captured from."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may register, how many, and what version they are told."""

    system: bool
    most: int
    version: str
    job_map: str = ""  # folder of what a batch system says of its jobs
    pod_map: str = ""  # kubelet's folder of pods


class Registry:
    """All connections of one listening socket. Runs in the event loop's thread."""

    def __init__(
        self,
        node: Node,
        boot_s: int | None,
        handler: Handler,
        counters: Counters,
        log: Log,
        rules: Rules,
        status: Callable[[int | None], Mapping[str, Any]],
    ) -> None:
        self._node = node
        self._boot_s = boot_s
        self._handler = handler
        self._counters = counters
        self._log = log
        self._system = rules.system
        self._places = Places()
        self.limit(rules.most, rules.job_map, rules.pod_map)
        self._users = identity.Users()
        self._peers: dict[Connection, Member | None] = {}
        self._by_uid: Counter[int] = Counter()
        self._by_pid: dict[int, Member] = {}
        self._leaving: dict[socket.socket, asyncio.TimerHandle] = {}
        self._flooded: dict[int, float] = {}  # pid → until when
        self._hellos: Counter[int] = Counter()  # by pid, of a period…
        self._hellos_until = 0.0  # …that ends then
        self._listening: socket.socket | None = None
        self._paused: asyncio.TimerHandle | None = None
        self._status = status
        self._version = rules.version

    def limit(self, most: int, job_map: str, pod_map: str) -> None:
        """How many may be connected, and where jobs and pods are told; who is connected stays."""
        self._most = min(most, _descriptors() // DESCRIPTORS_A_PEER)
        self._places.use(job_map, pod_map)

    def start(self, listening: socket.socket) -> None:
        """Accept from now on."""
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening.fileno(), self._acceptable)

    def stop(self) -> None:
        """Accept no more and close every connection."""
        if self._paused is not None:
            self._paused.cancel()
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening = None
        for connection in list(self._peers):
            connection.close("stopping")
        for sock in list(self._leaving):
            self._leave(sock)

    def members(self) -> Iterator[Member]:
        """The registered processes."""
        return (member for member in list(self._peers.values()) if member is not None)

    def _acceptable(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS_A_TURN):
            if self._listening is None:
                return
            try:
                sock, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                self._log.warning("accept_paused", error=error.strerror or error)
                loop.remove_reader(self._listening.fileno())
                self._paused = loop.call_later(ACCEPT_PAUSE_S, self._resume)
                return
            self._admit(sock, loop)

    def _resume(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening.fileno(), self._acceptable)

    def _admit(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        sock.setblocking(False)
        try:
            pid, uid = identity.peer_of(sock)
        except OSError:
            sock.close()
            return
        self._counters.connections["accepted"] += 1
        if loop.time() < self._flooded.get(pid, 0.0):  # all that it says is read by nobody: others wait behind it
            self._counters.connections["rejected_flood"] += 1
            sock.close()
            return
        reason, key = self._reason_against(uid)
        if reason:
            self._counters.connections["rejected_" + key] += 1
            self._turn_away(sock, reason, loop)
            return
        self._by_uid[uid] += 1
        self._peers[Connection(sock, pid, uid, self, loop)] = None

    def _turn_away(self, sock: socket.socket, reason: str, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(OSError, protocol.ProtocolError):
            protocol.agent_side(sock).send({"type": protocol.REJECTED, "reason": reason})
        if len(self._leaving) >= LEAVING_MOST:
            sock.close()
            return
        # Closed at once, the peer's hello would fail before it could read why.
        self._leaving[sock] = loop.call_later(LEAVE_S, self._leave, sock)

    def _leave(self, sock: socket.socket) -> None:
        self._leaving.pop(sock).cancel()
        sock.close()

    def _reason_against(self, uid: int) -> tuple[str, str]:
        if not self._system and uid != os.getuid():
            return f"this agent serves user {self._users.name(os.getuid())} only", "user"
        # With many users, none may take every place.
        if len(self._peers) >= self._most or (self._system and self._by_uid[uid] >= max(1, self._most // 2)):
            return f"{len(self._peers)} processes are connected and no more are allowed", "full"
        return "", ""

    def on_message(self, connection: Connection, message: dict[str, Any], fd: int | None) -> None:
        """Dispatch one message; unknown types are answered by nothing."""
        member, kind = self._peers[connection], message["type"]
        if kind == protocol.WINDOW and member is not None:
            self._handler.window(member, message, fd)
            return
        if fd is not None:
            with suppress(OSError):
                os.close(fd)
        if kind == protocol.HELLO:
            self._hello(connection, message)
        elif kind == protocol.REFUSED and member is not None:
            self._handler.refused(member, message)
        elif kind == protocol.GRAPH_LOGS and member is not None:
            self._handler.graph_logs(member, message)
        elif kind == STATUS and member is None:
            all_of_it = connection.uid in (os.getuid(), 0)
            connection.send({"type": STATUS, **self._status(None if all_of_it else connection.uid)})
            connection.close("status")

    def _hello(self, connection: Connection, message: dict[str, Any]) -> None:
        if self._peers[connection] is not None:
            connection.close("second_hello")
            return
        if self._too_often(connection.pid):
            connection.close("flood")
            return
        try:
            hello = messages.hello_of(message)
        except messages.BadMessage:
            connection.close("bad_hello")
            return
        if not 1 <= hello.protocol <= protocol.PROTOCOL + 1:  # one version apart works both ways
            self._counters.connections["rejected_protocol"] += 1
            speaks = f"the hook speaks protocol {hello.protocol}, this agent {protocol.PROTOCOL}"
            connection.send({"type": protocol.REJECTED, "reason": speaks})
            connection.close("protocol")
            return
        member = Member(connection, self._process(connection, hello), hello, asyncio.get_running_loop().time())
        if not connection.send({"type": protocol.WELCOME, "protocol": protocol.PROTOCOL, "agent": self._version}):
            return
        connection.greeted()
        former = self._by_pid.get(connection.pid) if member.seen else None
        self._peers[connection] = member
        if member.seen:
            self._by_pid[connection.pid] = member
        if former is not None:
            former.connection.close("replaced")  # a process registers once; the newer conversation is the live one
        self._counters.connections["registered"] += 1
        self._handler.registered(member)

    def _too_often(self, pid: int) -> bool:
        now = asyncio.get_running_loop().time()
        if now >= self._hellos_until:
            self._hellos.clear()
            self._hellos_until = now + HELLOS_PERIOD_S
        self._hellos[pid] += 1
        return pid > 0 and self._hellos[pid] > HELLOS_MOST

    def _process(self, connection: Connection, hello: messages.Hello) -> Process:
        pid, user = connection.pid or hello.pid or 0, self._users.name(connection.uid)
        job, container, labels = self._places.of(connection.pid, hello, user)
        return Process(
            node=self._node,
            pid=pid,
            start_unix_ns=identity.start_unix_ns(connection.pid, self._boot_s),
            user=user,
            job=job,
            container=container,
            rank=hello.rank,
            local_rank=hello.local_rank,
            world_size=hello.world_size,
            model=hello.model,
            versions=hello.versions,
            labels=labels,
        )

    def on_closed(self, connection: Connection, why: str) -> None:
        """Forget a peer."""
        member = self._peers.pop(connection)
        self._by_uid[connection.uid] -= 1
        if not self._by_uid[connection.uid]:
            del self._by_uid[connection.uid]
        self._counters.connections["closed_" + why] += 1
        if why == "flood" and connection.pid:  # 0: one of a pid namespace that we do not see, and so are others
            if len(self._flooded) >= AWAY_MOST:
                del self._flooded[next(iter(self._flooded))]
            self._flooded[connection.pid] = asyncio.get_running_loop().time() + AWAY_S
        if member is None:
            return
        if self._by_pid.get(connection.pid) is member:
            del self._by_pid[connection.pid]
        self._handler.gone(member)


def _descriptors() -> int:
    """Descriptors free for peers, after raising the soft limit as far as the hard one lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max(DESCRIPTORS_A_PEER, soft - DESCRIPTORS_RESERVED)
