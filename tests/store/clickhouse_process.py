"""A ClickHouse in a process: chdb, which is the engine itself, behind ClickHouse's HTTP protocol.

Run as a program: FOLDER PORT_FILE [PORT]. The engine keeps its tables in FOLDER, so that it can be killed and started.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb

# What HTTP itself is told; the engine would refuse them.
TRANSPORT = {
    "query", "database", "buffer_size", "session_id", "session_timeout", "session_check", "query_id", "quota_key",
    "compress", "decompress", "wait_end_of_query", "client_protocol_version", "role", "enable_http_compression",
    "send_progress_in_http_headers", "http_headers_progress_interval_ms",
    "cancel_http_readonly_queries_on_client_close",
}  # fmt: skip
TOKEN = "insert_deduplication_token"  # noqa: S105 - a name


class Engine:
    """One engine, and handles for each set of settings: questions run beside each other, as on a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.free: defaultdict[Any, list[Any]] = defaultdict(list)

    def run(self, sql: bytes, data: bytes, given: dict[str, str]) -> bytes:
        """The answer of a statement; raises what the engine says."""
        settings = {name: value for name, value in given.items() if name not in TRANSPORT}
        token = settings.pop(TOKEN, "")
        database = given.get("database", "")
        key = (database, frozenset(settings.items()))
        with self.lock:
            handle = self.free[key].pop() if self.free[key] else self._handle(database, settings)
        try:
            return self._query(handle, sql, data, token)
        finally:
            with self.lock:
                self.free[key].append(handle)

    def _handle(self, database: str, settings: dict[str, str]) -> Any:
        handle = chdb.connect(str(self.folder / "engine"))
        if database:
            handle.query(f"USE `{database}`")
        for name, value in settings.items():
            handle.query(f"SET {name}={_quoted(value)}")
        return handle

    def _query(self, handle: Any, sql: bytes, data: bytes, token: str) -> bytes:
        inserted = re.match(rb"(?is)\s*insert\s.*?\bformat\s+native\b", sql)
        if inserted is None:
            found = handle.query(sql.decode(), "TabSeparated")
            return found.bytes() or b""
        data = data or sql[inserted.end() :].lstrip(b" ").removeprefix(b"\n")
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:
            file.write(data)
            file.flush()
            head = re.sub(rb"(?i)\bformat\s+native\b", b"", inserted.group()).decode()
            told = f" SETTINGS {TOKEN}={_quoted(token)}" if token else ""
            handle.query(f"{head} FROM INFILE '{file.name}'{told} FORMAT Native")
        return b""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Handler(StreamRequestHandler):
    """ClickHouse's HTTP protocol, as far as clients need it.

    Lines are read as they are: Python's own HTTP server takes longer for a request than the engine for ``SELECT 1``,
    and what is measured here is to be like ClickHouse, whose server does not.
    """

    disable_nagle_algorithm = True
    wbufsize = -1
    engine: Engine

    def handle(self) -> None:
        """One request after the other."""
        with suppress(ConnectionError):
            while self._one():
                pass

    def _one(self) -> bool:
        """A ping, or a statement in the body, or in the address with its data in the body."""
        line = self.rfile.readline().split()
        if not line:
            return False
        headers = {}
        while colon := (header := self.rfile.readline()).find(b":") + 1:
            headers[header[: colon - 1].lower()] = header[colon:].strip().lower()
        body = self._body(headers)
        if line[0] == b"GET":
            self._answer(b"200 OK", b"Ok.\n")
        else:
            given = parsed(line[1])
            sql, data = (given["query"].encode(), body) if "query" in given else (body, b"")
            try:
                self._answer(b"200 OK", self.engine.run(sql, data, given))
            except Exception as error:  # noqa: BLE001 - whatever it says, the client is to hear it
                code = re.search(r"Code: (\d+)", str(error))
                told = b"X-ClickHouse-Exception-Code: %s\r\n" % (code[1] if code else "1002").encode()
                self._answer(b"500 Internal Server Error", str(error).encode(), told)
        return headers.get(b"connection") != b"close"

    def _body(self, headers: dict[bytes, bytes]) -> bytes:
        if headers.get(b"transfer-encoding") != b"chunked":
            return self.rfile.read(int(headers.get(b"content-length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: bytes, body: bytes, more: bytes = b"") -> None:
        head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nX-ClickHouse-Timezone: UTC\r\n%s\r\n"
        self.wfile.write(head % (status, len(body), more))
        self.wfile.write(body)
        self.wfile.flush()


class Server(ThreadingTCPServer):
    """A thread a connection."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64


@lru_cache(maxsize=1000)
def parsed(address: bytes) -> dict[str, str]:
    """What an address says; that of most statements says the same."""
    return dict(parse_qsl(urlsplit(address.decode()).query, keep_blank_values=True))


def main() -> None:
    """Serve until killed."""
    folder, port_file, port = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    os.environ.setdefault("TZ", "UTC")
    Handler.engine = Engine(folder)
    Handler.engine.run(b"SELECT 1", b"", {})
    server = Server(("127.0.0.1", port), Handler)
    draft = port_file.with_suffix(".draft")
    draft.write_text(str(server.server_address[1]))
    draft.replace(port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
