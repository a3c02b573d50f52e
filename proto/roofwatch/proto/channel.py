"""Channels of clients: TLS where they have a CA, their token with every call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

# What gRPC says of failed handshakes on stderr is said by us in a sentence. It reads this when it is first used.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

from roofwatch.model.errors import UsageError
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
        check_pair(material.cert, material.key)
    return grpc.ssl_channel_credentials(material.ca, material.key, material.cert)


def check_pair(cert: bytes, key: bytes) -> None:
    """See that a key belongs to the first certificate of a file, which gRPC would tell of by silence.

    Raises:
        UsageError: it does not, or one of them cannot be read.
    """
    from cryptography import x509  # noqa: PLC0415 - 20 ms that plain text on loopback does not need
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        wanted = x509.load_pem_x509_certificates(cert)[0].public_key()
        found = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UsageError("--tls-cert or --tls-key cannot be read: give PEM files, the key without a password") from None
    if wanted != found:
        raise UsageError("--tls-key does not belong to --tls-cert: give the two that were made together")


class _Token(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Adds the token to the headers; for the two kinds of calls that there are."""

    def __init__(self, material: Material) -> None:
        self._metadata = material.metadata

    def _with(self, details: Any) -> Any:
        return details._replace(metadata=(*(details.metadata or ()), *self._metadata))

    def intercept_unary_unary(self, call: Callable[..., Any], details: Any, request: Any) -> Any:
        return call(self._with(details), request)

    def intercept_stream_stream(self, call: Callable[..., Any], details: Any, requests: Any) -> Any:
        return call(self._with(details), requests)
