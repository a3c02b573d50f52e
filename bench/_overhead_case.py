"""One case of ``bench/overhead.py``: a job of one or more ranks under the hook, a real agent, blocks on and off."""

from __future__ import annotations

import json
import mmap
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _overhead_cells import CELLS, COUNT, HEAD, HOOK_NS, OVER, THREAD, WARM
from _overhead_figures import Block, Pair, Phase, figures

from roofwatch.hook.launch import environment

HERE = Path(__file__).resolve().parent
START_S, ANSWER_S, END_S = 120.0, 150.0, 10.0
LEAST_STEPS = 20  # of a block
SOON_NS = 1_000_000_000  # the request comes 0.3 s after the question, and ranks hear of it within tenths of a second
AFTER_STEPS = 3  # that a block with windows goes on after the agent has paid for them
FIRST_WINDOWS = 40  # at most, those put off included, until the agent knows the job
FEWEST_PAIRS = 2  # without which there is no interval


_PORT = 29611  # where the ranks meet


class Gone(Exception):  # noqa: N818 - a statement about a program of the benchmark's
    """A job or the agent ended, or says nothing."""


@dataclass(frozen=True, slots=True)
class Case:
    """What runs."""

    name: str
    kind: str
    ranks: int
    title: str


class Job:
    """The running ranks; the first one's steps."""

    def __init__(self, case: Case, folder: Path, socket: str) -> None:
        self._cells: list[Any] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank in range(case.ranks):
            path = folder / f"steps{rank}"
            with path.open("w+b") as file:
                file.truncate(8 * CELLS)
                self._cells.append(memoryview(mmap.mmap(file.fileno(), 0)).cast("q"))
            environ = environment(os.environ, model=case.name, socket=socket)
            if case.ranks > 1:
                environ |= {
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(case.ranks),
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_PORT),
                }  # fmt: skip
            command = [sys.executable, str(HERE / "_overhead_jobs.py"), case.kind, str(path)]
            self.processes.append(subprocess.Popen(command, env=environ, stdin=subprocess.PIPE))

    @property
    def count(self) -> int:
        """Steps so far."""
        return int(self._cells[0][COUNT])

    def soon(self) -> int:
        """A step, as the hook counts them, that no rank will have passed when it is asked for it."""
        ends, now = self._cells[0], self.count
        step_ns = float(ends[HEAD + now - 1] - ends[HEAD + now - 6]) / 5
        return WARM + now + 2 + round(SOON_NS / step_ns)

    def wait(self, count: int, within: float = ANSWER_S) -> None:
        """Until that many steps have ended."""
        end = time.monotonic() + within
        while self.count < count:
            if time.monotonic() > end or any(p.poll() is not None for p in self.processes):
                raise Gone("a job has ended, or steps no more")
            time.sleep(0.01)

    def block(self, after: int, until: int) -> Block:
        """Steps ``after`` + 1 … ``until``."""
        return Block(self._cells[0][HEAD + after - 1 : HEAD + until].tolist())

    def hook_cpu_ns(self) -> int:
        """CPU time of the first rank's hook thread."""
        thread = self._cells[0][THREAD]
        text = Path(f"/proc/{self.processes[0].pid}/task/{thread}/schedstat").read_text()
        return int(text.split()[0])

    def end(self) -> int:
        """Stop all ranks; what a call of the first one's step hook took, in nanoseconds."""
        self.processes[0].stdin.close()  # type: ignore[union-attr]
        until = time.monotonic() + END_S
        while not self._cells[0][OVER] and self.processes[0].poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        for process in reversed(self.processes):
            process.kill()
        for process in self.processes:
            process.communicate()
        return int(self._cells[0][HOOK_NS])


