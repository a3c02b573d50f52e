"""Traces that agents keep: found by asking them, passed on in parts, neither read nor kept here."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.hub import Connection, Hub, Talk
from roofwatch.store.questions import TEXT_MOST, ask, clipped

TRACES_MOST = 1000  # believed of one agent
PART_BYTES = 1 << 19
PART_WITHIN_S = 30.0
TRACE_MOST = 4 << 30


async def listed(hub: Hub, talk: Talk, begin: str, node: str | None) -> pb.TraceListing:
    """The traces that agents keep, of windows whose uid begins so."""
    agents = {c.agent: c for c in hub.connected(node)}
    command = pb.Command(id=talk.id, find_traces=pb.FindTraces(window=begin[:32]))
    listing = pb.TraceListing()
    async for connection, answer in ask(hub, talk, command, agents, "traces"):
        if isinstance(answer, str):
            listing.silent.add(node=connection.host, reason=answer)
            continue
        listing.left_out += answer.traces.left_out
        for trace in answer.traces.traces[:TRACES_MOST]:
            listing.traces.append(clipped(trace))
            listing.traces[-1].node = connection.host
    return listing


async def fetched(hub: Hub, talk: Talk, window: bytes, context: Any) -> AsyncIterator[pb.TraceChunk]:
    """A trace in parts, from the agent that keeps it, as fast as the asker takes them."""
    agents = {c.agent: c for c in hub.connected()}
    command = pb.Command(id=talk.id, find_traces=pb.FindTraces(window=window.hex()))
    keeper: Connection | None = None
    head = pb.KeptTrace()
    async for connection, answer in ask(hub, talk, command, agents, "traces"):
        mine = [] if isinstance(answer, str) else [t for t in answer.traces.traces if t.window == window]
        if mine:
            keeper, head = connection, clipped(mine[0])
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
        data = await _part(hub, talk, keeper, window, offset, context)
        offset += len(data)
        yield pb.TraceChunk(data=data)


async def _part(hub: Hub, talk: Talk, keeper: Connection, window: bytes, offset: int, context: Any) -> bytes:
    order = pb.Command(id=talk.id, read_trace=pb.ReadTrace(window=window, offset=offset, most=PART_BYTES))
    if not hub.send(keeper.agent, order):
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
