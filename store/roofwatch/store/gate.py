"""The gate in front of every method: admits callers by role, remembers who calls, and counts whom it refuses."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NoReturn

import grpc

from roofwatch.store.access import ANYBODY, NOTHING, Access, Caller, Refusal, Shown, Why, needed
from roofwatch.store.metrics import Metrics

QUIET_S = 60.0  # after a line in the log
_log = logging.getLogger(__name__)
_calling: ContextVar[tuple[Caller, Shown]] = ContextVar("roofwatch_caller", default=(ANYBODY, NOTHING))
_ATTRIBUTES = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def calling() -> tuple[Caller, Shown]:
    """Who calls the method that runs now, and what it showed."""
    return _calling.get()


class Gate(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Asks ``access`` about every call before its method runs."""

    def __init__(self, access: Access, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self.access, self._metrics, self._clock = access, metrics, clock
        self._quiet_until, self._unsaid = -float("inf"), 0

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The handler, behind the gate."""
        handler = await continuation(details)
        if handler is None or needed(details.method) is None:  # no such method, or an open one
            return handler
        return handler._replace(
            **{
                name: self._guarded(behaviour, details.method)
                for name in _ATTRIBUTES
                if (behaviour := getattr(handler, name)) is not None
            }
        )

    def _guarded(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def one(request: Any, context: Any) -> Any:
            await self._enter(method, context)
            return await behaviour(request, context)

        async def many(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._enter(method, context)
            async for response in behaviour(request, context):
                yield response

        return many if inspect.isasyncgenfunction(behaviour) else one

    async def _enter(self, method: str, context: Any) -> None:
        shown = shown_by(context)
        found = self.access.admit(method, shown)
        if isinstance(found, Refusal):
            await self.refuse(found, context)
        _calling.set((found, shown))

    async def refuse(self, refusal: Refusal, context: Any) -> NoReturn:
        """Count it and end the call."""
        self.count(refusal)
        denied = refusal.why in {Why.ROLE, Why.NODE}
        code = grpc.StatusCode.PERMISSION_DENIED if denied else grpc.StatusCode.UNAUTHENTICATED
        await context.abort(code, refusal.told)
        raise AssertionError  # abort always raises

    def count(self, refusal: Refusal) -> None:
        """Count it; one line a minute says so, for a scanner must not fill the log."""
        self._metrics.refused(refusal.why)
        self._unsaid += 1
        now = self._clock()
        if now >= self._quiet_until:
            _log.warning("callers refused: %d, the last: %s", self._unsaid, refusal.told)
            self._unsaid, self._quiet_until = 0, now + QUIET_S


def shown_by(context: Any) -> Shown:
    """The token and the verified certificate of a call."""
    token = None
    for key, value in context.invocation_metadata() or ():
        scheme, _, rest = value.partition(" ") if key == "authorization" and isinstance(value, str) else ("", "", "")
        if scheme.lower() == "bearer":
            token = rest.strip()
    pem = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    return Shown(token, pem)
