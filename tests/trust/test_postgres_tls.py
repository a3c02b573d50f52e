"""Postgres over TLS by options of the URL. The wheel's server has no TLS, so a proxy of ours speaks it before it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "store"))

from postgres_server import NOBODY, PASSWORD, USER, running_postgres

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


@pytest.fixture
def short():
    """A folder that the server's user may enter, which none of pytest's is."""
    with tempfile.TemporaryDirectory(prefix="rw-") as folder:
        yield Path(folder)


def with_tls() -> Path:
    """The programs of a Postgres that speaks TLS itself: of $ROOFWATCH_TEST_POSTGRES, or the system's."""
    named = os.environ.get("ROOFWATCH_TEST_POSTGRES")
    folders = [Path(named)] if named else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        config = folder / "pg_config"
        if (folder / "postgres").exists() and config.exists():
            told = subprocess.run([config, "--configure"], capture_output=True, text=True, check=False).stdout
            if "openssl" in told:
                return folder
    pytest.skip("no Postgres with TLS here: the wheel's is built without; Debian's package postgresql has it")


def test_a_server_with_tls_of_its_own_and_a_clients_certificate(site, monkeypatch, short):
    """Certificates of ``roofwatch certs`` on both sides; the server takes nothing but TLS, and from who shows one."""
    monkeypatch.setenv("ROOFWATCH_TEST_POSTGRES", str(with_tls()))
    site.certify("server", "localhost", "--name", "postgres", "--renew")
    site.certify("client", USER, "--role", "read", "--renew")  # its common name is the user
    for name in ("postgres.pem", "postgres.key", "ca.pem"):
        shutil.copy(site.certs / name, short)
        (short / name).chmod(0o600)
        if os.geteuid() == 0:
            os.chown(short / name, NOBODY, NOBODY)
    short.chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("PGPORT", str(port))  # of the server, and of who asks it by its socket
    settings = (
        "listen_addresses=localhost", "ssl=on", f"ssl_cert_file={short}/postgres.pem",
        f"ssl_key_file={short}/postgres.key", f"ssl_ca_file={short}/ca.pem", f"hba_file={short}/hba",
    )  # fmt: skip
    (short / "hba").write_text(
        "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n"
    )
    with running_postgres(settings) as postgres:
        name = postgres.create()
        pair = f"&sslcert={site.certs}/{USER}.pem&sslkey={site.certs}/{USER}.key"
        at = f"postgresql+psycopg://{USER}:{PASSWORD}@localhost:{port}/{name}"
        ours = f"{at}?sslmode=verify-full&sslrootcert={site.certs}/ca.pem"
        opened = database.open(ours + pair)
        with opened.read() as connection:
            told = connection.exec_driver_sql("SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()").one()
            assert (told[0], told[1]) == (True, "TLSv1.3")
            assert connection.exec_driver_sql("SELECT count(*) FROM windows").scalar() == 0
        opened.close()
        with pytest.raises(RoofwatchError, match="requires a valid client certificate"):
            database.open(ours)
        with pytest.raises(RoofwatchError, match="no pg_hba"):
            database.open(f"{at}?sslmode=disable")
