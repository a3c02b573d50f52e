"""Services of a compose file as processes of this machine: their commands, with paths and addresses rewritten."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy_files import ROOT

ENTRYPOINT = ROOT / "deploy" / "image" / "entrypoint.sh"
PORTS = ("5432", "8123", "7431", "9431", "9432", "9090")
_ADDRESS = re.compile(rf"\b(?:[a-z][\w-]*|0\.0\.0\.0|127\.0\.0\.1):({'|'.join(PORTS)})\b")


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Machine:
    """Where the containers' paths and addresses are here."""

    services: Mapping[str, Any]
    folder: Path
    secrets: Path
    ports: dict[str, int] = field(default_factory=lambda: {port: free_port() for port in PORTS})
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """A word of a command or an environment, or a file's text, for this machine."""
        for there, path in (
            ("/var/lib/roofwatch", self.folder / "var"),
            ("/run/roofwatch", self.folder / "run"),
            ("/run/secrets", self.secrets),
            ("/usr/local/lib/roofwatch", ROOT / "deploy" / "image"),
            ("/etc/prometheus", self.folder / "prometheus"),
            ("/prometheus", self.folder / "tsdb"),
        ):
            text = re.sub(rf"(?<![\w/.-]){there}\b", str(path), text)
        return _ADDRESS.sub(lambda match: f"127.0.0.1:{self.ports[match[1]]}", text)

    def environment(self, name: str) -> dict[str, str]:
        """A service's, over what an image has; nothing of this machine's own."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        image = {"PATH": path, "HOME": str(self.folder / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
        image["ROOFWATCH_SOCKET"] = self.here("/run/roofwatch/agent.sock")
        given = self.services[name].get("environment") or {}
        return image | {key: self.here(str(value)) for key, value in given.items()}

    def command(self, name: str, words: list[str]) -> list[str]:
        """What the container of a service runs; ours have an entrypoint."""
        ours = [str(ENTRYPOINT)] if "build" in self.services[name] else []
        return [*ours, *(self.here(word) for word in words)]

    def start(self, name: str) -> None:
        """Start a service, its output into a file."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                self.command(name, self.services[name]["command"]), env=self.environment(name), stdout=log, stderr=log,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def healthy(self, name: str, check: list[str] | None = None) -> str:
        """Run a service's health check once, or that of its image; "" where it is well."""
        test = check or self.services[name]["healthcheck"]["test"][1:]
        words = [self.here(word) for word in test]
        words = [str(self.ports.get(word, word)) for word in words]  # a port alone
        done = subprocess.run(words, env=self.environment(name), capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr or f"exit code {done.returncode}"

    def log(self, name: str) -> str:
        """What a service wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self, name: str) -> int:
        """End a service as `docker stop` does; its exit code."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=15)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def until(what: Callable[[], Any], seconds: float, why: Callable[[], str]) -> Any:
    """Wait until something is there, and give it."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.2)
    return found
