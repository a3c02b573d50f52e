"""Windows on request, and the traces that agents keep: asked by the command line, passed on over agents' own streams.

A trace passes through in parts and is neither read nor kept here. Every count, size and time has a bound.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import grpc

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.capturing import Asking, Target, asking, commands, meeting, renewed, unseen
from roofwatch.store.gate import calling
from roofwatch.store.hub import Connection, Hub, Talk
from roofwatch.store.unreadable import REASON

CAPTURES_MOST, FETCHES_MOST = 8, 8  # at once
FIND_WITHIN_S = 5.0  # for agents to say what they have
LEARN_WITHIN_S = 20.0  # for ranks that nobody has seen step to take a short window
TARGETS_MOST = 4096
PROCESSES_MOST, TRACES_MOST = 1024, 1000  # believed of one agent
STEPS_MOST, DURATION_MOST_MS, WITHIN_MOST_S = 1000, 10_000, 600.0
GRACE_S = 3.0  # an agent tells of the end of a time itself
AWAY_S = 10.0  # an agent that has lost its stream may come back with what it knows
LOOK_S = 0.5
PART_BYTES = 1 << 19
PART_WITHIN_S = 30.0
TRACE_MOST = 4 << 30
TEXT_MOST = 300
TOO_OLD, NO_ANSWER, BUSY, WENT_AWAY = "too_old", "no_answer", "busy", "agent_gone"
FINAL = frozenset({pb.TAKEN, pb.REFUSED, pb.TIMED_OUT, pb.LOST})
_log = logging.getLogger(__name__)


class ControlService(rpc.ControlServicer):  # type: ignore[misc]
    """Asks agents that have a stream to this store, and no others."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._captures = self._fetches = 0
        self._serving: set[asyncio.Task[Any]] = set()
        self._draining = False

    def drain(self) -> None:
        """End what is under way: a store that stops cannot wait for it."""
        self._draining = True
        for task in self._serving:
            task.cancel()

    async def Capture(  # noqa: N802 - gRPC's name
        self, request: pb.CaptureRequest | None, context: Any
    ) -> AsyncIterator[pb.CaptureEvent]:
        """Find processes, ask them, tell what becomes of each."""
        if request is None:
            await _refuse(context, REASON)
        await _check(request, context)
        if self._captures >= CAPTURES_MOST:
            await _busy(context, f"{CAPTURES_MOST} captures are under way: try again when one is over")
        self._captures += 1
        try:
            async with self._served(context):
                with self._hub.talk() as talk:
                    async for event in self._capture(request, talk):
                        yield event
        finally:
            self._captures -= 1

    async def ListTraces(self, request: pb.TraceListRequest | None, context: Any) -> pb.TraceListing:  # noqa: N802 - as above
        """What the agents of this store keep."""
        if request is None:
            await _refuse(context, REASON)
        async with self._served(context):
            with self._hub.talk() as talk:
                return await self._traces(talk, request.window, request.node or None)

    async def GetTrace(  # noqa: N802 - as above
        self, request: pb.GetTraceRequest | None, context: Any
    ) -> AsyncIterator[pb.TraceChunk]:
        """Pass a trace on from the agent that keeps it, as fast as the asker takes it."""
        if request is None:
            await _refuse(context, REASON)
        if self._fetches >= FETCHES_MOST:
            await _busy(context, f"{FETCHES_MOST} traces are being fetched: try again when one is over")
        self._fetches += 1
        try:
            async with self._served(context):
                with self._hub.talk() as talk:
                    async for chunk in self._fetch(request.window, talk, context):
                        yield chunk
        finally:
            self._fetches -= 1

    @asynccontextmanager
    async def _served(self, context: Any) -> AsyncIterator[None]:
        task = asyncio.current_task()
        if task is not None:
            self._serving.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if self._draining:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the store is stopping")
            raise
        finally:
            if task is not None:
                self._serving.discard(task)

    # ---- a capture

    async def _capture(self, request: pb.CaptureRequest, talk: Talk) -> AsyncIterator[pb.CaptureEvent]:
        caller, _ = calling()
        agents = {c.agent: c for c in self._hub.connected(request.node or None)}
        found, silent = await self._find(request.which, talk, agents)
        asked = asking(found, request.ranks, all_ranks=request.all_ranks)
        asked = Asking(asked.jobs[:TARGETS_MOST], asked.passed_over)
        yield pb.CaptureEvent(found=_told(asked, silent, len(agents)))
        asked = await self._learned(asked, request, agents)
        meetings = [meeting([target.process for target in job]) for job in asked.jobs]
        _log.info("capture by %r: %d processes", caller.name, len(asked.targets))
        waiting = {(t.agent, t.process.process): t for t in asked.targets}
        for agent, orders in commands(talk.id, asked, meetings, request, caller.name[:TEXT_MOST]).items():
            sent = [self._hub.send(agent, order) for order in orders]
            if not all(sent):
                for key in [key for key in waiting if key[0] == agent]:
                    yield _outcome(key, pb.REFUSED, BUSY if self._hub.of(agent) else WENT_AWAY)
                    del waiting[key]
        async for event in self._outcomes(talk, waiting, agents, request.within_ms / 1e3 + GRACE_S):
            yield event

    async def _learned(self, asked: Asking, request: pb.CaptureRequest, agents: Mapping[str, Connection]) -> Asking:
        """Let ranks whose steps nobody has counted take a short window first: else they could not meet the others."""
        strangers = asking([target for job in asked.jobs for target in unseen(job)], (), all_ranks=True)
        if not strangers.jobs:
            return asked
        within_s = min(LEARN_WITHIN_S, request.within_ms / 1e3)
        short = pb.CaptureRequest(steps=1, duration_ms=request.duration_ms, within_ms=int(within_s * 1e3))
        with self._hub.talk() as talk:
            talk.asked.update(agents)
            waiting = {(t.agent, t.process.process): t for t in strangers.targets}
            nowhere = [(0, 0)] * len(strangers.jobs)
            for agent, orders in commands(talk.id, strangers, nowhere, short, calling()[0].name[:TEXT_MOST]).items():
                for order in orders:
                    self._hub.send(agent, order)
            async for _ in self._outcomes(talk, waiting, agents, within_s + GRACE_S):
                pass
        with self._hub.talk() as talk:
            found, _ = await self._find(request.which, talk, agents)
        return renewed(asked, found)

    async def _find(
        self, which: pb.FindProcesses, talk: Talk, agents: Mapping[str, Connection]
    ) -> tuple[list[Target], list[pb.SilentAgent]]:
        command = pb.Command(id=talk.id, find_processes=which)
        found: list[Target] = []
        silent: list[pb.SilentAgent] = []
        async for connection, answer in self._ask(talk, command, agents, "processes"):
            if isinstance(answer, str):
                silent.append(pb.SilentAgent(node=connection.host, reason=answer))
                continue
            listed = answer.processes.processes[:PROCESSES_MOST]
            found += [Target(connection.agent, connection.host, _clipped(process)) for process in listed]
        return found, silent

    async def _ask(
        self, talk: Talk, command: pb.Command, agents: Mapping[str, Connection], body: str
    ) -> AsyncIterator[tuple[Connection, Any]]:
        """The first answer of each agent, or why there is none."""
        talk.asked.update(agents)
        waiting = dict(agents)
        for agent in agents:
            if not self._hub.send(agent, command):
                yield waiting.pop(agent), BUSY
        until = time.monotonic() + FIND_WITHIN_S
        while waiting and (heard := await talk.next(until - time.monotonic())) is not None:
            agent, message = heard
            if agent in waiting and message.WhichOneof("body") == body:
                yield waiting.pop(agent), message
            elif agent in waiting and message.WhichOneof("body") == "result":
                yield waiting.pop(agent), TOO_OLD  # it does not know the command
        for connection in waiting.values():
            yield connection, NO_ANSWER

    async def _outcomes(
        self, talk: Talk, waiting: dict[tuple[str, str], Target], agents: Mapping[str, Connection], within_s: float
    ) -> AsyncIterator[pb.CaptureEvent]:
        until = time.monotonic() + within_s
        away: dict[str, float] = {}
        while waiting and (left := until - time.monotonic()) > 0:
            heard = await talk.next(min(LOOK_S, left))
            if heard is not None and heard[1].WhichOneof("body") == "outcome":
                told = heard[1].outcome
                key = (heard[0], told.process)
                if key in waiting:
                    if told.outcome in FINAL:
                        del waiting[key]
                    yield pb.CaptureEvent(outcome=_clipped(told))
            for agent in self._lost({agent for agent, _ in waiting}, agents, away):
                for key in [key for key in waiting if key[0] == agent]:
                    yield _outcome(key, pb.TIMED_OUT, WENT_AWAY)
                    del waiting[key]
        for key in waiting:
            yield _outcome(key, pb.TIMED_OUT, NO_ANSWER)

    def _lost(self, waited_for: Collection[str], agents: Mapping[str, Connection], away: dict[str, float]) -> list[str]:
        """Agents that will not answer: away for too long, or started anew."""
        now, lost = time.monotonic(), []
        for agent in waited_for:
            connection = self._hub.of(agent)
            if connection is None:
                if now - away.setdefault(agent, now) > AWAY_S:
                    lost.append(agent)
                continue
            away.pop(agent, None)
            if connection.boot != agents[agent].boot:
                lost.append(agent)
        return lost

    # ---- kept traces

    async def _traces(self, talk: Talk, begin: str, node: str | None) -> pb.TraceListing:
        agents = {c.agent: c for c in self._hub.connected(node)}
        command = pb.Command(id=talk.id, find_traces=pb.FindTraces(window=begin[:32]))
        listing = pb.TraceListing()
        async for connection, answer in self._ask(talk, command, agents, "traces"):
            if isinstance(answer, str):
                listing.silent.add(node=connection.host, reason=answer)
                continue
            listing.left_out += answer.traces.left_out
            for trace in answer.traces.traces[:TRACES_MOST]:
                listing.traces.append(_clipped(trace))
                listing.traces[-1].node = connection.host
        return listing

    async def _fetch(self, window: bytes, talk: Talk, context: Any) -> AsyncIterator[pb.TraceChunk]:
        agents = {c.agent: c for c in self._hub.connected()}
        command = pb.Command(id=talk.id, find_traces=pb.FindTraces(window=window.hex()))
        keeper: Connection | None = None
        head = pb.KeptTrace()
        async for connection, answer in self._ask(talk, command, agents, "traces"):
            mine = [] if isinstance(answer, str) else [t for t in answer.traces.traces if t.window == window]
            if mine:
                keeper, head = connection, _clipped(mine[0])
                break
        if keeper is None:
            told = f"no agent of this store keeps a trace of window {window.hex()[:32]}: see 'roofwatch trace list'"
            await context.abort(grpc.StatusCode.NOT_FOUND, told)
            return
        if head.size > TRACE_MOST:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the trace is larger than this store passes on")
        head.node = keeper.host
        yield pb.TraceChunk(head=head)
        offset = 0
        while offset < head.size:
            data = await self._part(talk, keeper, window, offset, context)
            offset += len(data)
            yield pb.TraceChunk(data=data)

    async def _part(self, talk: Talk, keeper: Connection, window: bytes, offset: int, context: Any) -> bytes:
        order = pb.Command(id=talk.id, read_trace=pb.ReadTrace(window=window, offset=offset, most=PART_BYTES))
        if not self._hub.send(keeper.agent, order):
            await context.abort(grpc.StatusCode.ABORTED, f"the agent of {keeper.host} went away")
        until = time.monotonic() + PART_WITHIN_S
        while (heard := await talk.next(until - time.monotonic())) is not None:
            agent, message = heard
            part = message.part
            if agent != keeper.agent or message.WhichOneof("body") != "part" or part.offset != offset:
                continue
            if part.data and len(part.data) <= PART_BYTES:
                return bytes(part.data)
            why = part.reason[:TEXT_MOST] or "the trace ends before its size"
            await context.abort(grpc.StatusCode.ABORTED, f"the agent of {keeper.host}: {why}")
        await context.abort(grpc.StatusCode.ABORTED, f"the agent of {keeper.host} does not answer")
        raise AssertionError  # abort always raises


