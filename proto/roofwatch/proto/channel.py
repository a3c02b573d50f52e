"""Channels of clients: TLS where they have a CA, their token with every call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

# What gRPC says of failed handshakes on stderr is said by us in a sentence. It reads this when it is first used.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

from roofwatch.proto.trust import Material

Options = Sequence[tuple[str, int]]


def open_sync(target: str, material: Material, options: Options) -> Any:
    """A channel whose calls carry the token.

    Raises:
        UsageError: certificate and key are no pair.
    """
    if material.ca is None:
        channel = grpc.insecure_channel(target, options=options)
    else:
        channel = grpc.secure_channel(target, _credentials(material), options=options)
    return grpc.intercept_channel(channel, _Token(material)) if material.token is not None else channel


def open_aio(target: str, material: Material, options: Options) -> Any:
    """A channel of grpc.aio; ``material.metadata`` has to be given to each call.

    Raises:
        UsageError: certificate and key are no pair.
    """
    if material.ca is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, _credentials(material), options=options)


def _credentials(material: Material) -> Any:
    if material.cert is not None and material.key is not None:
        from roofwatch.proto.certificates import check_pair  # noqa: PLC0415 - 20 ms that plain text does not need

        check_pair(material.cert, material.key)
    return grpc.ssl_channel_credentials(material.ca, material.key, material.cert)


class _Token(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Adds the token to the headers; for the three kinds of calls that there are."""

    def __init__(self, material: Material) -> None:
        self._metadata = material.metadata

    def _with(self, details: Any) -> Any:
        return details._replace(metadata=(*(details.metadata or ()), *self._metadata))

    def intercept_unary_unary(self, call: Callable[..., Any], details: Any, request: Any) -> Any:
        return call(self._with(details), request)

    def intercept_unary_stream(self, call: Callable[..., Any], details: Any, request: Any) -> Any:
        return call(self._with(details), request)

    def intercept_stream_stream(self, call: Callable[..., Any], details: Any, requests: Any) -> Any:
        return call(self._with(details), requests)
