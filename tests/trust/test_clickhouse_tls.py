"""ClickHouse over TLS by options of the URL: up to the password, for the engine of the tests speaks no TLS."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

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
