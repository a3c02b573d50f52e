"""Settings of the store. Light: the command line imports this for its defaults."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from roofwatch.model.errors import UsageError
from roofwatch.proto.lines import FORMATS, LEVELS
from roofwatch.proto.settings import Given, Program, Settled, flag, one_of, setting, settle

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
        if self.raw_s < HOUR_S:
            raise UsageError(f"--keep-raw {shown(self.raw_s)} is too short: keep windows' kernels at least 1h")
        named = [("--keep-raw", self.raw_s), ("--keep-hourly", self.hourly_s), ("--keep-daily", self.daily_s)]
        for (finer, short), (coarser, long) in pairwise(named):
            if short > long:
                raise UsageError(
                    f"{finer} {shown(short)} is longer than {coarser} {shown(long)}: give {coarser} as long, or "
                    f"{finer} shorter, since what is coarser must not go first"
                )


@dataclass(frozen=True, slots=True)
class Tls:
    """The store's certificate and key; with ``client_ca`` every client needs a certificate of that CA."""

    cert: Path
    key: Path
    client_ca: Path | None = None


def seconds(text: str) -> int:
    """A length of time like 48h.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\d{1,6})(min|m|h|d|w)", text.strip())
    if found is None:
        raise ValueError("must be a length of time like 48h, 30d or 2w")
    return int(found[1]) * {"min": 60, "m": 60, "h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S}[found[2]]


def shown(length_s: int) -> str:
    """Whole minutes, in seconds, as ``seconds`` reads them: 90m, 5h, 30d."""
    unit, size = ("d", DAY_S) if not length_s % DAY_S else ("h", HOUR_S) if not length_s % HOUR_S else ("m", 60)
    return f"{length_s // size}{unit}"


def _address(text: str) -> str:
    try:
        parse_address(text)
    except UsageError:
        raise ValueError("must be HOST:PORT") from None
    return text


def _address_or_none(text: str) -> str:
    return _address(text) if text else ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of ``roofwatch store serve``, each declared once; "" is none."""

    listen: str = setting(
        DEFAULT_ADDRESS, _address, f"where to listen; port 0 is any; default: {DEFAULT_ADDRESS}", metavar="HOST:PORT"
    )
    db: str = setting(
        "", str, "the database; it is made or upgraded; default: an SQLite file in the user's state folder",
        metavar="URL", env="ROOFWATCH_DB",
    )  # fmt: skip
    keep_raw: int = setting(
        48 * HOUR_S, seconds, "how long to keep the kernels of every window; default: 48h", metavar="TIME"
    )
    keep_hourly: int = setting(
        30 * DAY_S, seconds, "how long to keep windows without their kernels, and the sums of hours; default: 30d",
        metavar="TIME",
    )  # fmt: skip
    keep_daily: int = setting(400 * DAY_S, seconds, "how long to keep the sums of days; default: 400d", metavar="TIME")
    journal: str = setting(
        "", str, "on ClickHouse: where what it does not have yet is kept; default: beside the user's own database",
        metavar="FILE",
    )  # fmt: skip
    tls_cert: str = setting("", str, "the store's certificate: TLS, and nothing else", metavar="FILE")
    tls_key: str = setting("", str, "its key", metavar="FILE")
    tls_client_ca: str = setting("", str, "clients need a certificate of this CA", metavar="FILE")
    access_file: str = setting("", str, "who may do what: see 'roofwatch certs token'", metavar="FILE")
    insecure: bool = setting(False, flag, "allow plain text, and anybody, beyond loopback")
    metrics: str = setting(
        "", _address_or_none, "serve /metrics for Prometheus there; port 0 is any", metavar="HOST:PORT"
    )
    reflection: bool = setting(False, flag, "tell gRPC clients what the server speaks")
    port_file: str = setting("", str, "write the port here once it listens", metavar="FILE")
    log_format: str = setting("text", one_of(*FORMATS), "lines of the log: text or json", metavar="FORMAT")
    log_level: str = setting("warning", one_of(*LEVELS), "from which level on: info, warning or error", metavar="LEVEL")


PROGRAM = Program("store", "ROOFWATCH_STORE_", Settings)
# What a running store takes when it is told to read its settings again (SIGHUP); the rest needs a restart.
HOT = frozenset(
    {
        "keep_raw",
        "keep_hourly",
        "keep_daily",
        "tls_cert",
        "tls_key",
        "tls_client_ca",
        "access_file",
        "log_format",
        "log_level",
    }
)


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
    log_format: str = "text"
    log_level: str = "warning"


def settled(given: Given, environ: Mapping[str, str] = os.environ) -> tuple[Settings, Settled]:
    """The store's settings from flags (None where absent), an environment and a file, and where each came from.

    Raises:
        UsageError: a value is not what its setting takes.
    """
    found = settle(PROGRAM, given, environ)
    return Settings(**found.values), found


def serve_config(chosen: Settings) -> ServeConfig:
    """What is served by these settings.

    Raises:
        UsageError: they do not fit together.
    """
    if bool(chosen.tls_cert) != bool(chosen.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together: give both, or none")
    if chosen.tls_client_ca and not chosen.tls_cert:
        raise UsageError("--tls-client-ca needs --tls-cert and --tls-key: without TLS nobody shows a certificate")
    tls = Tls(Path(chosen.tls_cert), Path(chosen.tls_key), _path(chosen.tls_client_ca)) if chosen.tls_cert else None
    return ServeConfig(
        listen=chosen.listen, database=chosen.db or None, insecure=chosen.insecure, port_file=_path(chosen.port_file),
        keep=Keep(chosen.keep_raw, chosen.keep_hourly, chosen.keep_daily), metrics=chosen.metrics or None,
        reflection=chosen.reflection, tls=tls, access_file=_path(chosen.access_file), journal=_path(chosen.journal),
        log_format=chosen.log_format, log_level=chosen.log_level,
    )  # fmt: skip


def _path(text: str) -> Path | None:
    return Path(text) if text else None
