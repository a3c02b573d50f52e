"""``/metrics`` for Prometheus: plain on loopback, over TLS beyond it, with files that may change while it serves."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from roofwatch.proto.trust import State, state_of

WITHIN_S = 10.0  # a handshake and a request, from first to last byte; each has a thread of its own
MOST = 32  # connections at once; one more is hung up on
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Files:
    """Certificate and key of the page; with ``client_ca`` who asks needs a certificate of that CA."""

    cert: str
    key: str
    client_ca: str = ""


class _Quiet(WSGIRequestHandler):
    """No line for a request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


class _Bounded(ThreadingWSGIServer):
    """So many connections for so long, so that who says little holds up nobody."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}  # until when

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection, where there is room."""
        with self._lock:
            if len(self._open) >= MOST:
                self.shutdown_request(request)
                return
            self._open[request] = time.monotonic() + WITHIN_S
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle one connection."""
        request.settimeout(WITHIN_S)
        try:
            self.talk(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def talk(self, request: Any, client_address: Any) -> None:
        """In plain text."""
        super().process_request_thread(request, client_address)

    def service_actions(self) -> None:
        """Twice a second: hang up on who takes too long. Its own thread notices and ends."""
        now = time.monotonic()
        with self._lock:
            late = [request for request, until in self._open.items() if until < now]
            for request in late:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up in the middle is no error of ours."""


class _Secured(_Bounded):
    """Shakes hands on the connection's own thread."""

    files: Files
    _context: ssl.SSLContext | None = None
    _state: State = ()

    def context(self) -> ssl.SSLContext:
        """By the newest files; where these are no pair, by the ones before."""
        now = state_of((self.files.cert, self.files.key, self.files.client_ca))
        if self._context is None or now != self._state:
            try:
                self._context = _context(self.files)
            except (OSError, ValueError) as error:
                if self._context is None:
                    raise
                _log.warning("new certificate of /metrics not taken, the old one stays: %s", error)
            self._state = now
        return self._context

    def talk(self, request: Any, client_address: Any) -> None:
        """Over TLS."""
        secured = self.context().wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        with self._lock:  # the socket below has no descriptor any more
            self._open[secured] = self._open.pop(request, time.monotonic() + WITHIN_S)
        try:
            secured.do_handshake()
            super().talk(secured, client_address)
        except (OSError, ValueError):  # ValueError: it was hung up on meanwhile
            self.shutdown_request(secured)
        finally:
            with self._lock:
                self._open.pop(secured, None)


def _context(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    if files.client_ca:
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def serve(registry: CollectorRegistry, host: str, port: int, files: Files | None = None) -> WSGIServer:
    """Serve on threads of its own, with ``files`` over TLS; ``server_port`` of the result is the port.

    Raises:
        OSError: the address cannot be listened on, or the files cannot be used.
    """
    base: type[_Bounded] = _Bounded if files is None else _Secured
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind: Any = type("Server", (base,), {"address_family": family})
    server: WSGIServer = make_server(host, port, make_wsgi_app(registry), kind, _Quiet)
    if files is not None and isinstance(server, _Secured):
        server.files = files
        try:
            server.context()
        except (OSError, ValueError):
            server.server_close()
            raise
    threading.Thread(target=server.serve_forever, daemon=True, name="roofwatch-metrics").start()
    return server
