"""Twelve places for jobs that come and go, and what each must give: what it gives without us."""

from __future__ import annotations

import hashlib
import json
import platform
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from parts import PROGRAM, family, free_port, signal_all

JOB = Path(__file__).parent / "job.py"
ROOT = Path(__file__).resolve().parents[2]
PAUSE_S = 0.05
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc")
ENDS_WITHIN_S = 240.0  # beyond what it was planned for, on a machine that is busy
# place → (kind of job, how it is started)
PLACES = (
    ("training", "clock"), ("training", "namespace"), ("training", ""), ("loader", ""), ("inference", ""),
    ("inference", "namespace"), ("threads", ""), ("forks", ""), ("forks", "namespace"), ("crash", ""),
    ("training", "victim"), ("ranks", "torchrun"),
)  # fmt: skip
LENGTHS_S = (8.0, 16.0, 32.0)
SEEDS = {"crash": 5, "training": 2}  # of each kind; of crashes one an end
Wanted = tuple[str, int, int]  # kind, seed, steps


def steps_of(seconds: float) -> int:
    """Steps that take about so long."""
    return int(seconds / (PAUSE_S + 0.01))


def seeds_of(kind: str) -> range:
    """That its jobs have."""
    return range(SEEDS.get(kind, 1))


def lengths_of(kind: str, lengths: Sequence[float]) -> Sequence[float]:
    """How long its jobs may take."""
    return lengths[:1] if kind in {"crash", "ranks"} else lengths


def wanted(lengths: Sequence[float]) -> list[Wanted]:
    """All jobs that may run."""
    kinds = sorted({kind for kind, _ in PLACES})
    return [(kind, seed, steps_of(s)) for kind in kinds for seed in seeds_of(kind) for s in lengths_of(kind, lengths)]


@dataclass(frozen=True)
class Reference:
    """What a job gives without us."""

    result: str | None
    code: int


def references(lengths: Sequence[float], env: Mapping[str, str]) -> dict[Wanted, Reference]:
    """What every job gives without a hook; kept for the next run of the same jobs on the same machine."""
    same = [JOB.read_text(), metadata.version("torch"), sys.version, " ".join(platform.uname()), str(wanted(lengths))]
    name = hashlib.blake2b("\0".join(same).encode(), digest_size=8).hexdigest()
    kept = ROOT / "build" / f"soak-references-{name}.json"
    if kept.exists():
        return {(kind, seed, steps): Reference(*told) for kind, seed, steps, *told in json.loads(kept.read_text())}
    found = measured(lengths, env)
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps([[*w, one.result, one.code] for w, one in found.items()]))
    return found


def measured(lengths: Sequence[float], env: Mapping[str, str]) -> dict[Wanted, Reference]:
    """Run every job without a hook, two processes at a time."""
    alone = [w for w in wanted(lengths) if w[0] != "ranks"]
    started = []
    for part in (alone[::2], alone[1::2]):
        names = [":".join(map(str, w)) for w in part]
        command = [sys.executable, str(JOB), "reference", *names]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(env)))
    found: dict[Wanted, Reference] = {}
    for process in started:
        out, _ = process.communicate()
        for line in out.splitlines():
            told = json.loads(line)
            kind, seed, steps = told["job"].split(":")
            found[kind, int(seed), int(steps)] = Reference(told["result"], told["code"])
    for w in wanted(lengths):
        if w[0] == "ranks":
            done = subprocess.run(ranks_command(w, 0.0), capture_output=True, text=True, env=dict(env), check=False)
            found[w] = Reference(result_of(done.stdout).get("result"), done.returncode)
    return found