def _told(asked: Asking, silent: list[pb.SilentAgent], agents: int) -> pb.CaptureFound:
    sizes = {target.process.world_size for target in asked.targets}
    return pb.CaptureFound(
        targets=[pb.CaptureTarget(process=target.process, node=target.node) for target in asked.targets],
        passed_over=asked.passed_over, silent=silent, agents=agents,
        world_size=sizes.pop() if len(sizes) == 1 and len(asked.jobs) == 1 else -1,
    )  # fmt: skip


def _outcome(key: tuple[str, str], outcome: pb.Outcome, reason: str) -> pb.CaptureEvent:
    told = pb.WindowOutcome(process=key[1], outcome=outcome, reason=reason, steps=-1, first_step=-1)
    return pb.CaptureEvent(outcome=told)


def _clipped(message: Any) -> Any:
    """A message of its own (a part keeps all that came with it in memory), its texts no longer than is shown."""
    own = type(message)()
    own.CopyFrom(message)
    for field, value in own.ListFields():
        if isinstance(value, str | bytes) and len(value) > TEXT_MOST:
            setattr(own, field.name, value[:TEXT_MOST])
    return own


async def _check(request: pb.CaptureRequest, context: Any) -> None:
    which = request.which
    if not (which.job or which.process or which.model or request.node):
        await _refuse(context, "a capture is of a job, a process, a model or a node: name one")
    within = (0 < request.steps <= STEPS_MOST, request.duration_ms <= DURATION_MOST_MS,
              0 < request.within_ms <= WITHIN_MOST_S * 1e3)  # fmt: skip
    if not all(within):
        await _refuse(
            context, f"a capture has 1 to {STEPS_MOST} steps, at most {DURATION_MOST_MS} ms, and {WITHIN_MOST_S:.0f} s"
        )


async def _refuse(context: Any, why: str) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
    raise AssertionError  # abort always raises


async def _busy(context: Any, why: str) -> NoReturn:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
    raise AssertionError  # abort always raises
