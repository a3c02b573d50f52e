"""Whom a client believes and what it shows: files, read anew for every connection. Light: no gRPC in here."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roofwatch.model.errors import UsageError

MOST_BYTES = 1 << 20  # a bundle of all public CAs is a quarter of it
MOST_TOKEN = 4096  # characters; a header line takes no more everywhere
VARIABLES = {
    "ca": "ROOFWATCH_TLS_CA",
    "cert": "ROOFWATCH_TLS_CERT",
    "key": "ROOFWATCH_TLS_KEY",
    "token_file": "ROOFWATCH_TOKEN_FILE",
    "insecure": "ROOFWATCH_INSECURE",
}
State = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """What the files held. Never shown: a repr of it tells nothing."""

    ca: bytes | None = field(default=None, repr=False)
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)


@dataclass(frozen=True, slots=True)
class Trust:
    """Settings of a client: paths, "" where there is none. With ``ca`` it speaks TLS, and TLS only."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    token_file: str = ""
    insecure: bool = False

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] = os.environ) -> Trust:
        """As the variables say."""
        paths = {name: environ.get(VARIABLES[name], "") for name in ("ca", "cert", "key", "token_file")}
        return cls(**paths, insecure=environ.get(VARIABLES["insecure"], "").lower() in {"1", "true", "yes", "on"})

    def check(self, target: str, *, loopback: bool) -> None:
        """Refuse what would be plain text beyond this machine, and what does not fit together.

        Raises:
            UsageError: with what to do.
        """
        if bool(self.cert) != bool(self.key):
            raise UsageError("--tls-cert and --tls-key belong together: give both, or none")
        if self.cert and not self.ca:
            raise UsageError("--tls-cert without --tls-ca: say by which CA the store is known")
        if not self.ca and not loopback and not self.insecure:
            raise UsageError(
                f"the store {target} is on another machine and the connection would be plain text: "
                "give its CA with --tls-ca FILE, or allow it with --insecure"
            )

    def load(self) -> Material:
        """Read the files.

        Raises:
            UsageError: one cannot be read, is open to everybody, or is not what it should be.
        """
        return Material(
            ca=public(self.ca, "--tls-ca") if self.ca else None,
            cert=public(self.cert, "--tls-cert") if self.cert else None,
            key=secret(self.key, "--tls-key") if self.key else None,
            token=_token(self.token_file) if self.token_file else None,
        )

    def state(self) -> State:
        """Changes when one of the files does."""
        return state_of((self.ca, self.cert, self.key, self.token_file))


def state_of(paths: Iterable[str | Path]) -> State:
    """Which files lie there now; of a link, where it leads."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = os.stat(path) if path else None  # noqa: PTH116 - "" is no path
        except OSError:
            status = None
        found.append(None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def public(path: str | Path, option: str) -> bytes:
    """A file that anybody may read, of certificates.

    Raises:
        UsageError: it cannot be read or holds none.
    """
    data = _read(path, option)[0]
    if b"-----BEGIN CERTIFICATE-----" not in data:
        raise UsageError(f"{option} {path}: no certificate in it; a PEM file is wanted")
    return data


def secret(path: str | Path, option: str) -> bytes:
    """A file that only its owner, or its group, may read.

    Raises:
        UsageError: it cannot be read, or everybody can.
    """
    data, mode = _read(path, option)
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        raise UsageError(f"{option} {path}: others can read or change it; close it with: chmod 600 {path}")
    return data


def _token(path: str) -> str:
    try:
        text = secret(path, "--token-file").decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not 0 < len(text) <= MOST_TOKEN or not text.isprintable() or " " in text:
        raise UsageError(f"--token-file {path}: no token in it; one line of 'roofwatch certs token' is wanted")
    return text


def _read(path: str | Path, option: str) -> tuple[bytes, int]:
    try:
        with Path(path).open("rb") as file:
            data, mode = file.read(MOST_BYTES + 1), os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be read: {os.strerror(error.errno or 0)}") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"{option} {path}: larger than {MOST_BYTES >> 20} MiB")
    return data, mode
