"""``/metrics`` for Prometheus: plain on loopback, over TLS beyond it, with files that may change while it serves."""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from roofwatch.proto.trust import State, state_of

WITHIN_S = 10.0  # a handshake and a request; each has a thread of its own
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


class _Secured(ThreadingWSGIServer):
    """Shakes hands on the connection's own thread, so that who says nothing holds up nobody."""

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

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle one connection."""
        request.settimeout(WITHIN_S)
        try:
            secured = self.context().wrap_socket(request, server_side=True)
        except OSError:
            self.shutdown_request(request)
            return
        super().process_request_thread(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up in the middle is no error of ours."""


def _context(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    if files.client_ca:
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def serve(registry: CollectorRegistry, host: str, port: int, files: Files) -> WSGIServer:
    """Serve over TLS on threads of its own; ``server_port`` of the result is the port.

    Raises:
        OSError: the address cannot be listened on, or the files cannot be used.
    """

    class Server(_Secured):
        address_family = 10 if ":" in host else 2  # AF_INET6, AF_INET

    server = make_server(host, port, make_wsgi_app(registry), Server, _Quiet)
    server.files = files
    try:
        server.context()
    except (OSError, ValueError):
        server.server_close()
        raise
    threading.Thread(target=server.serve_forever, daemon=True, name="roofwatch-metrics").start()
    return server
