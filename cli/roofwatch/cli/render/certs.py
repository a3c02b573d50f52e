"""Certificates for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from roofwatch.cli.render.text import clean, cut_middle
from roofwatch.proto.certificates import Certificate

WIDTH = 66  # of a value, beside its name


def row(file: Path, found: Certificate, now_unix_s: float) -> dict[str, Any]:
    """One certificate as JSON."""
    return {
        "file": str(file),
        "name": found.name,
        "issuer": found.issuer,
        "ca": found.is_ca,
        "hosts": list(found.hosts),
        "roles": sorted(found.roles),
        "nodes": sorted(found.nodes),
        "begins_unix_ns": int(found.begins_unix_s) * 1_000_000_000,
        "expires_unix_ns": int(found.expires_unix_s) * 1_000_000_000,
        "expires": found.expires,
        "days_left": found.days_left(now_unix_s),
        "sha256": found.fingerprint,
    }


def lines(rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]] = ()) -> Iterator[str]:
    """A block each; then what else is there."""
    for number, one in enumerate(rows):
        if number:
            yield ""
        kind = "CA" if one["ca"] else f"issued by {one['issuer']}"
        yield clean(f"{one['file']}: {one['name']}, {kind}")
        left = one["days_left"]
        good = f"{one['expires']}, {left} days left" if left >= 0 else f"{one['expires']}: EXPIRED"
        listed = (
            ("good until", good),
            ("for hosts", ", ".join(one["hosts"])),
            ("roles", ", ".join(one["roles"])),
            ("nodes", ", ".join(one["nodes"])),
            ("sha256", one["sha256"]),
        )
        yield from (f"  {name:<11} {clean(cut_middle(value, WIDTH))}" for name, value in listed if value)
    if rows and others:
        yield ""
    for other in others:
        yield from (clean(line) for line in f"{other['file']}: {other['what']}".split("\n"))
