"""Who may do what: roles, the access file, and what a caller's token and certificate amount to."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from roofwatch.model.errors import UsageError

MOST_BYTES, MOST_ENTRIES, MOST_NODES = 8 << 20, 10_000, 1000
_NAME = re.compile(r"[A-Za-z0-9._@:-]{1,253}")
_HASH = re.compile(r"sha256=([0-9a-f]{64})")


class Role(StrEnum):
    """What a caller may do. ``admin`` may do all."""

    INGEST = "ingest"
    READ = "read"
    OPERATE = "operate"  # ask for windows, and fetch the traces that agents keep
    ADMIN = "admin"


class Why(StrEnum):
    """Reasons of refusals, as they are counted."""

    NO_CREDENTIALS = "no_credentials"
    TOKEN = "unknown_token"  # noqa: S105 - a word
    EXPIRED = "expired"
    CERTIFICATE = "certificate"
    ROLE = "role"
    NODE = "node"
    ROOF = "roof"


OPEN = ("/grpc.health.v1.Health/",)  # load balancers ask it, and it tells of nobody's records
NEEDS: Mapping[str, Role] = {
    "/roofwatch.v1.Ingest/Stream": Role.INGEST,
    "/roofwatch.v1.Query/Run": Role.READ,
    "/roofwatch.v1.Control/Capture": Role.OPERATE,
    "/roofwatch.v1.Control/ListTraces": Role.OPERATE,
    "/roofwatch.v1.Control/GetTrace": Role.OPERATE,
}


def needed(method: str) -> Role | None:
    """The role for a method of gRPC: None where it is open, admin for what is not listed (reflection, what is new)."""
    return None if method.startswith(OPEN) else NEEDS.get(method, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls and what it may do. ``nodes``: only records of these; None: of any."""

    name: str
    roles: frozenset[Role]
    nodes: frozenset[str] | None = None
    expires_unix_s: float | None = None

    def may(self, role: Role) -> bool:
        """Whether it has a role."""
        return role in self.roles or Role.ADMIN in self.roles

    def may_write(self, host: str) -> bool:
        """Whether it may send records of a node."""
        return self.nodes is None or host in self.nodes


ANYBODY = Caller("anybody", frozenset(Role))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a caller is nobody: a reason to count, a sentence to tell."""

    why: Why
    told: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What came with a call: a token, a client's certificate that TLS has verified."""

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = None


NOTHING = Shown()


@dataclass(frozen=True, slots=True)
class Entries:
    """What an access file says."""

    tokens: tuple[tuple[bytes, Caller], ...] = ()  # SHA-256 of the token
    certificates: Mapping[str, Caller] = field(default_factory=dict)  # by common name
    refused: frozenset[str] = frozenset()  # fingerprints

    def of_token(self, token: str) -> Caller | None:
        """Whose it is. Looks at every entry whatever it finds, so that the time tells nothing."""
        shown, found = hashed(token), None
        for known, caller in self.tokens:
            if hmac.compare_digest(known, shown):
                found = caller
        return found


def hashed(token: str) -> bytes:
    """What the file holds of a token. Tokens are 256 random bits, so that no salt and no slow hash is needed."""
    return hashlib.sha256(token.encode()).digest()


def read(path: Path) -> Entries:
    """Read an access file.

    Raises:
        UsageError: it cannot be read; names the line.
    """
    try:
        with path.open("rb") as file:
            data, mode = file.read(MOST_BYTES + 1), os.fstat(file.fileno()).st_mode
        if mode & (stat.S_IWOTH | stat.S_IWGRP):
            raise UsageError(f"--access-file {path}: others can change it; close it with: chmod go-w {path}")
        if len(data) > MOST_BYTES:
            raise UsageError(f"--access-file {path}: larger than {MOST_BYTES >> 20} MiB")
        text = data.decode()
    except OSError as error:
        raise UsageError(f"--access-file {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"--access-file {path}: is no text") from None
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"--access-file {path}: {error}") from None


def parse(text: str) -> Entries:
    """The lines of an access file: ``token NAME role=… sha256=…``, ``certificate NAME role=…``, ``refuse sha256=…``.

    Raises:
        ValueError: a line is none of these; names its number, and repeats nothing of it.
    """
    tokens: list[tuple[bytes, Caller]] = []
    certificates: dict[str, Caller] = {}
    refused = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            match words:
                case ["token", name, *rest] if found := _HASH.fullmatch(rest[-1] if rest else ""):
                    tokens.append((bytes.fromhex(found[1]), _caller(name, rest[:-1])))
                case ["certificate", name, *rest] if name not in certificates:
                    certificates[name] = _caller(name, rest)
                case ["refuse", word] if found := _HASH.fullmatch(word):
                    refused.add(found[1])
                case _:
                    raise ValueError("is no entry: see docs/security.md")
        except ValueError as error:
            raise ValueError(f"line {number} {error}") from None
    if len(tokens) + len(certificates) + len(refused) > MOST_ENTRIES:
        raise ValueError(f"has more than {MOST_ENTRIES} entries")
    if len({known for known, _ in tokens}) < len(tokens):
        raise ValueError("has one token twice")
    return Entries(tuple(tokens), certificates, frozenset(refused))


def _caller(name: str, words: list[str]) -> Caller:
    if not _NAME.fullmatch(name):
        raise ValueError("has a name that is none: letters, digits and . _ @ : -")
    given = dict(word.partition("=")[::2] for word in words)
    if len(given) < len(words) or not given.keys() <= {"role", "node", "expires"}:
        raise ValueError("has a word that is not known: role=, node=, expires=")
    nodes = frozenset(given["node"].split(",")) if "node" in given else None
    return restricted(name, given.get("role", "").split(","), nodes, _moment(given.get("expires")))