def ranks_command(job: Wanted, pause: float) -> list[str]:
    """Two ranks by torchrun."""
    kind, seed, steps = job
    where = ["--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [sys.executable, "-m", "torch.distributed.run", *where, str(JOB), kind, str(seed), str(steps), str(pause)]


def result_of(said: str) -> dict[str, object]:
    """What a job printed last."""
    lines = [line for line in said.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


@dataclass
class Running:
    """A job."""

    job: Wanted
    how: str
    process: subprocess.Popen[bytes]
    said: Path
    errors: Path
    begun: float
    kill_at: float | None
    until: float
    killed: bool = False


@dataclass
class Slots:
    """All places, and what was wrong with jobs that ended."""

    folder: Path
    nodes: Sequence[tuple[Path, Mapping[str, str]]]  # socket, and variables of a stepped clock, of each agent
    env: Mapping[str, str]
    lengths: Sequence[float]
    draw: random.Random
    namespaces: bool
    expected: Mapping[Wanted, Reference] = field(default_factory=dict)
    running: dict[int, Running] = field(default_factory=dict)
    next_at: dict[int, float] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    grown_kb: list[int] = field(default_factory=list)
    _number: int = 0

    def look(self, *, more: bool) -> None:
        """Judge those that have ended; start others, unless no more are wanted."""
        now = time.monotonic()
        for place in range(len(PLACES)):
            job = self.running.get(place)
            if job is not None:
                self._look_at(place, job, now)
            elif more and now >= self.next_at.setdefault(place, now + place * 0.7):
                self.running[place] = self._start(place, now)

    def _look_at(self, place: int, job: Running, now: float) -> None:
        if job.kill_at is not None and now > job.kill_at and not job.killed:
            self.kill(job)
        if job.process.poll() is None and now > job.until:
            signal_all(family(job.process.pid), signal.SIGUSR1)  # a job writes where its threads are
            time.sleep(1.0)
            where = job.errors.read_text(errors="replace")[-1500:]
            self.wrong.append(
                f"{job.job} ({job.how or 'plain'}) runs on {ENDS_WITHIN_S:.0f} s beyond its time: {where}"
            )
            self.kill(job)
            job.process.wait()
        if job.process.poll() is not None:
            self._judge(job)
            del self.running[place]
            self.next_at[place] = now + self.draw.uniform(0.5, 4.0)

    def kill(self, job: Running) -> None:
        """SIGKILL to all of it."""
        job.killed = True
        signal_all(family(job.process.pid), signal.SIGKILL)

    def _start(self, place: int, now: float) -> Running:
        kind, how = PLACES[place]
        seconds = self.draw.choice(lengths_of(kind, self.lengths))
        job = (kind, self.draw.choice(seeds_of(kind)), steps_of(seconds))
        socket, clock = self.nodes[place % len(self.nodes)]
        command = [sys.executable, str(JOB), job[0], str(job[1]), str(job[2]), str(PAUSE_S)]
        if how == "torchrun":
            command = ranks_command(job, PAUSE_S)
        elif how == "namespace" and self.namespaces:
            command = [*NAMESPACE, *command]
        started = [*PROGRAM, "run", "--model", f"soak-{kind}", "--socket", str(socket), "--", *command]
        self._number += 1
        said, errors = self.folder / f"{self._number}.out", self.folder / f"{self._number}.err"
        env = {**self.env, **(clock if how == "clock" else {})}
        with said.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                started, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True
            )
        kill_at = now + self.draw.uniform(1.0, seconds) if how == "victim" else None
        return Running(job, how, process, said, errors, now, kill_at, now + seconds + ENDS_WITHIN_S)

    def _judge(self, job: Running) -> None:
        said, errors = job.said.read_text(), job.errors.read_text(errors="replace")
        for file in (job.said, job.errors):
            file.unlink()
        if job.killed:
            self.ended["killed"] += 1
            return
        self.ended[job.job[0]] += 1
        told, expected = result_of(said), self.expected[job.job]
        name = f"{':'.join(map(str, job.job))} ({job.how or 'plain'})"
        code = job.process.returncode
        if job.how == "namespace" and code > 128:
            code = 128 - code  # as unshare tells a signal
        if (told.get("result"), code) != (expected.result, expected.code):
            self.wrong.append(
                f"{name} gave {told.get('result')} and exit {code}, without us {expected.result} and "
                f"{expected.code}: {errors[-500:].strip()}"
            )
        if job.job[0] not in {"crash", "ranks"} and errors:
            self.wrong.append(f"{name} wrote to stderr: {errors[-300:].strip()}")
        self._growth(name, told)

    def _growth(self, name: str, told: Mapping[str, object]) -> None:
        begin, end = told.get("begin"), told.get("end")
        if not isinstance(begin, dict) or not isinstance(end, dict):
            return
        self.grown_kb.append(int(str(told["grown_kb"])))
        # The hook may have connected, and may have a window, at one of the two moments and not at the other.
        allowed = {"descriptors": 4, "threads": 1}
        for what, most in allowed.items():
            if end[what] - begin[what] > most:
                self.wrong.append(f"{name} has {end[what]} {what} at its end, {begin[what]} at its beginning")

    def finish(self) -> None:
        """Wait for those that run."""
        while self.running:
            self.look(more=False)
            time.sleep(0.1)
