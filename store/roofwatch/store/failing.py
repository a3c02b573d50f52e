"""How a call ends that the database, or the question itself, lets nobody answer."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.proto.codec import DATABASE_AWAY


async def failed(context: Any, error: RoofwatchError) -> NoReturn:
    """End a call with the sentence of an error, and a code that tells whose fault it is."""
    if isinstance(error, UsageError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    if isinstance(error, UnreachableError):
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error), DATABASE_AWAY)
    await context.abort(grpc.StatusCode.INTERNAL, str(error))
    raise AssertionError  # abort always raises
