"""What lies in a folder of ``roofwatch certs``: certificates, and of keys, tokens and the access file what they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roofwatch.cli.tokens import PREFIX
from roofwatch.model.errors import UsageError
from roofwatch.proto import certificates
from roofwatch.proto.certificates import Certificate

MOST_BYTES = 1 << 20
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_RULE = re.compile(r"(token|certificate|refuse)\s+\S")  # of an access file
_HASH = re.compile(r"\s*sha256=\S+")


@dataclass(frozen=True, slots=True)
class Shown:
    """A file: its certificates, or what else it is."""

    file: Path
    certificates: tuple[Certificate, ...] = ()
    other: str | None = None


def shown(paths: Iterable[Path]) -> Iterator[Shown]:
    """What each file is; of a folder those that are of use here.

    Raises:
        UsageError: one cannot be read, or one that was named is nothing that ``roofwatch certs`` makes.
    """
    for path in paths:
        if path.is_dir():
            found = [each for file in sorted(path.iterdir()) if file.is_file() and (each := _file(file))]
            if not found:
                raise UsageError(f"{path} holds no certificate, key, token or access file")
            yield from found
        elif one := _file(path):
            yield one
        else:
            raise UsageError(f"{path}: no certificate in it, and no key, token or access file; a PEM file is wanted")


def _file(path: Path) -> Shown | None:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if b"-----BEGIN CERTIFICATE-----" in data:
        try:
            return Shown(path, tuple(certificates.read(data)))
        except ValueError:
            raise UsageError(f"{path}: a certificate in it cannot be read") from None
    if _KEY.search(data):
        return Shown(path, other="a private key")
    text = data.decode("utf-8", errors="replace")
    if text.startswith(PREFIX) and len(text.split()) == 1:
        return Shown(path, other="a token; what it may do stands in the store's access file")
    rules = [_HASH.sub("", line.strip()) for line in text.splitlines() if _RULE.match(line.strip())]
    return Shown(path, other="\n  ".join(["who may do what", *rules])) if rules else None
