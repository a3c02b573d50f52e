"""Where an answer comes from: a store on the wire, or a database opened here. Both give the same object."""

from __future__ import annotations

import json
from typing import Any

import click
from click.core import ParameterSource

from roofwatch.model.errors import IncompleteError, RoofwatchError, UnreachableError, UsageError
from roofwatch.store.config import DEFAULT_ADDRESS, format_address, is_loopback, parse_address
from roofwatch.store.filter import Filter

DEADLINE_S = 30
MAX_ANSWER_BYTES = 256 << 20  # 100,000 rows of 1 kB and more

Answer = dict[str, Any]


def ask(query: str, given: Filter, limit: int, *, store: str | None, db: str | None) -> Answer:
    """The answer to a query.

    Raises:
        UnreachableError: no store or database answers.
        UsageError: both were named on the command line, or an address is none.
        RoofwatchError: the store or the database could not answer.
    """
    if db and not _prefers_store(store):
        return _from_database(db, query, given, limit)
    return _from_store(store or DEFAULT_ADDRESS, query, given, limit)


def filter_of(given: dict[str, Any]) -> Filter:
    """Take the filter's options out of a command's keyword arguments.

    Raises:
        click.UsageError: the time range is empty.
    """
    since, until = given.pop("since"), given.pop("until")
    if since and until and since >= until:
        raise click.UsageError("--since is not before --until: nothing can lie between them.")
    words = {name: given.pop(name) or None for name in ("node", "process", "model", "device")}
    return Filter(since or None, until or None, **words, labels=dict(given.pop("labels")))


def _prefers_store(store: str | None) -> bool:
    """What is typed wins over what is in the environment; the database wins where both are in the environment."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or not store:
        return False
    typed = {name: ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ("store", "db")}
    if typed["store"] and typed["db"]:
        raise UsageError("--store and --db exclude each other: name one of them.")
    return typed["store"]


def _from_database(url: str, query: str, given: Filter, limit: int) -> Answer:
    from roofwatch.store import database  # noqa: PLC0415  # SQLAlchemy takes 0.3 s
    from roofwatch.store.queries import Queries  # noqa: PLC0415

    opened = database.open(url, migrate=False)
    try:
        return Queries(opened).run(query, given, limit)
    finally:
        opened.close()


def _from_store(address: str, query: str, given: Filter, limit: int) -> Answer:
    import grpc  # noqa: PLC0415  # 0.08 s

    from roofwatch.proto.v1 import roofwatch_pb2 as pb  # noqa: PLC0415
    from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc  # noqa: PLC0415

    host, port = parse_address(address)
    target = format_address(host, port)
    options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
    if is_loopback(host):
        options.append(("grpc.enable_http_proxy", 0))
    with grpc.insecure_channel(target, options=options) as channel:
        try:
            request = pb.QueryRequest(query=query, filter=given.message(), limit=limit)
            response = rpc.QueryStub(channel).Run(request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            raise _told(error, target) from None
    answer: Answer = json.loads(response.answer)
    return answer


def _told(error: Any, target: str) -> RoofwatchError:
    import grpc  # noqa: PLC0415

    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return UnreachableError(
            f"no store answers at {target}: start one with 'roofwatch store serve', or name it with --store HOST:PORT."
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnreachableError(f"the store at {target} did not answer within {DEADLINE_S} s: ask for less time.")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return UnreachableError(f"what answers at {target} is not a roofwatch store of this version.")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return UsageError(details)
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return IncompleteError(details)
    return RoofwatchError(f"the store at {target} could not answer: {details or code.name.lower()}")
