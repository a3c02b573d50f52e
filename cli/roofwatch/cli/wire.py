"""A connection to a store, and its failures in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from roofwatch.proto import channel as channels  # before grpc, which it keeps quiet

# isort: split
import grpc

from roofwatch.cli import trusting
from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.proto import handshake
from roofwatch.proto.codec import DATABASE_AWAY
from roofwatch.proto.trust import Material
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.config import format_address, is_loopback, parse_address

MAX_ANSWER_BYTES = 256 << 20  # 100,000 rows of 1 kB and more
NOBODY = "no store answers at {}: start one with 'roofwatch store serve', or name it with --store HOST:PORT."
UNREACHED = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "the store at {} did not answer in time: ask for less, or look at its load.",
    grpc.StatusCode.UNIMPLEMENTED: "what answers at {} is not a roofwatch store of this version.",
}
AGAIN_WITHIN_S = 5.0  # so long a store that went away while it answered may take to come back
REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


@contextmanager
def channel(address: str) -> Iterator[Any]:
    """A channel to HOST:PORT, trusted as the command line and the environment say; failures are told as errors of ours.

    Raises:
        UsageError: the address is none, a file of trust cannot be used, or the request makes no sense.
        UnreachableError: no store answers there, it cannot be trusted, or it refuses who asks.
        RoofwatchError: the store failed.
    """
    host, port = parse_address(address)
    target = format_address(host, port)
    trust = trusting.given()
    trust.check(target, loopback=is_loopback(host))
    material = trust.load()
    # A proxy for the outer world would be asked for this machine's own ports too.
    options = [
        ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        ("grpc.enable_http_proxy", int(not is_loopback(host))),
    ]
    with channels.open_sync(target, material, options) as opened:
        try:
            yield opened
        except grpc.RpcError as error:
            raise _told(error, (host, port), material) from None


def answer(channel: Any, request: pb.QueryRequest, timeout_s: float) -> pb.QueryResponse:
    """Ask; once more where the store went away while it answered, and came back: reading twice hurts nobody."""
    stub = rpc.QueryStub(channel)
    try:
        first: pb.QueryResponse = stub.Run(request, timeout=timeout_s)
    except grpc.RpcError as error:
        if not _went_away(error):
            raise
        try:
            grpc.channel_ready_future(channel).result(AGAIN_WITHIN_S)
        except grpc.FutureTimeoutError:
            raise error from None
    else:
        return first
    second: pb.QueryResponse = stub.Run(request, timeout=timeout_s)
    return second


def _went_away(error: Any) -> bool:
    """Whether a connection that stood broke."""
    if error.code() is not grpc.StatusCode.UNAVAILABLE or _database_away(error):
        return False
    return "failed to connect" not in (error.details() or "")


def _database_away(error: Any) -> bool:
    return DATABASE_AWAY[0] in [tuple(pair) for pair in error.trailing_metadata() or ()]


def _told(error: Any, address: tuple[str, int], material: Material) -> RoofwatchError:
    code, details, target = error.code(), error.details() or "", format_address(*address)
    if code in REFUSED:
        return UnreachableError(f"the store at {target} refuses: {details}.")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return UsageError(details)
    if _database_away(error):
        return UnreachableError(f"the store at {target} cannot answer: {details}.")
    if code is grpc.StatusCode.UNAVAILABLE:
        problem = handshake.ask(*address, material).problem
        return UnreachableError(f"the store at {target} {problem}." if problem else NOBODY.format(target))
    if code in UNREACHED:
        return UnreachableError(UNREACHED[code].format(target))
    return RoofwatchError(f"the store at {target} could not answer: {details or code.name.lower()}")
