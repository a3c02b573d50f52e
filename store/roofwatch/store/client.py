"""Asking a store, over the network or in its database. Importing this imports neither grpc nor SQLAlchemy."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.store.config import parse_address
from roofwatch.store.filter import Filter

if TYPE_CHECKING:
    from roofwatch.store.database import Database

CONNECT_S = 3.0
ANSWER_S = 120.0


class Answers(Protocol):
    """Somebody who answers the queries of ``docs/answers.md``; a context manager."""

    def run(self, query: str, scope: Filter, limit: int = 0) -> dict[str, Any]:
        """Answer one query; ``limit`` 0 gives all rows.

        Raises:
            UsageError: the query or its filter is none.
            UnreachableError: there is no store.
            RoofwatchError: the store failed.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class RemoteAnswers:
    """A running store at HOST:PORT."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._host, self._port = parse_address(address)

    def run(self, query: str, scope: Filter, limit: int = 0) -> dict[str, Any]:
        """As in Answers."""
        import grpc  # noqa: PLC0415 - a tenth of a second

        from roofwatch.proto.v1 import roofwatch_pb2 as pb  # noqa: PLC0415
        from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc  # noqa: PLC0415

        request = pb.QueryRequest(query=query, filter=scope.message(), limit=limit)
        with open_channel(self._address) as channel:
            try:
                response = rpc.QueryStub(channel).Run(request, timeout=ANSWER_S)
            except grpc.RpcError as error:
                raise told(error, self._address) from error
        answer: dict[str, Any] = json.loads(response.answer)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held open between queries."""


class DatabaseAnswers:
    """The database itself, by URL or SQLite file name; no store needs to run."""

    def __init__(self, url: str | None = None) -> None:
        from roofwatch.store import database  # noqa: PLC0415 - SQLAlchemy takes a third of a second
        from roofwatch.store.queries import Queries  # noqa: PLC0415

        self._database: Database = database.open(url, migrate=False)
        self._queries = Queries(self._database)

    def run(self, query: str, scope: Filter, limit: int = 0) -> dict[str, Any]:
        """As in Answers."""
        return self._queries.run(query, scope, limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the database."""
        self._database.close()


def open_channel(address: str) -> Any:
    """A gRPC channel to a store that was seen to listen; a context manager.

    Raises:
        UnreachableError: nothing listens there. Said at once, where gRPC would try for 20 seconds.
    """
    host, port = parse_address(address)
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        raise UnreachableError(
            f"no store answers at {address} ({error.strerror or error}): start one with 'roofwatch store serve', "
            "or name another with --store"
        ) from error
    import grpc  # noqa: PLC0415

    # Never through a proxy: the store is in the same network, and http_proxy often knows no loopback.
    options = (("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1))
    return grpc.insecure_channel(address, options=options)


def told(error: Any, address: str) -> RoofwatchError:
    """A failed call as one sentence."""
    import grpc  # noqa: PLC0415

    code, details = error.code(), error.details()
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return UsageError(details)
    if code == grpc.StatusCode.UNAVAILABLE:
        return UnreachableError(f"the store at {address} hung up: {details}")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnreachableError(f"the store at {address} did not answer within {ANSWER_S:.0f} s: ask for less time")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return RoofwatchError(f"{address} is no Roofwatch store of this version: {details}")
    return RoofwatchError(f"the store at {address} failed: {details}")
