"""``roofwatch store serve``: open the database, listen, and leave in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.proto import pages
from roofwatch.proto.codec import MAX_SEGMENT_BYTES
from roofwatch.proto.service_manager import ALIVE, READY, STOPPING, notify, reloading, status
from roofwatch.proto.settings import unknown
from roofwatch.proto.terminal import Terminal
from roofwatch.proto.v1 import roofwatch_pb2
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import database, logs
from roofwatch.store.config import (
    HOT,
    PROGRAM,
    Keep,
    ServeConfig,
    Settings,
    format_address,
    is_loopback,
    parse_address,
    serve_config,
)
from roofwatch.store.control import ControlService
from roofwatch.store.gate import Gate
from roofwatch.store.health import Monitor
from roofwatch.store.hub import Hub
from roofwatch.store.metrics import Metrics, TimedWriter, expose
from roofwatch.store.queries import Queries, load
from roofwatch.store.query_service import QueryService
from roofwatch.store.secure import Trusted, watch
from roofwatch.store.service import IngestService
from roofwatch.store.unreadable import Unreadable
from roofwatch.store.whose import Whose

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # else a second store would share the port and get half of the agents
    ("grpc.max_receive_message_length", MAX_SEGMENT_BYTES + (1 << 20)),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),  # a node that vanished is noticed
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


_log = logging.getLogger(__name__)


class Store:
    """A running store: writer, queries and server over one database."""

    def __init__(
        self,
        db: database.Database,
        keep: Keep | None = None,
        *,
        reflection: bool = False,
        trusted: Trusted | None = None,
        journal: Path | None = None,
    ) -> None:
        load()
        self._database = db
        self.metrics = Metrics()
        self._writer = _writer(db, keep or Keep(), self.metrics, journal)
        self.hub = Hub()
        self._monitor = Monitor(db, self.metrics)
        self._trusted = trusted or Trusted(None, None)
        gate = Gate(self._trusted.access, self.metrics)
        self._server = grpc.aio.server(options=_OPTIONS, interceptors=(gate, Unreadable()))
        self._ingest = IngestService(self._writer, self.hub, self.metrics, gate)
        self._control = ControlService(self.hub, Whose(db))
        self._watching: asyncio.Task[None] | None = None
        rpc.add_ControlServicer_to_server(self._control, self._server)
        rpc.add_IngestServicer_to_server(self._ingest, self._server)
        rpc.add_QueryServicer_to_server(QueryService(Queries(db), self.metrics), self._server)
        self._monitor.add_to(self._server)
        if reflection:
            _reflect(self._server)

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the port.

        Raises:
            RoofwatchError: the address cannot be listened on.
        """
        try:
            _try_bind(host, port)
            bound = self._add_port(format_address(host, port))
        except (OSError, RuntimeError) as error:
            raise RoofwatchError(f"cannot listen on {format_address(host, port)}: {_why(error)}") from error
        await self._server.start()
        await self._monitor.start()
        self._look()
        self._watching = asyncio.create_task(watch(self._look))
        return int(bound)

    def _add_port(self, address: str) -> int:
        if self._trusted.certificates is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, self._trusted.certificates.credentials()))

    def _look(self) -> None:
        """Take what changed in files, and end the streams of who may no longer send. systemd hears that we live."""
        notify(ALIVE)
        changed = self._trusted.look()
        self.metrics.trusted(self._trusted.expires, access_file=self._trusted.good)
        self._ingest.recheck(time.time(), entries=changed.entries, certificates=changed.certificates)

    def reload(self, before: Settings, wanted: Settings, form: str) -> Settings:
        """Take what a running store can take of other settings; gives those that hold now.

        Raises:
            UsageError: they cannot be used, and nothing is changed.
        """
        changed = [name for name in PROGRAM.names() if getattr(wanted, name) != getattr(before, name)]
        now = replace(before, **{name: getattr(wanted, name) for name in changed if name in HOT})
        config = serve_config(now)
        kept = self._trusted.repoint(config.tls, config.access_file)
        cold = [name for name in changed if name not in HOT] + kept
        taken = [name for name in changed if name in HOT and name not in kept]
        now = replace(now, **{name: getattr(before, name) for name in kept})
        self._writer.keep(config.keep)
        logs.set_up(config.log_format, config.log_level)
        told = f"settings read again, changed: {', '.join(taken) or 'nothing'}"
        told += f"; a restart is needed for: {', '.join(cold)}" if cold else ""
        logs.say(told, "reloaded", form, changed=",".join(taken) or "nothing", needs_restart=",".join(cold) or None)
        return now

    async def stop(self, grace_s: float) -> None:
        """Say that it stops, read no more, acknowledge what was read, close."""
        until = time.monotonic() + grace_s
        if self._watching is not None:
            self._watching.cancel()
        await self._monitor.drain()
        self._control.drain()
        await self._ingest.drain(grace_s)  # before the server stops: until then it tells who asks that it drains
        await self._server.stop(max(0.0, until - time.monotonic()))
        await asyncio.get_running_loop().run_in_executor(None, self._writer.close)
        self._database.truncate_log()
        self._database.close()


def _writer(db: database.Database, keep: Keep, metrics: Metrics, journal: Path | None) -> Any:
    """What stores segments: in transactions, or by a journal and in batches."""
    if db.engine.dialect.name == database.CLICKHOUSE:
        from roofwatch.store.clickhouse import opening, serving  # noqa: PLC0415  # an extra

        if isinstance(db, opening.ClickHouse):
            return serving.served(db, keep, metrics, journal)
    if journal is not None:
        raise UsageError("--journal is of a store on ClickHouse: SQLite and Postgres acknowledge what they hold")
    return TimedWriter(db, keep, metrics)


