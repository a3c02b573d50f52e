"""Tokens: made at random, given to who uses them in a file, kept by the store as hashes."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from roofwatch.cli import authority
from roofwatch.model.errors import UsageError
from roofwatch.store import access

PREFIX = "rw_"  # so that scanners for leaked secrets can know one
RANDOM_BYTES = 32
HEAD = "# Who may do what in this store; read again when it changes. Tokens stand here as hashes. docs/security.md\n"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A token to make."""

    name: str
    roles: Sequence[str]
    nodes: Sequence[str]
    days: int


@dataclass(frozen=True, slots=True)
class Made:
    """Where it lies."""

    token: Path
    access: Path
    expires: datetime


def make(folder: Path, access_file: Path, wanted: Wanted, *, replace: bool) -> Made:
    """Make a token and its line in the access file, which is made where there is none.

    Raises:
        UsageError: there is such a token and it is not to be replaced, or a file cannot be read or written.
    """
    authority.check_name(wanted.name)
    path = folder / f"{wanted.name}.token"
    expires = (datetime.now(UTC) + timedelta(days=wanted.days)).replace(microsecond=0)
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    words = ["token", wanted.name, f"role={','.join(wanted.roles)}"]
    words += [f"node={','.join(wanted.nodes)}"] if wanted.nodes else []
    words += [f"expires={expires:%Y-%m-%dT%H:%M:%SZ}", f"sha256={access.hashed(token).hex()}"]
    with _locked(access_file):
        before = access_file.read_text(encoding="utf-8") if access_file.exists() else HEAD
        lines = before.splitlines()
        kept = [line for line in lines if line.split()[:2] != ["token", wanted.name]]
        if not replace and (len(kept) < len(lines) or path.exists()):
            raise UsageError(f"there is a token '{wanted.name}' already: take another name, or replace it with --renew")
        after = "\n".join([*kept, " ".join(words)]) + "\n"
        try:
            access.parse(after)
        except ValueError as error:
            raise UsageError(f"{access_file}: {error}") from None
        authority.write(path, f"{token}\n".encode(), 0o600)
        authority.write(access_file, after.encode(), 0o644)
    return Made(path, access_file, expires)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One at a time: two that add a line must not lose one."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"{file.parent}: {os.strerror(error.errno or 0)}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