def restricted(name: str, roles: list[str], nodes: frozenset[str] | None, expires: float | None) -> Caller:
    """A caller of words.

    Raises:
        ValueError: there is no such role, or nodes that restrict nothing.
    """
    if not roles or not set(roles) <= set(Role):
        raise ValueError(f"has no role of {', '.join(Role)}")
    if nodes is not None and (len(nodes) > MOST_NODES or not all(map(_NAME.fullmatch, nodes))):
        raise ValueError("has a node without a name, or too many")
    if nodes is not None and set(roles) != {Role.INGEST}:
        raise ValueError("restricts nodes, which is for role ingest alone")
    return Caller(name, frozenset(map(Role, roles)), nodes, expires)


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("has an expires= that is no date like 2027-01-31") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


@dataclass(slots=True)
class Access:
    """Turns what a caller shows into what it may do, by the newest entries."""

    entries: Entries | None = None  # None: there is no access file
    certificates: bool = False  # whether callers must show certificates
    now_unix_s: Callable[[], float] = time.time

    @property
    def open(self) -> bool:
        """Whether anybody may do anything."""
        return self.entries is None and not self.certificates

    def caller(self, shown: Shown) -> Caller | Refusal:
        """Who calls: where a token and a certificate with rights come together, what both allow."""
        if self.open:
            return ANYBODY
        by_certificate = self._by_certificate(shown.certificate) if shown.certificate else None
        if isinstance(by_certificate, Refusal):
            return by_certificate
        if self.entries is None or shown.token is None:
            return by_certificate or _nobody(shown, tokens=self.entries is not None)
        by_token = self.entries.of_token(shown.token)
        if by_token is None:
            return Refusal(Why.TOKEN, "the token is not known here: it was removed, or is for another store")
        if _over(by_token, self.now_unix_s()):
            return Refusal(Why.EXPIRED, f"the token of '{by_token.name}' has expired: get a new one")
        return _with_certificate(by_token, by_certificate, shown.certificate)

    def admit(self, method: str, shown: Shown) -> Caller | Refusal:
        """Who calls, if it may call a method."""
        caller, role = self.caller(shown), needed(method)
        if isinstance(caller, Refusal) or role is None or caller.may(role):
            return caller
        has = " and ".join(sorted(caller.roles)) or "no role"
        return Refusal(Why.ROLE, f"'{caller.name}' has {has}, and this needs {role}: use a token or certificate of it")

    def _by_certificate(self, pem: bytes) -> Caller | Refusal | None:
        """None where it is good and says nothing of rights."""
        entries = self.entries or Entries()
        try:
            name, fingerprint, expires, roles, nodes = _facts(pem)
        except ValueError:
            return Refusal(Why.CERTIFICATE, "the certificate cannot be read")
        if fingerprint in entries.refused:
            return Refusal(Why.CERTIFICATE, f"the certificate of '{name}' is refused here: get a new one")
        listed = entries.certificates.get(name)
        if listed is not None:
            found = replace(listed, expires_unix_s=min(expires, listed.expires_unix_s or expires))
        elif roles or nodes:
            try:
                found = restricted(name, sorted(roles), nodes or None, expires)
            except ValueError as error:
                return Refusal(Why.CERTIFICATE, f"the certificate of '{name}' {error}")
        else:
            found = None
        if (expires if found is None else found.expires_unix_s or expires) <= self.now_unix_s():
            return Refusal(Why.EXPIRED, f"the certificate of '{name}' has expired: get a new one")
        return found


def both(one: Caller, other: Caller) -> Caller:
    """What both allow, under the first one's name."""
    roles = frozenset(role for role in Role if one.may(role) and other.may(role))
    limits = [caller.nodes for caller in (one, other) if caller.nodes is not None]
    ends = [caller.expires_unix_s for caller in (one, other) if caller.expires_unix_s is not None]
    nodes = frozenset.intersection(*limits) if limits else None
    return Caller(one.name, roles, nodes, min(ends, default=None))


def _with_certificate(by_token: Caller, by_certificate: Caller | None, pem: bytes | None) -> Caller:
    """What a token allows beside a certificate: one without rights restricts nothing, but lets in while it is good."""
    if by_certificate is not None:
        return both(by_token, by_certificate)
    if pem is None:
        return by_token
    expires = _facts(pem)[2]
    return replace(by_token, expires_unix_s=min(expires, by_token.expires_unix_s or expires))


def _over(caller: Caller, now_unix_s: float) -> bool:
    return caller.expires_unix_s is not None and caller.expires_unix_s <= now_unix_s


def _nobody(shown: Shown, *, tokens: bool) -> Refusal:
    if shown.certificate:
        ways = "a token with --token-file, or a certificate with a role" if tokens else "a certificate with a role"
        return Refusal(Why.CERTIFICATE, f"the certificate says nothing of a role: give {ways}")
    return Refusal(Why.NO_CREDENTIALS, "this store wants to know who asks: give a token with --token-file FILE")


@lru_cache(maxsize=4096)
def _facts(pem: bytes) -> tuple[str, str, float, frozenset[str], frozenset[str]]:
    from roofwatch.proto import certificates  # noqa: PLC0415 - 20 ms that plain text does not need

    found = certificates.read(pem)[0]
    return found.name, found.fingerprint, found.expires_unix_s, found.roles, found.nodes
