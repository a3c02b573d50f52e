"""A connection to a store, and its failures in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.store.config import format_address, is_loopback, parse_address

MAX_ANSWER_BYTES = 256 << 20  # 100,000 rows of 1 kB and more


@contextmanager
def channel(address: str) -> Iterator[Any]:
    """A channel to HOST:PORT; what fails in the block is told as an error of ours.

    Raises:
        UsageError: the address is none, or the store says that the request makes no sense.
        UnreachableError: no store answers there.
        RoofwatchError: the store failed.
    """
    host, port = parse_address(address)
    target = format_address(host, port)
    # A proxy for the outer world would be asked for this machine's own ports too.
    options = [
        ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        ("grpc.enable_http_proxy", int(not is_loopback(host))),
    ]
    with grpc.insecure_channel(target, options=options) as opened:
        try:
            yield opened
        except grpc.RpcError as error:
            raise _told(error, target) from None


def _told(error: Any, target: str) -> RoofwatchError:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return UnreachableError(
            f"no store answers at {target}: start one with 'roofwatch store serve', or name it with --store HOST:PORT."
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnreachableError(f"the store at {target} did not answer in time: ask for less, or look at its load.")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return UnreachableError(f"what answers at {target} is not a roofwatch store of this version.")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return UsageError(details)
    return RoofwatchError(f"the store at {target} could not answer: {details or code.name.lower()}")
