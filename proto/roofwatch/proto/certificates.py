"""What stands in a certificate: whom it names, what it lets do, and until when."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from roofwatch.model.errors import UsageError

ROLE_URI = "urn:roofwatch:role:"  # subject alternative names of a client's certificate
NODE_URI = "urn:roofwatch:node:"

_Kind = TypeVar("_Kind", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate, read."""

    name: str  # common name
    issuer: str
    hosts: tuple[str, ...]  # DNS names and addresses
    roles: frozenset[str]
    nodes: frozenset[str]
    begins_unix_s: float
    expires_unix_s: float
    fingerprint: str  # SHA-256 of its DER, in hex
    is_ca: bool

    def expired(self, now_unix_s: float) -> bool:
        """Whether its time is over."""
        return now_unix_s >= self.expires_unix_s

    def days_left(self, now_unix_s: float) -> int:
        """Whole days; negative once it has expired."""
        return int((self.expires_unix_s - now_unix_s) // 86_400)

    @property
    def expires(self) -> str:
        """The day, for people."""
        return datetime.fromtimestamp(self.expires_unix_s, UTC).strftime("%Y-%m-%d")


def read(pem: bytes) -> list[Certificate]:
    """Every certificate of a PEM file, in its order.

    Raises:
        ValueError: there is none, or one is damaged.
    """
    return [_read(found) for found in x509.load_pem_x509_certificates(pem)]


def first_expiry(pem: bytes) -> float:
    """When the first of them ends, in Unix seconds.

    Raises:
        ValueError: see ``read``.
    """
    return min(certificate.expires_unix_s for certificate in read(pem))


def check_pair(cert: bytes, key: bytes) -> None:
    """See that a key belongs to the first certificate of a file; gRPC would only fail every handshake.

    Raises:
        UsageError: it does not, or one of them cannot be read.
    """
    try:
        wanted = x509.load_pem_x509_certificates(cert)[0].public_key()
        found = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UsageError("--tls-cert or --tls-key cannot be read: give PEM files, the key without a password") from None
    if wanted != found:
        raise UsageError("--tls-key does not belong to --tls-cert: give the two that were made together")


def _read(found: x509.Certificate) -> Certificate:
    names = _extension(found, x509.SubjectAlternativeName)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    hosts = [
        *(names.get_values_for_type(x509.DNSName) if names else []),
        *(str(address) for address in (names.get_values_for_type(x509.IPAddress) if names else [])),
    ]
    constraints = _extension(found, x509.BasicConstraints)
    return Certificate(
        name=_common_name(found.subject),
        issuer=_common_name(found.issuer),
        hosts=tuple(hosts),
        roles=frozenset(uri.removeprefix(ROLE_URI) for uri in uris if uri.startswith(ROLE_URI)),
        nodes=frozenset(uri.removeprefix(NODE_URI) for uri in uris if uri.startswith(NODE_URI)),
        begins_unix_s=found.not_valid_before_utc.timestamp(),
        expires_unix_s=found.not_valid_after_utc.timestamp(),
        fingerprint=hashlib.sha256(found.public_bytes(Encoding.DER)).hexdigest(),
        is_ca=constraints is not None and constraints.ca,
    )


def _extension(found: x509.Certificate, kind: type[_Kind]) -> _Kind | None:
    try:
        return found.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _common_name(name: x509.Name) -> str:
    values = [str(attribute.value) for attribute in name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return values[0] if values else name.rfc4514_string()
