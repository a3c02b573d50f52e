"""Why nothing came of a connection to a store, asked once more with Python's own TLS, which says what gRPC does not."""

from __future__ import annotations

import os
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

from roofwatch.proto.trust import Material

WITHIN_S = 2.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"  # RFC 9113 §3.4, and empty settings
_EXPIRED, _NOT_YET, _NO_ISSUER, _OTHER_NAME = {10}, {9}, {18, 19, 20, 21}, {62, 64}  # X509_V_ERR_…
NAMES_MOST, NAME_MOST = 4, 80


@dataclass(frozen=True, slots=True)
class Met:
    """What was found: a clause that says what is wrong and what to do, or when the certificate of the store ends."""

    problem: str = ""
    expires_unix_s: float | None = None


def ask(host: str, port: int, material: Material, within_s: float = WITHIN_S) -> Met:
    """Connect as a client would; nothing to tell where nobody listens, or where all is well.

    ``problem`` begins with what the store is or does, so that "the store at HOST:PORT" goes before it.
    """
    try:
        with socket.create_connection((host, port), within_s) as sock:
            if material.ca is None:
                return Met(_plain(sock))
            return _secured(sock, (host, port), material)
    except (OSError, ValueError, OverflowError):  # a name that is none, a port that is none, a date that cannot be read
        return Met()


def _plain(sock: socket.socket) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # only whether it is TLS
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(sock):
            return "speaks TLS and this is plain text: give its CA with --tls-ca FILE"
    except (OSError, ValueError):
        return ""


def _secured(sock: socket.socket, address: tuple[str, int], material: Material) -> Met:
    if gone := _ended(material.ca):
        return Met(f"cannot be known: the CA of --tls-ca {gone}; get its new one from who runs the store")
    try:
        context = _context(material)
    except (ssl.SSLError, ValueError, OSError):
        return Met()
    try:
        with context.wrap_socket(sock, server_hostname=address[0]) as secured:
            ends = secured.getpeercert() or {}
            expires = float(ssl.cert_time_to_seconds(str(ends["notAfter"]))) if "notAfter" in ends else None
            return Met("" if _welcome(secured) else _unwelcome(material), expires)
    except ssl.SSLCertVerificationError as error:
        return Met(_certificate(error, address, material))
    except ssl.SSLError:
        return Met("speaks plain text and not TLS: start it with --tls-cert and --tls-key, or leave out --tls-ca")
    except ConnectionError:
        return Met("hung up before it said who it is: see whether it speaks TLS")


def _context(material: Material) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=(material.ca or b"").decode("ascii"))
    context.set_alpn_protocols(["h2"])
    if material.cert is not None and material.key is not None:
        # Python takes a pair from a file only; this one has no name and lies on no disk.
        with os.fdopen(os.memfd_create("roofwatch-pair", os.MFD_CLOEXEC), "wb") as pair:
            pair.write(material.cert + b"\n" + material.key)
            pair.flush()
            context.load_cert_chain(f"/proc/self/fd/{pair.fileno()}")
    return context


def _welcome(secured: ssl.SSLSocket) -> bool:
    """Whether the other side stays: in TLS 1.3 it looks at a client's certificate after the client is done."""
    try:
        secured.sendall(_PREFACE)
        return bool(secured.recv(1))
    except TimeoutError:
        return True
    except OSError:
        return False


def _unwelcome(material: Material) -> str:
    if material.cert is None:
        return "wants a client's certificate: give one with --tls-cert and --tls-key"
    if gone := _ended(material.cert):
        return f"refuses the certificate of --tls-cert: it {gone}; make a new one with 'roofwatch certs client'"
    return "refuses the certificate of --tls-cert: give one of a CA that the store was given as --tls-client-ca"


def _ended(pem: bytes | None) -> str:
    from roofwatch.proto import certificates  # noqa: PLC0415 - 20 ms that are needed when something went wrong only

    try:
        found = certificates.read(pem or b"")
    except ValueError:
        return ""
    now = time.time()
    if all(c.expired(now) for c in found):
        return f"has expired on {found[0].expires}"
    return "is not valid yet: look at this machine's clock" if all(c.begins_unix_s > now for c in found) else ""


def _certificate(error: ssl.SSLCertVerificationError, address: tuple[str, int], material: Material) -> str:
    code = error.verify_code
    if code in _EXPIRED:
        return "shows a certificate that has expired: make a new one with 'roofwatch certs server', or set this clock"
    if code in _NOT_YET:
        return "shows a certificate that is not valid yet: look at the clocks of both machines"
    if code in _NO_ISSUER:
        return "shows a certificate that is not of the CA of --tls-ca: give the CA that issued it"
    if code in _OTHER_NAME:
        named = _names(address, material)
        held = f"it is for {named}; " if named else ""
        return f"shows a certificate without the name '{address[0]}': {held}use a name that it holds, or issue another"
    return f"shows a certificate that cannot be trusted ({error.verify_message})"


def _names(address: tuple[str, int], material: Material) -> str:
    """The names of the certificate that was shown, by a connection that asks for no name."""
    try:
        context = _context(material)
        context.check_hostname = False
        with (
            socket.create_connection(address, WITHIN_S) as again,
            context.wrap_socket(again, server_hostname=address[0]) as secured,
        ):
            held: Any = (secured.getpeercert() or {}).get("subjectAltName", ())
            names = [str(value) for _, value in held]
    except (OSError, ValueError):
        return ""
    shown = ", ".join(name[:NAME_MOST] for name in names[:NAMES_MOST])
    return f"{shown} and more" if len(names) > NAMES_MOST else shown
