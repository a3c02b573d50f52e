"""Settings of the store. Light: the command line imports this for its defaults."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from roofwatch.model.errors import UsageError

DEFAULT_ADDRESS = "127.0.0.1:7431"


def default_url() -> str:
    """The SQLite file in the user's state folder ($XDG_STATE_HOME, else ~/.local/state)."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return f"sqlite:///{home}/roofwatch/store.db"


def default_journal(url: str) -> Path:
    """The journal of a store on a ClickHouse database, beside the user's own SQLite file; one for each database."""
    own = hashlib.blake2b(url.encode(), digest_size=6).hexdigest()
    return Path(default_url().removeprefix("sqlite:///")).with_name(f"journal-{own}.db")


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT, [IPV6]:PORT → (host, port).

    Raises:
        UsageError: there is no port, or it is no port number.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise UsageError(f"'{text}' is not an address: give HOST:PORT, e.g. {DEFAULT_ADDRESS}")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """(host, port) → HOST:PORT, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


HOUR_S, DAY_S = 3600, 86_400


@dataclass(frozen=True, slots=True)
class Keep:
    """Seconds since its end that an hour's kernels, an hour's sums with its windows, and a day's sums are kept."""

    raw_s: int = 48 * HOUR_S
    hourly_s: int = 30 * DAY_S
    daily_s: int = 400 * DAY_S

    def __post_init__(self) -> None:
        """Refuse what would drop the coarser before the finer.

        Raises:
            UsageError: it does.
        """
        if not HOUR_S <= self.raw_s <= self.hourly_s <= self.daily_s:
            raise UsageError(
                "keep windows' kernels at least an hour, sums of hours as long as these, those of days as long as hours"
            )


@dataclass(frozen=True, slots=True)
class Tls:
    """The store's certificate and key; with ``client_ca`` every client needs a certificate of that CA."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What ``roofwatch store serve`` was asked for. Port 0 takes a free one; ``port_file`` then tells which."""

    listen: str = DEFAULT_ADDRESS
    database: str | None = None  # URL; None: default_url()
    insecure: bool = False  # plain text beyond loopback
    port_file: Path | None = None
    keep: Keep = Keep()
    metrics: str | None = None  # HOST:PORT of /metrics
    reflection: bool = False
    tls: Tls | None = None  # None: plain text
    access_file: Path | None = None  # who may do what; None: by certificate, or anybody
    journal: Path | None = None  # of a store on ClickHouse; None: default_journal()
    drain_s: float = 5.0  # how long open streams may take to finish after SIGTERM
