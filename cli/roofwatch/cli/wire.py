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
from roofwatch.proto.trust import Material
from roofwatch.store.config import format_address, is_loopback, parse_address

MAX_ANSWER_BYTES = 256 << 20  # 100,000 rows of 1 kB and more
NOBODY = "no store answers at {}: start one with 'roofwatch store serve', or name it with --store HOST:PORT."
UNREACHED = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "the store at {} did not answer in time: ask for less, or look at its load.",
    grpc.StatusCode.UNIMPLEMENTED: "what answers at {} is not a roofwatch store of this version.",
}
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


def _told(error: Any, address: tuple[str, int], material: Material) -> RoofwatchError:
    code, details, target = error.code(), error.details() or "", format_address(*address)
    if code in REFUSED:
        return UnreachableError(f"the store at {target} refuses: {details}.")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return UsageError(details)
    if code is grpc.StatusCode.UNAVAILABLE:
        problem = handshake.ask(*address, material).problem
        return UnreachableError(f"the store at {target} {problem}." if problem else NOBODY.format(target))
    if code in UNREACHED:
        return UnreachableError(UNREACHED[code].format(target))
    return RoofwatchError(f"the store at {target} could not answer: {details or code.name.lower()}")
