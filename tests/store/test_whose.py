"""Whose a kept trace is, where the database does not say so in time."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import grpc
import pytest
from store_builders import GEMM, stat, window_of
from test_retention import store

from roofwatch.cli import controlling
from roofwatch.cli.render import captures
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import control, whose
from roofwatch.store.database import Database
from roofwatch.store.hub import Connection, Hub
from roofwatch.store.whose import Whose


class Aborted(Exception):  # noqa: N818 - how the call ended
    """With its code."""


class Context:
    """Of a call."""

    async def abort(self, code: grpc.StatusCode, told: str, *_more: Any) -> NoReturn:
        """End it."""
        raise Aborted(code, told)


async def listed(service: control.ControlService, agent: Connection, uid: bytes, begin: str = "") -> pb.TraceListing:
    """What is listed where an agent keeps a trace of one window."""
    asking = asyncio.create_task(service.ListTraces(pb.TraceListRequest(window=begin), Context()))
    command = (await agent.outbound.get()).command
    agent.commands -= 1
    told = pb.TraceList(id=command.id, traces=[pb.KeptTrace(window=uid)])
    service._hub.heard(agent, command.id, pb.AgentMessage(traces=told))
    return await asking


def test_a_list_says_that_it_was_not_compared(on_postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds the table for longer than anybody waits: traces are listed, and whose they are is not claimed.

    Who looks for one to fetch it gets no agent's word instead, but hears why.
    """
    db = on_postgres
    stored = window_of("w", [stat(GEMM, [10])])
    store(db, [stored], 1)
    uid, hub = bytes.fromhex(stored.uid), Hub()
    service = control.ControlService(hub, Whose(db))

    async def main() -> None:
        other = hub.connect("a", "elsewhere", "1")
        found = await listed(service, other, uid)
        assert (found.compared, list(found.traces), found.silent[0].reason) == (True, [], "not_its_own")
        with db.engine.connect() as reader, reader.begin():
            reader.exec_driver_sql("LOCK TABLE windows IN ACCESS EXCLUSIVE MODE")
            found = await listed(service, other, uid)
            assert (found.compared, len(found.silent)) == (False, 0)
            assert [(trace.node, trace.stored) for trace in found.traces] == [("elsewhere", False)]
            with pytest.raises(Aborted) as ended:
                await listed(service, other, uid, stored.uid[:8])
            assert ended.value.args[0] is grpc.StatusCode.INTERNAL
        assert (await listed(service, other, uid)).compared

    (said,) = captures.unsure([controlling.trace_row(pb.KeptTrace(window=uid), compared=False)])
    assert "did not say which of these windows it has" in said
    assert captures.unsure([controlling.trace_row(pb.KeptTrace(window=uid), compared=True)]) == []
    monkeypatch.setattr(whose, "WITHIN_S", 0.3)
    asyncio.run(main())
