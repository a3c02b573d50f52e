"""What a store trusts by, read again when it changes: its certificate, the CA of its clients, who may do what."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import grpc

from roofwatch.model.errors import UsageError
from roofwatch.proto.trust import public, secret, state_of
from roofwatch.store import access
from roofwatch.store.access import Access
from roofwatch.store.config import Tls

LOOK_S = 1.0
_log = logging.getLogger(__name__)


class Certificates:
    """The store's certificate; a handshake takes the newest one that is whole."""

    def __init__(self, tls: Tls) -> None:
        """Read the files.

        Raises:
            UsageError: they cannot be used.
        """
        self.tls = tls
        self._paths = (tls.cert, tls.key, tls.client_ca or "")
        self._lock = threading.Lock()  # handshakes are on threads of gRPC
        self._seen = self._good = state_of(self._paths)
        self._given = self._good  # what gRPC has
        self.expires: dict[str, float] = {}
        self.clients = b""  # the CA of clients
        self._config = self._read()

    def repoint(self, tls: Tls) -> None:
        """Other files; ``look`` takes them if they are whole."""
        with self._lock:
            self.tls, self._paths = tls, (tls.cert, tls.key, tls.client_ca or "")

    def credentials(self) -> grpc.ServerCredentials:
        """For a port of the server."""
        return grpc.dynamic_ssl_server_credentials(self._config, self._newest, self.tls.client_ca is not None)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        chain, key = public(self.tls.cert, "--tls-cert"), secret(self.tls.key, "--tls-key")
        from roofwatch.proto.certificates import check_pair  # noqa: PLC0415 - 20 ms that plain text does not need

        check_pair(chain, key)
        clients = public(self.tls.client_ca, "--tls-client-ca") if self.tls.client_ca else None
        expires = {"server": _expiry(chain, "--tls-cert", self.tls.cert)}
        if clients is not None:
            expires["client_ca"] = _expiry(clients, "--tls-client-ca", self.tls.client_ca or Path())
        self.expires, self.clients = expires, clients or b""
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=clients)

    def look(self) -> bool:
        """Read the files again if they changed; whether they are others now. What is not whole is left alone."""
        with self._lock:
            now = state_of(self._paths)
            if now == self._seen:
                return False
            self._seen = now
            try:
                self._config = self._read()
            except UsageError as error:
                _log.warning("new certificate not taken, the old one stays: %s", error)
                return False
            self._good = now
            _log.warning("new certificate taken: it is good until %s", _day(self.expires["server"]))
            return True

    def _newest(self) -> grpc.ServerCertificateConfiguration | None:
        """For gRPC, at every handshake: None where it has the newest already."""
        try:
            self.look()
            with self._lock:
                if self._given == self._good:
                    return None
                self._given = self._good
                return self._config
        except Exception:  # noqa: BLE001 - raised into gRPC it would end every handshake; the old one is good
            _log.exception("certificate not looked at")
            return None


def _expiry(pem: bytes, option: str, path: Path) -> float:
    from roofwatch.proto import certificates  # noqa: PLC0415 - 20 ms that plain text does not need

    try:
        return certificates.first_expiry(pem)
    except ValueError:
        raise UsageError(f"{option} {path}: a certificate in it cannot be read") from None


def _day(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d")


class AccessFile:
    """The access file, read again when it changes; a file that is damaged changes nothing."""

    def __init__(self, path: Path, into: Access) -> None:
        """Read it.

        Raises:
            UsageError: it cannot be used.
        """
        self._path, self._into = path, into
        self._seen = state_of((path,))
        into.entries = access.read(path)
        self.good = True

    def repoint(self, path: Path) -> None:
        """Another file.

        Raises:
            UsageError: it cannot be used.
        """
        if path != self._path:
            access.read(path)
            self._path, self._seen = path, ()

    def look(self) -> bool:
        """Whether who may do what is different now."""
        now = state_of((self._path,))
        if now == self._seen:
            return False
        self._seen = now
        try:
            self._into.entries = access.read(self._path)
        except UsageError as error:
            self.good = False
            _log.warning("access file not taken, what it said before stays: %s", error)
            return False
        self.good = True
        _log.warning("access file taken: %d tokens", len(self._into.entries.tokens))
        return True


@dataclass(frozen=True, slots=True)
class Changed:
    """What is different since the last look."""

    entries: bool
    certificates: bool


class Trusted:
    """All that a store was given to trust by; nothing given: anybody may do anything, in plain text."""

    def __init__(self, tls: Tls | None, access_file: Path | None) -> None:
        """Read the files.

        Raises:
            UsageError: they cannot be used.
        """
        self.access = Access(certificates=tls is not None and tls.client_ca is not None)
        self.certificates = None if tls is None else Certificates(tls)
        self._file = None if access_file is None else AccessFile(access_file, self.access)
        self._clients = self._state_of_clients()

    def _state_of_clients(self) -> bytes:
        return b"" if self.certificates is None else self.certificates.clients

    def repoint(self, tls: Tls | None, access_file: Path | None) -> list[str]:
        """Look at other files from now on. Gives the settings that a running store cannot change: on and off.

        Raises:
            UsageError: a file cannot be used; nothing is changed.
        """
        kept = []
        if access_file is not None:
            access.read(access_file)
        if (tls is None) != (self.certificates is None):
            kept += ["tls_cert", "tls_key"]
        elif tls is not None and self.certificates is not None:
            if (tls.client_ca is None) != (self.certificates.tls.client_ca is None):
                kept.append("tls_client_ca")
                tls = replace(tls, client_ca=self.certificates.tls.client_ca)
            if tls != self.certificates.tls:
                Certificates(tls)  # raises where they are not whole
                self.certificates.repoint(tls)
        if (access_file is None) != (self._file is None):
            kept.append("access_file")
        elif access_file is not None and self._file is not None:
            self._file.repoint(access_file)
        return kept

    def look(self) -> Changed:
        """Read again what changed."""
        if self.certificates is not None:
            self.certificates.look()
        clients = self._state_of_clients()
        changed, self._clients = clients != self._clients, clients
        return Changed(self._file is not None and self._file.look(), changed)

    @property
    def expires(self) -> Mapping[str, float]:
        """When certificates end, in Unix seconds, by what they are for."""
        return {} if self.certificates is None else self.certificates.expires

    @property
    def good(self) -> bool:
        """Whether the access file could be read when it was last changed."""
        return self._file is None or self._file.good


async def watch(look: Callable[[], None], every_s: float = LOOK_S) -> None:
    """Look now and then, until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        look()
