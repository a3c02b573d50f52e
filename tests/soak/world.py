"""The whole site: Postgres, a store, two agents each behind a network and a disk of its own, and places for jobs."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "store"))

import isolate
import leaks
from ledger import Held, Spooled
from network import Line, Network
from parts import PROGRAM, Part, family, free_port, signal_all
from postgres_server import NOBODY, Postgres, binaries
from slots import LENGTHS_S, Slots
from stepped_clock import Clock

from roofwatch.store import database
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries

POSTGRES_ROOM, SPOOL_ROOM = "400m", "24m"
DATABASE = "soak"
AFTER_S = 15.0  # so long what went wrong may show
READY = b"database system is ready to accept connections"  # says Postgres
FAR = "4000d"  # clocks are stepped: what is of another day must not be old


@dataclass
class Disk:
    """A small file system that can be filled; without root a folder that cannot."""

    folder: Path
    small: bool
    bad_until: float = 0.0  # what failed until then may have failed for it

    @property
    def full(self) -> bool:
        """Whether it is, by our doing."""
        return (self.folder / "ballast").exists()

    def fill(self) -> None:
        """All that is left; what others gave back meanwhile, too."""
        if not self.small:
            return
        with contextlib.suppress(OSError), (self.folder / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(65_536))
        with contextlib.suppress(OSError), (self.folder / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(512))

    def free(self) -> None:
        """Again."""
        if self.full:
            self.bad_until = time.monotonic() + AFTER_S
        (self.folder / "ballast").unlink(missing_ok=True)

    def bad(self) -> bool:
        """Whether it is full, or was a moment ago."""
        return self.full or time.monotonic() < self.bad_until


@dataclass
class Server:
    """Postgres, which is started again where it went down."""

    postgres: Postgres
    disk: Disk
    down_until: float = 0.0
    started: int = 0
    deaths: int = 0
    bad_until: float = 0.0
    starting_from: int | None = None  # of its log, since it was launched and until it is ready

    def look(self) -> None:
        """As a supervisor does."""
        process = self.postgres.process
        if self.starting_from is not None:
            self._look_whether_ready(self.starting_from)
        if time.monotonic() < self.down_until or (process is not None and process.poll() is None):
            return
        self.deaths += process is not None
        self.starting_from = self._log().stat().st_size
        self.postgres.launch()
        self.started += 1

    def _log(self) -> Path:
        return self.postgres.folder / "log"

    def _look_whether_ready(self, log_from: int) -> None:
        """By its log: a question would wait where it is stopped. On a busy machine recovery takes a while."""
        self.bad_until = time.monotonic() + AFTER_S
        if READY in self._log().read_bytes()[log_from:]:
            self.starting_from = None

    def kill(self, until: float) -> None:
        """All of it."""
        self.down_until = until
        if self.postgres.process is not None and self.postgres.process.poll() is None:
            self.postgres.kill()

    def pids(self) -> list[int]:
        """Of all its processes."""
        process = self.postgres.process
        return family(process.pid) if process is not None and process.poll() is None else []


@dataclass
class Site:
    """Everything; made by ``build``."""

    folder: Path
    isolated: bool
    library: str
    draw: random.Random
    lengths: tuple[float, ...] = LENGTHS_S
    parts: dict[str, Part] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    clocks: dict[str, Clock] = field(default_factory=dict)
    spools: dict[str, Spooled] = field(default_factory=dict)
    network: Network = field(default_factory=Network)
    stopped_until: float = 0.0  # Postgres, by SIGSTOP, or a moment ago

    def build(self) -> None:
        """Make the folders, start everything in order."""
        for name in ("tmp", "home", "jobs", "job-output", "a", "b", "run-a", "run-b", "pg"):
            (self.folder / name).mkdir(mode=0o755)
        self.clocks = {name: Clock(self.folder / f"clock-{name}", self.library) for name in ("a", "store")}
        for clock in self.clocks.values():
            clock.set(0)
        for name, room, owner in (("a", SPOOL_ROOM, 0), ("b", SPOOL_ROOM, 0), ("pg", POSTGRES_ROOM, NOBODY)):
            if self.isolated:
                isolate.mount(self.folder / name, room, owner)
            self.disks[name] = Disk(self.folder / name, self.isolated)
        postgres = Postgres(binaries(), self.folder / "pg", ("fsync=on",))
        postgres.initialize()
        postgres.start()
        postgres.run(f"CREATE DATABASE {DATABASE}")
        self.server = Server(postgres, self.disks["pg"])
        self._start_store()
        for name in ("a", "b"):
            self._start_agent(name)
        sockets = [self.folder / f"run-{name}" / "agent.sock" for name in ("a", "b")]
        nodes = [(sockets[0], self.clocks["a"].env()), (sockets[1], {})]
        self.slots = Slots(
            self.folder / "job-output", nodes, self.env("jobs"), self.lengths, self.draw, self.isolated,
        )  # fmt: skip

    def env(self, temporary: str = "tmp") -> dict[str, str]:
        """Of a process: nothing of this machine's own settings of ours."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROOFWATCH_", "XDG_"))}
        return {
            **clean, "HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / temporary), "OMP_NUM_THREADS": "1",
            "PGPASSFILE": "/dev/null", "PYTHONFAULTHANDLER": "", "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip

    def connected(self) -> bool:
        """Whether every agent has reached the store once."""
        return all("event=store_connected" in self.parts[f"agent {n}"].log.read_text() for n in ("a", "b"))

    def _start_store(self) -> None:
        port = free_port()
        url = self.server.postgres.url(DATABASE)
        keep = [f"--keep-{what}={FAR}" for what in ("raw", "hourly", "daily")]
        command = [*PROGRAM, "store", "serve", "--listen", f"127.0.0.1:{port}", "--db", url, *keep]
        env = {**self.env(), **self.clocks["store"].env()}
        store = Part("store", command, env, self.folder / "store.log", port, self._database_is_away)
        self.parts["store"] = store
        store.start()
        store.ready()

    def _database_is_away(self) -> bool:
        server = self.server
        away = time.monotonic() < max(server.bad_until, self.stopped_until) or server.down_until > time.monotonic()
        return away or server.disk.bad() or not server.postgres.answers()

    def _start_agent(self, name: str) -> None:
        line = self.lines[name] = self.network.line(int(str(self.parts["store"].where)))
        socket = self.folder / f"run-{name}" / "agent.sock"
        limits = {"a": ("--spool-hours", "1"), "b": ("--spool-mb", "1")}[name]
        command = [
            *PROGRAM, "agent", "--socket", str(socket), "--state", str(self.folder / name), "--store",
            f"127.0.0.1:{line.port}", "--interval", "2", "--node-name", f"soak-{name}", "--budget", "100",
            "--hard-stop", "100", *limits,
        ]  # fmt: skip
        env = {**self.env(), **(self.clocks["a"].env() if name == "a" else {})}
        log = self.folder / f"agent-{name}.log"
        part = Part(f"agent {name}", command, env, log, socket, self.disks[name].bad)
        self.parts[part.name] = part
        part.start()
        part.ready()
        self.spools[name] = Spooled(f"soak-{name}", self.folder / name / "spool.db")
        self.spools[name].watch()

    def workers(self, name: str) -> list[int]:
        """Parse workers of an agent."""
        return family(self.parts[f"agent {name}"].pid)[1:] if self.parts[f"agent {name}"].pid else []

    def look(self, *, jobs: bool) -> None:
        """What supervisors and this test do all the time."""
        self.server.look()
        for part in self.parts.values():
            part.look()
        self.slots.look(more=jobs)

    def heal(self) -> None:
        """Nothing is wrong any more."""
        for line in self.lines.values():
            self.network.set(line, "pass")
        for disk in self.disks.values():
            disk.free()
        for clock in self.clocks.values():
            clock.set(0)
        for part in self.parts.values():
            signal_all(family(part.pid) if part.pid else [], signal.SIGCONT)
            part.down_until = min(part.down_until, time.monotonic())
        signal_all(self.server.pids(), signal.SIGCONT)
        self.server.down_until = 0.0
        for job in self.slots.running.values():
            signal_all(family(job.process.pid), signal.SIGCONT)

    def pids(self) -> dict[str, int]:
        """Of the daemons that are up."""
        return {name: part.pid for name, part in self.parts.items() if part.pid}

    def held(self) -> dict[str, leaks.Held]:
        """By the daemons that are up."""
        return {name: leaks.Held.of(pid) for name, pid in self.pids().items()}

    def stored(self) -> Held:
        """Past the store's own code, but for what `top` tells."""
        run = self.server.postgres.run
        segments: dict[str, set[tuple[str, int]]] = {}
        for name, boot, sequence in run(
            "SELECT a.name, a.boot, s.sequence FROM segments s JOIN agents a ON a.id = s.agent_id", DATABASE
        ):
            segments.setdefault(name, set()).add((boot, sequence))
        drops: dict[str, dict[str, int]] = {}
        for name, reason, number in run(
            "SELECT a.name, d.reason, sum(d.count)::bigint FROM agent_drops d JOIN agents a ON a.id = d.agent_id "
            "GROUP BY 1, 2",
            DATABASE,
        ):
            drops.setdefault(name, {})[reason] = number
        uids = [bytes(uid).hex() for (uid,) in run("SELECT uid FROM windows", DATABASE)]
        return Held(segments, uids, drops, self.totals())

    def totals(self) -> Mapping[str, int]:
        """Kernel time by node, as answers tell it."""
        opened = database.open(self.server.postgres.url(DATABASE))
        try:
            nodes = [spool.node for spool in self.spools.values()]
            answers = {node: Queries(opened).run("top", Filter(node=node)) for node in nodes}
            return {node: sum(row["total_ns"] for row in answer["rows"]) for node, answer in answers.items()}
        finally:
            opened.close()

    def close(self) -> None:
        """End whatever is left, however this came to its end; the small file systems go, too."""
        for job in self.slots.running.values() if hasattr(self, "slots") else ():
            signal_all(family(job.process.pid), signal.SIGKILL)
        for part in self.parts.values():
            signal_all(family(part.pid) if part.pid else [], signal.SIGKILL)
        if hasattr(self, "server"):
            self.server.postgres.kill()
        self.network.close()
        if self.isolated:
            for disk in self.disks.values():
                subprocess.run(["umount", "--lazy", str(disk.folder)], check=False)

    def remove(self) -> None:
        """The folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
