"""Messages that are no protobuf: gRPC itself would answer UNKNOWN and log a traceback for each."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

QUIET_S = 60.0  # after a line in the log
OURS = "/roofwatch."  # methods of our services begin so
REASON = "a message cannot be read: the sender does not speak this protocol"

_log = logging.getLogger(__name__)


class Unreadable(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Gives a handler None for a message that cannot be read, and logs at most one line a minute about them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = -float("inf")
        self._unsaid = 0

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The handler, with a deserializer that does not raise."""
        handler = await continuation(details)
        if handler is None:  # no such method
            return None
        # The services that are not ours (health, reflection) know no None: for them it is a message that says nothing.
        nothing = None if details.method.startswith(OURS) else handler.request_deserializer(b"")
        return handler._replace(request_deserializer=self.tolerant(handler.request_deserializer, nothing))

    def tolerant(self, deserialize: Callable[[bytes], Any], nothing: Any = None) -> Callable[[bytes], Any]:
        """The same function, but ``nothing`` where it cannot read."""

        def read(data: bytes) -> Any:
            try:
                return deserialize(data)
            except DecodeError as error:
                self._tell(error)
                return nothing

        return read

    def _tell(self, error: DecodeError) -> None:
        self._unsaid += 1
        now = self._clock()
        if now >= self._quiet_until:
            _log.warning("messages refused that cannot be read: %d, the last: %s", self._unsaid, error)
            self._unsaid, self._quiet_until = 0, now + QUIET_S


async def refuse_unreadable(context: Any) -> NoReturn:
    """End a call whose message cannot be read."""
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, REASON)
    raise AssertionError  # abort always raises
