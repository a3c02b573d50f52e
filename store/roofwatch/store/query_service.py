"""The query service: answers out, one at a time, each within the time that its caller has."""

from __future__ import annotations

import asyncio
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.database import READ_S
from roofwatch.store.failing import failed
from roofwatch.store.filter import Filter
from roofwatch.store.metrics import Metrics
from roofwatch.store.queries import Queries
from roofwatch.store.unreadable import refuse_unreadable


class QueryService(rpc.QueryServicer):  # type: ignore[misc]
    """Answers for the command line."""

    def __init__(self, queries: Queries, metrics: Metrics) -> None:
        self._queries, self._metrics = queries, metrics
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="roofwatch-query")

    async def Run(self, request: pb.QueryRequest | None, context: Any) -> pb.QueryResponse:  # noqa: N802 - gRPC's name
        """Answer one query as JSON."""
        received_ns = time.time_ns()
        if request is None:
            await refuse_unreadable(context)
        loop = asyncio.get_running_loop()
        try:
            until_s = time.monotonic() + min(READ_S, context.time_remaining() or READ_S)
            answer = await loop.run_in_executor(self._pool, self._answer, request, until_s)
        except RoofwatchError as error:
            await failed(context, error)
        return pb.QueryResponse(answer=answer, received_unix_ns=received_ns, sent_unix_ns=time.time_ns())

    def _answer(self, request: pb.QueryRequest, until_s: float) -> bytes:
        """Until a moment of the monotonic clock, when who asked has gone."""
        with self._metrics.answering(request.query):
            other = Filter.from_message(request.other) if request.HasField("other") else None
            answer = self._queries.run(
                request.query, Filter.from_message(request.filter), request.limit, other, _options(request.options),
                within_s=until_s - time.monotonic(),
            )  # fmt: skip
            return json.dumps(answer, allow_nan=False).encode()


def _options(text: str) -> dict[str, Any]:
    """A query's own options; refuses what is no object of finite numbers."""
    try:
        found = json.loads(text, parse_constant=_finite, parse_float=_finite) if text else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("the options of a query are a JSON object of finite numbers")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
