"""Traces that agents keep: found by asking them, passed on in parts, neither read nor kept here.

A trace and its hash are its agent's own word. So of the trace of a stored window only the node is heard under which the
window is stored; of one that is not stored, the node whose word who asks is ready to take.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import logs
from roofwatch.store.failing import failed
from roofwatch.store.gate import calling
from roofwatch.store.hub import Connection, Hub, Talk
from roofwatch.store.questions import TEXT_MOST, ask, clipped
from roofwatch.store.whose import Whose

TRACES_MOST = 1000  # believed of one agent
UID_BYTES = 16
LEFT_OUT_MOST = (1 << 32) - 1
NOT_ITS_OWN = "not_its_own"  # why an agent's word on a trace is not passed on: the window is another node's
PART_BYTES = 1 << 19
PART_WITHIN_S = 30.0
TRACE_MOST = 4 << 30
_log = logging.getLogger(__name__)


async def listed(hub: Hub, talk: Talk, begin: str, node: str | None, whose: Whose) -> pb.TraceListing:
    """The traces that agents keep, of windows whose uid begins so.

    A list of all is given as agents tell it, not ``compared``, where the database does not say whose they are. Who
    seeks one means to fetch it, and would take an agent's word for it.

    Raises:
        RoofwatchError: the database does not say whose the one is that is sought.
    """
    agents = {c.agent: c for c in hub.connected(node)}
    command = pb.Command(id=talk.id, find_traces=pb.FindTraces(window=begin[:32]))
    listing = pb.TraceListing()
    told: list[pb.KeptTrace] = []
    async for connection, answer in ask(hub, talk, command, agents, "traces"):
        if isinstance(answer, str):
            listing.silent.add(node=connection.host, reason=answer)
            continue
        listing.left_out = min(LEFT_OUT_MOST, listing.left_out + answer.traces.left_out)
        for trace in answer.traces.traces[:TRACES_MOST]:
            if len(trace.window) == UID_BYTES and trace.window.hex().startswith(begin):
                told.append(clipped(trace))
                told[-1].node = connection.host
    try:
        stored = await whose.nodes([trace.window for trace in told])
    except RoofwatchError as error:
        if begin:
            raise
        _log.warning("kept traces are listed without saying which windows are stored: %s", error)
        listing.traces.extend(told)
        return listing
    listing.compared = True
    for trace in told:
        trace.stored = stored.get(trace.window) == trace.node
    listing.traces.extend(trace for trace in told if trace.stored or trace.window not in stored)
    for host in dict.fromkeys(trace.node for trace in told if not trace.stored and trace.window in stored):
        listing.silent.add(node=host, reason=NOT_ITS_OWN)
    return listing


async def fetched(
    hub: Hub, talk: Talk, wanted: pb.GetTraceRequest, whose: Whose, context: Any
) -> AsyncIterator[pb.TraceChunk]:
    """A trace in parts, from an agent of its window's node, as fast as the asker takes them."""
    window = wanted.window
    host = await _host(wanted, whose, context)
    keeper, head = await _keeper(hub, talk, window, host)
    if keeper is None:
        told = f"no agent of node {host} that is connected keeps a trace of window {window.hex()}"
        await context.abort(grpc.StatusCode.NOT_FOUND, f"{told}: see 'roofwatch trace list'")
        return
    if head.size > TRACE_MOST:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the trace is larger than this store passes on")
    head.node = keeper.host
    logs.audit(
        "trace of window %s, %d bytes, read from node %r by %r", window.hex(), head.size, host, calling()[0].name
    )
    yield pb.TraceChunk(head=head)
    offset = 0
    while offset < head.size:
        data = await _part(hub, talk, keeper, window, offset, context)
        offset += len(data)
        yield pb.TraceChunk(data=data)


async def _host(wanted: pb.GetTraceRequest, whose: Whose, context: Any) -> str:
    """The node whose agents are asked: where the window is stored, else the one that was named."""
    name = wanted.window.hex()
    try:
        host = (await whose.nodes([wanted.window])).get(wanted.window)
    except RoofwatchError as error:
        await failed(context, error)
    if host is not None and wanted.node not in ("", host):
        told = f"window {name} is of node {host}, so no agent of {wanted.node[:TEXT_MOST]} is asked for its trace"
        await context.abort(grpc.StatusCode.NOT_FOUND, told)
    if host is None and not wanted.node:
        told = f"window {name} is not stored, so nothing says whose it is"
        await context.abort(grpc.StatusCode.NOT_FOUND, f"{told}: name the node whose word you take")
    return host or str(wanted.node)


async def _keeper(hub: Hub, talk: Talk, window: bytes, host: str) -> tuple[Connection | None, pb.KeptTrace]:
    """Who keeps the trace, and what it says of it."""
    agents = {c.agent: c for c in hub.connected(host)}
    command = pb.Command(id=talk.id, find_traces=pb.FindTraces(window=window.hex()))
    async for connection, answer in ask(hub, talk, command, agents, "traces"):
        mine = [] if isinstance(answer, str) else [t for t in answer.traces.traces if t.window == window]
        if mine:
            return connection, clipped(mine[0])
    return None, pb.KeptTrace()


async def _part(hub: Hub, talk: Talk, keeper: Connection, window: bytes, offset: int, context: Any) -> bytes:
    by = calling()[0].name[:TEXT_MOST]
    read = pb.ReadTrace(window=window, offset=offset, most=PART_BYTES, asked_by=by)
    order = pb.Command(id=talk.id, read_trace=read)
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
