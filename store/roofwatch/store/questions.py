"""One question to many agents over their streams, and what is kept of their answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.hub import Connection, Hub, Talk

FIND_WITHIN_S = 5.0  # for agents to say what they have
TEXT_MOST = 300
TOO_OLD, NO_ANSWER, BUSY = "too_old", "no_answer", "busy"


async def ask(
    hub: Hub, talk: Talk, command: pb.Command, agents: Mapping[str, Connection], body: str
) -> AsyncIterator[tuple[Connection, Any]]:
    """The first answer of each agent, or why there is none."""
    talk.asked.update(agents)
    waiting = dict(agents)
    for agent in agents:
        if not hub.send(agent, command):
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


def clipped(message: Any) -> Any:
    """A message of its own (a part keeps all that came with it in memory), its texts no longer than is shown."""
    own = type(message)()
    own.CopyFrom(message)
    for field, value in own.ListFields():
        if isinstance(value, str | bytes) and len(value) > TEXT_MOST:
            setattr(own, field.name, value[:TEXT_MOST])
    return own
