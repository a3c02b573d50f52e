"""A place with a CA of its own: files by ``roofwatch certs``, real stores and agents in processes of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import in_process

from roofwatch.cli import authority
from roofwatch.proto import channel
from roofwatch.proto.trust import Trust

NODE = socket.gethostname()


def until(condition: Callable[[], Any], what: str, within: float = 15.0) -> Any:
    """Wait for a condition, fail with what was waited for."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {within} s: {what}")


def fetched(url: str) -> str:
    """A page of this machine."""
    with urllib.request.urlopen(url, timeout=10) as page:  # noqa: S310 - a URL of the test's own
        text: str = page.read().decode()
    return text


@dataclass
class Store:
    """A real store."""

    process: subprocess.Popen[str]
    log: Path
    port: int
    page: str  # URL of /metrics

    def metrics(self) -> str:
        """What /metrics says."""
        return fetched(self.page)

    @property
    def address(self) -> str:
        """HOST:PORT by a name that its certificate holds."""
        return f"localhost:{self.port}"


@dataclass
class Site:
    """A folder, the CA in it, and what was started in it."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def certs(self) -> Path:
        """The folder of the CA."""
        return self.folder / "certs"

    @property
    def access(self) -> Path:
        """The access file."""
        return self.certs / "access"

    def certify(self, *arguments: object, code: int = 0) -> str:
        """``roofwatch certs …`` in this place; what it wrote."""
        done = in_process.call("certs", *arguments, "--folder", self.certs, env=in_process.environment(self.folder))
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def past(self, wanted: authority.Wanted) -> authority.Made:
        """A certificate that expired an hour ago: made when it was good."""
        return authority.issue(self.certs, wanted, 1, replace=True, now=datetime.now(UTC) - timedelta(hours=25))

    def trust(self, cert: str = "", bearer: str = "") -> Trust:
        """What a client of this place shows."""
        pair = (str(self.certs / f"{cert}.pem"), str(self.certs / f"{cert}.key")) if cert else ("", "")
        return Trust(str(self.certs / "ca.pem"), *pair, str(self.certs / f"{bearer}.token") if bearer else "")

    def flags(self, cert: str = "", bearer: str = "") -> list[str]:
        """The same, as typed."""
        trust = self.trust(cert, bearer)
        given = {"ca": trust.ca, "cert": trust.cert, "key": trust.key}
        flags = [word for name, path in given.items() if path for word in (f"--tls-{name}", path)]
        return [*flags, *(["--token-file", trust.token_file] if bearer else [])]

    def channel(self, store: Store, cert: str = "", bearer: str = "") -> Any:
        """A channel of a client that is no command."""
        return channel.open_sync(store.address, self.trust(cert, bearer).load(), ())

    def ask(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """``roofwatch …`` as a user of this place."""
        return in_process.call(*arguments, env=in_process.environment(self.folder))

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """As ``ask``, in a process of its own: gRPC of an event loop may hang beside that of others."""
        return subprocess.run(
            [sys.executable, "-m", "roofwatch.cli.main", *map(str, arguments)],
            check=False, capture_output=True, text=True, timeout=60, cwd=self.folder,
            env=in_process.environment(self.folder),
        )  # fmt: skip

    def program(self, log: Path, *command: str) -> subprocess.Popen[str]:
        """Start a program, in a clean environment; it ends with the place."""
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, *command], stderr=file, stdout=file, text=True, cwd=self.folder,
                env=in_process.environment(self.folder) | {"PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self.started.append(process)
        return process

    def store(self, name: str, *arguments: str, tls: bool = True) -> Store:
        """Start a store and wait until it listens."""
        port_file, log = self.folder / f"{name}.port", self.folder / f"{name}.log"
        secured = ["--tls-cert", f"{self.certs}/store.pem", "--tls-key", f"{self.certs}/store.key"] if tls else []
        process = self.program(
            log, "-m", "roofwatch.cli.main", "store", "serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
            "--db", f"sqlite:///{self.folder}/{name}.db", "--port-file", str(port_file), *secured, *arguments,
        )  # fmt: skip
        until(lambda: process.poll() is not None or "/metrics" in log.read_text(), "the store listens", 30)
        assert process.poll() is None, log.read_text()
        page = next(line for line in log.read_text().splitlines() if line.startswith("metrics on ")).split()[-1]
        return Store(process, log, int(port_file.read_text()), page)

    def stop(self) -> None:
        """End all that was started."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)

    def remove_token(self, name: str) -> None:
        """Take a token's line out of the access file, as an editor would: a new file in its place."""
        lines = [line for line in self.access.read_text().splitlines() if not line.startswith(f"token {name} ")]
        draft = self.folder / "access.new"
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(self.access)


def refusal(call: Callable[[], Any]) -> tuple[str, str]:
    """The status and details of a call: OK and "" where it worked."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""
