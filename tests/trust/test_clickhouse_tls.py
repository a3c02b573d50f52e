"""ClickHouse over TLS by options of the URL. The engine of the tests speaks no TLS, so a proxy of ours does."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "store"))

from clickhouse_server import running_clickhouse

from roofwatch.cli import authority
from roofwatch.model.errors import RoofwatchError
from roofwatch.store import database

ANSWER = b"HTTP/1.1 500 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def test_the_password_goes_to_the_certificate_of_the_ca_alone(site, tmp_path):
    """secure, verify and ca_cert: a server of another CA hears nothing, one of ours hears the question."""
    pytest.importorskip("clickhouse_connect", reason="clickhouse-connect is not installed: roofwatch[clickhouse]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.certs / "store.pem", site.certs / "store.key")
    authority.make_ca(tmp_path, "another", 3)
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(sock, server_side=True) as secured:
                    heard.append(secured.recv(4096))
                    secured.sendall(ANSWER)
            except OSError:
                sock.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    at = f"clickhousedb://user:secret@localhost:{listener.getsockname()[1]}/db?secure=true&verify=true&ca_cert="
    try:
        with pytest.raises(RoofwatchError):
            database.open(f"{at}{tmp_path}/ca.pem")
        assert heard == []
        with pytest.raises(RoofwatchError, match="500") as error:
            database.open(f"{at}{site.certs}/ca.pem")
        assert heard
        assert heard[0].startswith(b"POST /")
        assert "secret" not in str(error.value)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


@pytest.mark.timeout(300)  # the engine's start alone may take three minutes
def test_a_store_on_clickhouse_over_tls(site, tmp_path):
    """Tables are made and read through a proxy that speaks TLS before the engine, and nothing goes beside it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.certs / "store.pem", site.certs / "store.key")
    with running_clickhouse() as engine:
        listener = socket.create_server(("127.0.0.1", 0))
        secured: list[str] = []

        def serve(sock: socket.socket) -> None:
            with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as outer:
                secured.append(outer.version() or "")
                with socket.create_connection(("127.0.0.1", engine.port)) as inner:
                    back = threading.Thread(target=_copy, args=(inner, outer), daemon=True)
                    back.start()
                    _copy(outer, inner)
                    back.join()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        at = f"clickhousedb://default@localhost:{listener.getsockname()[1]}/{engine.create()}?secure=true&verify=true"
        try:
            opened = database.open(f"{at}&ca_cert={site.certs}/ca.pem")
            with opened.read() as connection:
                assert connection.exec_driver_sql("SELECT count(*) FROM windows").scalar() == 0
            opened.close()
            assert set(secured) == {"TLSv1.3"}
            authority.make_ca(tmp_path, "another", 3)
            before = len(secured)
            with pytest.raises(RoofwatchError, match=r"(?i)certificate"):
                database.open(f"{at}&ca_cert={tmp_path}/ca.pem")
            assert len(secured) == before
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(5)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