def _reflect(server: grpc.aio.Server) -> None:
    """Let generic clients ask what this server speaks."""
    from grpc_reflection.v1alpha import reflection  # noqa: PLC0415 - only on request

    ours = roofwatch_pb2.DESCRIPTOR.services_by_name.values()
    names = (*(service.full_name for service in ours), "grpc.health.v1.Health", reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)


def _try_bind(host: str, port: int) -> None:
    """Fail as the operating system says it; gRPC would say only that it failed, on several lines of its own."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _why(error: Exception) -> str:
    if (isinstance(error, OSError) and error.errno == errno.EADDRINUSE) or isinstance(error, RuntimeError):
        return "the port is in use; stop what listens there, or choose another with --listen"
    if isinstance(error, socket.gaierror):
        return "the host is not known; give an address of this machine"
    return f"{os.strerror(error.errno or 0) if isinstance(error, OSError) else error}; choose another with --listen"


def serve(config: ServeConfig, settings: Settings | None = None, again: Callable[[], Settings] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; one line on stderr tells when and where it listens, and its database.

    ``again`` reads the settings anew: at SIGHUP a running store takes what it can of them.

    Raises:
        RoofwatchError: the database cannot be opened or the address not be listened on.
        UsageError: plain text beyond loopback was not asked for.
    """
    host, port = parse_address(config.listen)
    if not config.insecure:
        _check_reach(config, host)
    trusted = Trusted(config.tls, config.access_file)
    raise_file_limit()
    logs.set_up(config.log_format, config.log_level)
    for sentence in unknown(PROGRAM):
        _log.warning("%s", sentence)
    asyncio.run(_serve(config, host, port, trusted, _Reloading(settings, again)))


def _check_reach(config: ServeConfig, host: str) -> None:
    """Refuse what others could read or write without a key."""
    if not is_loopback(host):
        if config.tls is None:
            raise UsageError(
                f"{config.listen} can be reached from other machines in plain text: add --insecure to allow it, "
                "or give --tls-cert and --tls-key"
            )
        if config.tls.client_ca is None and config.access_file is None:
            raise UsageError(
                f"{config.listen} can be read and written by anybody on the network: give --access-file or "
                "--tls-client-ca, or add --insecure to allow it"
            )
    if config.metrics is not None and config.tls is None and not is_loopback(parse_address(config.metrics)[0]):
        raise UsageError(
            f"metrics on {config.metrics} can be read from other machines: add --insecure to allow it, "
            "or give --tls-cert and --tls-key"
        )


def _page(config: ServeConfig) -> pages.Files | None:
    """The files of /metrics beyond loopback; None: plain."""
    if config.tls is None or config.metrics is None or is_loopback(parse_address(config.metrics)[0]):
        return None
    return pages.Files(str(config.tls.cert), str(config.tls.key), str(config.tls.client_ca or ""))


@dataclass(slots=True)
class _Reloading:
    """SIGHUP: settings are read again."""

    settings: Settings | None
    again: Callable[[], Settings] | None

    def __call__(self, store: Store) -> None:
        notify(*reloading())
        try:
            if self.settings is not None and self.again is not None:
                self.settings = store.reload(self.settings, self.again(), self.settings.log_format)
        except RoofwatchError as error:
            _log.warning("settings not read again, those before stay: %s", error)
        notify(READY)


async def _serve(config: ServeConfig, host: str, port: int, trusted: Trusted, hung_up: _Reloading) -> None:
    opened = database.open(config.database)
    store = Store(opened, config.keep, reflection=config.reflection, trusted=trusted, journal=config.journal)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, stop)
    terminal = Terminal()
    loop.add_signal_handler(signal.SIGHUP, lambda: stop.set() if terminal.gone() else hung_up(store))
    shown = page = None
    try:
        if config.metrics is not None:
            page = _page(config)
            shown = expose(store.metrics, *parse_address(config.metrics), page)
        bound = await store.start(host, port)
        if config.port_file is not None:
            _write_port(config.port_file, bound)
        address, form = format_address(host, bound), config.log_format
        logs.say(f"listening on {address}, database {opened.url}", "listening", form, address=address, db=opened.url)
        if shown is not None:
            where = format_address(parse_address(config.metrics or "")[0], shown.server_port)
            url = f"http{'s' if page else ''}://{where}/metrics"
            logs.say(f"metrics on {url}", "metrics", form, url=url)
        notify(READY, status(f"listening on {format_address(host, bound)}, database {opened.url}"))
        await stop.wait()
        notify(STOPPING)
    finally:
        await store.stop(config.drain_s)
        if shown is not None:
            shown.shutdown()
            shown.server_close()


def _signalled(stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(1)  # asked twice: at once; what is acknowledged is on disk, the rest is sent again
    stop.set()


def raise_file_limit() -> None:
    """A stream is a file: take as many as the system lets, where the usual 1,024 are too few for a fleet."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _write_port(file: Path, port: int) -> None:
    """Whole or not at all: somebody is waiting for it."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_text(f"{port}\n")
        draft.replace(file)
    except OSError as error:
        raise RoofwatchError(f"cannot write the port to {file}: {os.strerror(error.errno or 0)}") from error