class Agent:
    """The agent on its own clock."""

    def __init__(self, folder: Path, interval: float) -> None:
        self.socket = str(folder / "agent.sock")
        flags = ["--socket", self.socket, "--state", str(folder / "state"), "--interval", f"{interval:g}"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ROOFWATCH_")}
        self.log = (folder / "agent.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "_overhead_agent.py"), *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=clean,
        )  # fmt: skip

    def ask(self, line: str) -> dict[str, Any]:
        """One question, one answer."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line + "\n")
        stdin.flush()
        if not select.select([stdout], [], [], ANSWER_S)[0]:
            raise Gone("the agent does not answer: " + self._log_end())
        answer = stdout.readline()
        if not answer:
            raise Gone("the agent has ended: " + self._log_end())
        told: dict[str, Any] = json.loads(answer)
        return told

    def _log_end(self) -> str:
        return Path(self.log.name).read_text()[-500:]

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.communicate(timeout=20)
        self.log.close()


@contextmanager
def running(case: Case, folder: Path, interval: float) -> Iterator[tuple[Agent, Job]]:
    """Agent and job, registered and stepping, the agent's clock stopped."""
    with ExitStack() as stack:
        agent = Agent(folder, interval)
        stack.callback(agent.end)
        agent.ask("processes")  # from here on its clock stands
        job = Job(case, folder, agent.socket)
        stack.callback(job.end)
        end = time.monotonic() + START_S
        while agent.ask("processes")["processes"] < case.ranks:
            if time.monotonic() > end:
                raise Gone("not every rank has registered")
            time.sleep(0.2)
        job.wait(LEAST_STEPS, START_S)
        yield agent, job


def idle(job: Job, seconds: float) -> dict[str, float]:
    """What the hook does while nothing is asked: the CPU time of its thread, and its call in each step."""
    cpu, begun, steps = job.hook_cpu_ns(), time.monotonic_ns(), job.count
    time.sleep(seconds)
    wall = time.monotonic_ns() - begun
    return {"seconds": wall / 1e9, "thread": (job.hook_cpu_ns() - cpu) / wall, "steps": job.count - steps}


def learn(agent: Agent, job: Job) -> dict[str, Any]:
    """The first windows, until the agent knows how long they may be; they are in no block."""
    for _ in range(FIRST_WINDOWS):
        told = agent.ask(f"next {job.soon()}")
        job.wait(job.count + AFTER_STEPS)
        if told["settled"]:
            break
    return agent.ask(f"next {job.soon()}")


def measure(agent: Agent, job: Job, phase: Phase, virtual_s: float, cap_s: float) -> float:
    """Blocks in turn, off on, on off, until the interval is narrow or ``cap_s`` are over; the agent's time then."""
    begun, length, first = time.monotonic(), LEAST_STEPS, False
    while not phase.enough() and (time.monotonic() < begun + cap_s or len(phase.pairs) < FEWEST_PAIRS):
        if time.monotonic() > begun + cap_s + START_S:
            raise Gone("the agent takes hardly any windows")
        off = None if first else _off(job, length)
        on, told = _on(agent, job, phase)
        if on is not None:
            length = len(on.steps)
            phase.pairs.append(Pair(on, off or _off(job, length)))
            first = not first
        phase.virtual_s += told["virtual_s"] - virtual_s
        virtual_s = told["virtual_s"]
    return virtual_s


def _off(job: Job, length: int) -> Block:
    after = job.count + 1  # a step has begun in what came before
    job.wait(after + length)
    return job.block(after, after + length)


def _on(agent: Agent, job: Job, phase: Phase) -> tuple[Block | None, dict[str, Any]]:
    """A block with the next window in it, or None where the governor has put it off."""
    after = job.count + 1
    told = agent.ask(f"next {job.soon()}")
    phase.refused += told["refused"]
    if not told["taken"]:
        if not told["asked"]:
            phase.held[told["reason"] or "other"] += 1
        return None, told
    job.wait(max(after + LEAST_STEPS, job.count + 1 + AFTER_STEPS))
    phase.windows += told["taken"]
    phase.events += told["events"]
    if told["believed_ns"] is not None:
        phase.believed_ns.append(told["believed_ns"])
    return job.block(after, job.count), told


def run(case: Case, folder: Path, cap_s: float, idle_s: float) -> dict[str, Any]:
    """All of one case."""
    default, often = Phase(60.0), Phase(6.0)
    with running(case, folder, default.interval_s) as (agent, job):
        found = idle(job, idle_s)
        virtual = measure(agent, job, default, learn(agent, job)["virtual_s"], cap_s)
        agent.ask(f"interval {often.interval_s:g}")
        virtual = agent.ask(f"next {job.soon()}")[
            "virtual_s"
        ]  # the first at the new rate: until here nothing is known of it
        measure(agent, job, often, virtual, cap_s)
        call_ns = job.end()
    idle_share = found["thread"] + call_ns * found["steps"] / found["seconds"] / 1e9
    return {
        "case": case.name, "title": case.title, "ranks": case.ranks,
        "idle": {**found, "call_ns": call_ns, "share": idle_share},
        "default": figures(default), "often": figures(often),
    }  # fmt: skip
