"""Postgres over TLS by options of the URL. The wheel's server has no TLS, so a proxy of ours speaks it before it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import sys
import threading
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "store"))

from postgres_server import PASSWORD, USER, running_postgres

from roofwatch.model.errors import RoofwatchError
from roofwatch.store import database

SSL_REQUEST = struct.pack("!II", 8, 80_877_103)  # "Message Formats" in Postgres' manual


def _copy(source, sink) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Answers Postgres' question for TLS and hands on what it hears to the server's Unix socket."""

    def __init__(self, server: str, cert: Path, key: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self._server, self.secured, self.plain = server, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if sock.recv(8) != SSL_REQUEST:
                self.plain += 1
                sock.close()
                return
            sock.sendall(b"S")
            secured = self.context.wrap_socket(sock, server_side=True)
        except OSError:
            sock.close()
            return
        self.secured += 1
        with secured, socket.socket(socket.AF_UNIX) as inner:
            inner.connect(self._server)
            back = threading.Thread(target=_copy, args=(inner, secured), daemon=True)
            back.start()
            _copy(secured, inner)
            back.join()

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()


def test_a_store_on_postgres_believes_only_the_certificate_that_it_should(site):
    """sslmode=verify-full: tables are made and read over TLS; another CA and another name end before the password."""
    with running_postgres() as postgres:
        name = postgres.create()
        proxy = Proxy(str(postgres.folder / ".s.PGSQL.5432"), site.certs / "store.pem", site.certs / "store.key")

        def url(host: str, ca: Path) -> str:
            at = f"postgresql+psycopg://{USER}:{PASSWORD}@{host}:{proxy.port}/{name}"
            return f"{at}?sslmode=verify-full&sslrootcert={ca}"

        try:
            opened = database.open(url("localhost", site.certs / "ca.pem"))
            with opened.read() as connection:
                assert connection.exec_driver_sql("SELECT count(*) FROM windows").scalar() == 0
            opened.close()
            assert proxy.secured >= 1
            other = site.folder / "another-ca"
            if not other.exists():
                from roofwatch.cli import authority  # noqa: PLC0415 - one use

                authority.make_ca(other, "another", 5)
            before = proxy.secured
            with pytest.raises(RoofwatchError, match="certificate verify failed"):
                database.open(url("localhost", other / "ca.pem"))
            site.certify("server", "db.example", "--name", "db", "--renew")
            proxy.context.load_cert_chain(site.certs / "db.pem", site.certs / "db.key")
            with pytest.raises(RoofwatchError, match="does not match host name"):
                database.open(url("localhost", site.certs / "ca.pem"))
            assert proxy.plain == 0
            assert before >= 1
        finally:
            proxy.close()
