"""Windows on request, and the traces that agents keep: asked by the command line, passed on over agents' own streams.

A trace passes through in parts and is neither read nor kept here. Every count, size and time has a bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import grpc

from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import logs
from roofwatch.store.capturing import Asking, Target, asking, commands, first, meeting, renewed, unseen
from roofwatch.store.failing import failed
from roofwatch.store.fetching import fetched, listed
from roofwatch.store.gate import calling
from roofwatch.store.hub import Connection, Hub, Talk
from roofwatch.store.questions import NO_ANSWER, TEXT_MOST, ask, clipped
from roofwatch.store.unreadable import REASON
from roofwatch.store.whose import Whose

CAPTURES_MOST, FETCHES_MOST = 8, 8  # at once
LEARN_WITHIN_S = 20.0  # for ranks that nobody has seen step to take a short window
TARGETS_MOST = 4096
UID_BYTES, WHICH_MOST = 16, 4096  # of a window, and of what tells which processes: it goes to every agent
PROCESSES_MOST = 1024  # believed of one agent
STEPS_MOST, DURATION_MOST_MS, WITHIN_MOST_S = 1000, 10_000, 600.0
GRACE_S = 3.0  # an agent tells of the end of a time itself
AWAY_S = 10.0  # an agent that has lost its stream may come back with what it knows
LOOK_S = 0.5
SEND_WITHIN_S, SEND_AGAIN_S = 5.0, 0.05  # an agent that has commands waiting for it
WENT_AWAY, NOT_KEEPING_UP = "agent_gone", "agent_busy"
LEARNING = "learning"  # its steps are counted first
FINAL = frozenset({pb.TAKEN, pb.REFUSED, pb.TIMED_OUT, pb.LOST})


class ControlService(rpc.ControlServicer):  # type: ignore[misc]
    """Asks agents that have a stream to this store, and no others."""

    def __init__(self, hub: Hub, whose: Whose) -> None:
        self._hub, self._whose = hub, whose
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
                try:
                    return await listed(self._hub, talk, request.window, request.node or None, self._whose)
                except RoofwatchError as error:
                    await failed(context, error)

    async def GetTrace(  # noqa: N802 - as above
        self, request: pb.GetTraceRequest | None, context: Any
    ) -> AsyncIterator[pb.TraceChunk]:
        """Pass a trace on from the agent that keeps it, as fast as the asker takes it."""
        if request is None:
            await _refuse(context, REASON)
        if len(request.window) != UID_BYTES:  # every agent is asked for it
            await _refuse(context, f"a window's id has {UID_BYTES} bytes, not {len(request.window)}")
        if self._fetches >= FETCHES_MOST:
            await _busy(context, f"{FETCHES_MOST} traces are being fetched: try again when one is over")
        self._fetches += 1
        try:
            async with self._served(context):
                with self._hub.talk() as talk:
                    async for chunk in fetched(self._hub, talk, request, self._whose, context):
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
        asked = first(asked, TARGETS_MOST)
        yield pb.CaptureEvent(found=_told(asked, silent, len(agents)))
        strangers = asking([target for job in asked.jobs for target in unseen(job)], (), all_ranks=True)
        for target in strangers.targets:
            yield _outcome(target, pb.ASKED, LEARNING)  # it may take a while
        asked = await self._learned(asked, strangers, request, agents) if strangers.jobs else asked
        meetings = [meeting([target.process for target in job]) for job in asked.jobs]
        which = " ".join(
            f"{name} {value[:TEXT_MOST]!r}"
            for name in ("job", "process", "model")
            if (value := getattr(request.which, name))
        )
        logs.audit(
            "capture by %r of %s: %d processes", caller.name, which or f"node {request.node!r}", len(asked.targets)
        )
        waiting = {(t.agent, t.process.process): t for t in asked.targets}
        orders = commands(talk.id, asked, meetings, request, caller.name[:TEXT_MOST])
        for key, why in await self._sent(orders):
            # Only these: what the same agent has taken of it goes on, and is told.
            yield _outcome(waiting.pop(key), pb.TIMED_OUT if why == WENT_AWAY else pb.REFUSED, why)
        async for event in self._outcomes(talk, waiting, agents, request.within_ms / 1e3 + GRACE_S):
            yield event

    async def _learned(
        self, asked: Asking, strangers: Asking, request: pb.CaptureRequest, agents: Mapping[str, Connection]
    ) -> Asking:
        """Let ranks whose steps nobody has counted take a short window first: else they could not meet the others."""
        within_s = min(LEARN_WITHIN_S, request.within_ms / 1e3)
        short = pb.CaptureRequest(steps=1, duration_ms=request.duration_ms, within_ms=int(within_s * 1e3))
        with self._hub.talk() as talk:
            talk.asked.update(agents)
            waiting = {(t.agent, t.process.process): t for t in strangers.targets}
            nowhere = [(0, 0)] * len(strangers.jobs)
            orders = commands(talk.id, strangers, nowhere, short, calling()[0].name[:TEXT_MOST])
            for key, _ in await self._sent(orders):
                del waiting[key]
            async for _ in self._outcomes(talk, waiting, agents, within_s + GRACE_S):
                pass
        with self._hub.talk() as talk:
            found, _ = await self._find(request.which, talk, agents)
        return renewed(asked, found)

    async def _sent(self, orders: Mapping[str, list[pb.Command]]) -> list[tuple[tuple[str, str], str]]:
        """Send each agent its orders; the processes of those that could not be sent, and why."""
        found = await asyncio.gather(*(self._sent_to(agent, own) for agent, own in orders.items()))
        return [each for part in found for each in part]

    async def _sent_to(self, agent: str, orders: list[pb.Command]) -> list[tuple[tuple[str, str], str]]:
        """An agent with many jobs gets its orders as fast as it takes them."""
        unsent, until = list(orders), time.monotonic() + SEND_WITHIN_S
        while unsent:
            if self._hub.send(agent, unsent[0]):
                del unsent[0]
            elif self._hub.of(agent) is None or time.monotonic() > until:
                break
            else:
                await asyncio.sleep(SEND_AGAIN_S)
        why = NOT_KEEPING_UP if self._hub.of(agent) else WENT_AWAY
        return [((agent, process), why) for order in unsent for process in order.take_window.processes]

    async def _find(
        self, which: pb.FindProcesses, talk: Talk, agents: Mapping[str, Connection]
    ) -> tuple[list[Target], list[pb.SilentAgent]]:
        command = pb.Command(id=talk.id, find_processes=which)
        found: list[Target] = []
        silent: list[pb.SilentAgent] = []
        async for connection, answer in ask(self._hub, talk, command, agents, "processes"):
            if isinstance(answer, str):
                silent.append(pb.SilentAgent(node=connection.host, reason=answer))
                continue
            told = {process.process: process for process in answer.processes.processes[:PROCESSES_MOST]}
            found += [Target(connection.agent, connection.host, clipped(process)) for process in told.values()]
        return found, silent

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
                    node = waiting[key].node
                    if told.outcome in FINAL:
                        del waiting[key]
                    yield _event(told, node)
            for agent in self._lost({agent for agent, _ in waiting}, agents, away):
                for key in [key for key in waiting if key[0] == agent]:
                    yield _outcome(waiting.pop(key), pb.TIMED_OUT, WENT_AWAY)
        for target in waiting.values():
            yield _outcome(target, pb.TIMED_OUT, NO_ANSWER)

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


def _told(asked: Asking, silent: list[pb.SilentAgent], agents: int) -> pb.CaptureFound:
    sizes = {target.process.world_size for target in asked.targets}
    return pb.CaptureFound(
        targets=[pb.CaptureTarget(process=target.process, node=target.node) for target in asked.targets],
        passed_over=asked.passed_over, silent=silent, agents=agents,
        world_size=sizes.pop() if len(sizes) == 1 and len(asked.jobs) == 1 else -1,
    )  # fmt: skip


def _outcome(target: Target, outcome: pb.Outcome, reason: str) -> pb.CaptureEvent:
    process = target.process.process
    told = pb.WindowOutcome(process=process, outcome=outcome, reason=reason, steps=-1, first_step=-1)
    return _event(told, target.node)


def _event(told: pb.WindowOutcome, node: str) -> pb.CaptureEvent:
    """An outcome, and of which node: an agent speaks of its own processes only, whatever ids it tells."""
    event = pb.CaptureEvent(outcome=clipped(told))
    event.outcome.node = node
    return event


async def _check(request: pb.CaptureRequest, context: Any) -> None:
    which = request.which
    if not (which.job or which.process or which.model or request.node):
        await _refuse(context, "a capture is of a job, a process, a model or a node: name one")
    if which.ByteSize() > WHICH_MOST:
        await _refuse(context, f"what tells which processes has {which.ByteSize()} bytes, and at most {WHICH_MOST}")
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
