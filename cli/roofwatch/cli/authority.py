"""A private certificate authority in a folder: its key and certificate, and those that it issues."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

from roofwatch.model.errors import UsageError
from roofwatch.proto.certificates import NODE_URI, ROLE_URI
from roofwatch.proto.trust import public, secret

CA = "ca"
SKEW = timedelta(minutes=5)  # a machine whose clock is behind takes a new certificate at once
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}")  # of a file and a common name
HOST = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9._:-]{0,252}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A certificate to issue."""

    name: str
    hosts: Sequence[str] = ()  # DNS names and addresses
    roles: Sequence[str] = ()
    nodes: Sequence[str] = ()
    server: bool = False
    client: bool = True


@dataclass(frozen=True, slots=True)
class Made:
    """Where it lies."""

    cert: Path
    key: Path
    expires: datetime


def make_ca(folder: Path, name: str, days: int, now: datetime | None = None) -> Made:
    """Make a CA in a folder, which is made as well and closed to others.

    Raises:
        UsageError: there is one, or the folder cannot be written.
    """
    if (folder / f"{CA}.key").exists() or (folder / f"{CA}.pem").exists():
        raise UsageError(f"{folder} has a CA already: take another --folder, or delete it and all that it issued")
    key, subject = ec.generate_private_key(ec.SECP256R1()), _name(name)
    signs = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(subject, subject, key.public_key(), days, now or datetime.now(UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _written(folder, CA, builder.sign(key, hashes.SHA256()), key, replace=False)


def issue(folder: Path, wanted: Wanted, days: int, *, replace: bool = False, now: datetime | None = None) -> Made:
    """Issue a certificate by the CA of a folder, with a new key.

    Raises:
        UsageError: there is no CA or it cannot be used, a name is none, or the files are there and not to be replaced.
    """
    check_name(wanted.name)
    ca, ca_key = _authority(folder)
    moment = now or datetime.now(UTC)
    if ca.not_valid_after_utc <= moment:
        raise UsageError(f"the CA in {folder} has expired: make a new one with 'roofwatch certs ca'")
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [_host(host) for host in wanted.hosts]
    names += [x509.UniformResourceIdentifier(ROLE_URI + role) for role in wanted.roles]
    names += [x509.UniformResourceIdentifier(NODE_URI + _checked(node)) for node in wanted.nodes]
    purposes = [*([Usage.SERVER_AUTH] if wanted.server else []), *([Usage.CLIENT_AUTH] if wanted.client else [])]
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_name(wanted.name), ca.subject, key.public_key(), days, moment, ca.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        # Without one, a certificate that is called as its CA is taken for signed by itself.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    return _written(folder, wanted.name, builder.sign(ca_key, hashes.SHA256()), key, replace=replace)


def check_name(name: str) -> None:
    """Refuse what names no file.

    Raises:
        UsageError: says what may.
    """
    if not NAME.fullmatch(name) or name == CA:
        raise UsageError(f"'{name}' is no name for a certificate or token: letters, digits and . _ -, and not 'ca'")


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: int,
    now: datetime,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    ends = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(ends if latest is None else min(ends, latest))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(_checked(text))


def _checked(host: str) -> str:
    if not HOST.fullmatch(host):
        raise UsageError(f"'{host}' is no name of a machine")
    return host


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    cert, key = folder / f"{CA}.pem", folder / f"{CA}.key"
    if not cert.exists():
        raise UsageError(f"there is no CA in {folder}: make one with 'roofwatch certs ca --folder {folder}'")
    try:
        found = x509.load_pem_x509_certificate(public(cert, "the CA's certificate"))
        signer = load_pem_private_key(secret(key, "the CA's key"), password=None)
    except (ValueError, TypeError):
        raise UsageError(f"the CA in {folder} cannot be read: {cert.name} and {key.name} are wanted") from None
    if not isinstance(signer, ec.EllipticCurvePrivateKey) or signer.public_key() != found.public_key():
        raise UsageError(f"the CA in {folder} cannot sign: {key.name} is not the key of {cert.name}")
    return found, signer


def _written(
    folder: Path, name: str, made: x509.Certificate, key: ec.EllipticCurvePrivateKey, *, replace: bool
) -> Made:
    cert, secret_file = folder / f"{name}.pem", folder / f"{name}.key"
    if not replace and (cert.exists() or secret_file.exists()):
        raise UsageError(f"{cert} or its key is there already: take another name, or replace both with --renew")
    write(secret_file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    write(cert, made.public_bytes(Encoding.PEM), 0o644)
    return Made(cert, secret_file, made.not_valid_after_utc)


def write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, and never open to others for a moment.

    Raises:
        UsageError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {os.strerror(error.errno or 0)}") from error
