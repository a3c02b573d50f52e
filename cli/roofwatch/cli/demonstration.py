"""``roofwatch demo``: a store, an agent and two real jobs on this machine, for less than a minute, and nothing left."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roofwatch.cli.asking import ask
from roofwatch.cli.calibrating import doubted, known, repeat
from roofwatch.cli.fleet.local import environment
from roofwatch.cli.render.text import plural
from roofwatch.cli.supervise import Child, Children, children
from roofwatch.model.errors import RoofwatchError
from roofwatch.store.filter import Filter

PROGRAM = (sys.executable, "-P", "-m", "roofwatch.cli.main")  # -P: a module in the user's folder is not ours
JOBS = {"encoder inference": "inference", "training": "training"}  # model name → script
INTERVAL_S = 3
BUDGET_PERCENT = 20  # of the jobs' time: in a minute the usual half per cent buys no window worth a look
ENOUGH = 7  # windows of each job
LIMIT_S = 48.0  # from the start to the answer, whatever there is by then; stopping takes a few seconds more
JOB_S = 180.0  # a job ends by itself then, also when nobody is left to stop it
CALIBRATION_S = 25.0  # an idle machine needs less than ten
TOLD = "roofwatch: "  # how a sentence on stderr begins
WARM_UP = 8  # layers at the start, which take longer anyway
FEWEST = 20  # layers that no window touched
RESIDUE_NS = 500_000_000  # after a window: layers slowed by what it left behind, such as reading its trace

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """The answers of the store after the jobs ran, and when each layer of the inference ended (Unix ns)."""

    top: dict[str, Any]
    processes: dict[str, Any]
    windows: dict[str, Any]
    layers: list[int]


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder for everything that the demo writes, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="roofwatch-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(limit: int, say: Say) -> Result:
    """Run the demo; ``limit`` is the number of kernels asked for.

    Raises:
        RoofwatchError: torch is missing, a part ended by itself, or no window arrived in time.
    """
    if find_spec("torch") is None:
        raise RoofwatchError(f"the demo's jobs need torch, and {sys.executable} has none: pip install torch")
    begin = time.monotonic()
    threads = max(1, len(os.sched_getaffinity(0)) // len(JOBS))
    with private_folder() as folder, children(folder) as group:
        env = _environment(folder, threads)
        _calibrate(group, env, threads, say)
        say("starting a store and an agent on this machine")
        address = _start_store(group, folder, env)
        _start_agent(group, folder, env, address)
        say(f"starting two jobs with {plural(threads, 'thread')} each, a window every {INTERVAL_S} s")
        jobs = {script: _start_job(group, env, model, script) for model, script in JOBS.items()}
        _collect(group, address, begin + LIMIT_S, say)
        top, processes, windows = (
            ask(query, Filter(), rows, store=address, db=None)
            for query, rows in (("top", limit), ("processes", 0), ("windows", 0))
        )
        return Result(top, processes, windows, _layer_ends(jobs["inference"]))


def _start_job(group: Children, env: Mapping[str, str], model: str, script: str) -> Child:
    path = Path(__file__).parent / "demo_jobs" / f"{script}.py"
    job = (sys.executable, str(path), "--seconds", str(JOB_S))
    return group.start(script, (*PROGRAM, "run", "--model", model, "--", *job), env)


def _environment(folder: Path, threads: int) -> dict[str, str]:
    return {**environment(), "ROOFWATCH_SOCKET": str(folder / "agent.sock"), "OMP_NUM_THREADS": str(threads)}


def _calibrate(group: Children, env: Mapping[str, str], threads: int, say: Say) -> None:
    """Measure the CPU's peaks once, alone, before any job runs: for the jobs' threads, and for a job's that has all."""
    wanted = [n for n in sorted({threads, len(os.sched_getaffinity(0))}) if not known(n)]
    if not wanted:
        if doubt := doubted(threads):
            say(f"the CPU's peaks may be too low ({doubt}). Once it is idle: {repeat([threads])}")
        return
    say(f"measuring this CPU with {' and with '.join(plural(n, 'thread') for n in wanted)}, once")
    asked = [word for n in wanted for word in ("--threads", str(n))]
    measuring = group.start("calibration", (*PROGRAM, "devices", "calibrate", "--force", *asked), env)
    group.ended(measuring, CALIBRATION_S)
    if not known(threads):
        say(f"the CPU's peaks stay unknown, and with them the verdicts: {measuring.tail()}")
        return
    for line in measuring.log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(TOLD):
            say(f"{line.removeprefix(TOLD)} Once it is idle: {repeat(wanted)}")


def _start_store(group: Children, folder: Path, env: Mapping[str, str]) -> str:
    port_file = folder / "port"
    database = f"sqlite:///{folder}/store.db"
    listen = ("--listen", "127.0.0.1:0", "--port-file", str(port_file))
    group.start("store", (*PROGRAM, "store", "serve", "--db", database, *listen), env)
    group.until(port_file.exists, "the store did not listen", 20)
    return f"127.0.0.1:{port_file.read_text().strip()}"


def _start_agent(group: Children, folder: Path, env: Mapping[str, str], address: str) -> None:
    settings = (
        "--store", address, "--state", str(folder / "state"), "--interval", str(INTERVAL_S),
        "--budget", str(BUDGET_PERCENT), "--hard-stop", str(BUDGET_PERCENT),
    )  # fmt: skip
    group.start("agent", (*PROGRAM, "agent", *settings), env)
    group.until((folder / "agent.sock").exists, "the agent did not listen", 20)


def _collect(group: Children, address: str, end: float, say: Say) -> None:
    """Wait until each job has given enough windows, or the time is over."""
    told = -1
    while True:
        group.check()
        rows = ask("processes", Filter(), 0, store=address, db=None)["rows"]
        counts = [row["windows"] for row in rows]
        if sum(counts) != told:
            told = sum(counts)
            say(f"{plural(told, 'window')} so far")
        if len(counts) >= len(JOBS) and min(counts) >= ENOUGH:
            return
        if time.monotonic() > end:
            if not counts:
                raise RoofwatchError(f"no window arrived within {LIMIT_S:.0f} s: {group.tails()}")
            return
        time.sleep(0.5)


@dataclass(frozen=True, slots=True)
class _Lost:
    """What windows took from jobs: time lost to a number of windows, and the time that these stand for."""

    windows: int
    lost_ns: float
    represented_ns: float


def costs(result: Result) -> Sequence[str]:
    """What the windows cost each job, one line a job, and all of them together."""
    jobs = sorted(result.processes["rows"], key=lambda row: str(row["model"]))
    found = [(job, _lost(job, result)) for job in jobs]
    lines = [_told(f"{job['model']}: {plural(job['windows'], 'window')}", lost, "its") for job, lost in found]
    known = [lost for _, lost in found if lost is not None]
    if len(found) < 2 or len(known) < len(found):
        return lines
    whole = _Lost(sum(k.windows for k in known), sum(k.lost_ns for k in known), sum(k.represented_ns for k in known))
    return [*lines, _told(f"together: {plural(sum(job['windows'] for job in jobs), 'window')}", whole, "their")]


def _lost(process: Mapping[str, Any], result: Result) -> _Lost | None:
    """What a job lost: as the hook measured by its steps, else (it has none) by its own layers; None where unknown."""
    windows = [w for w in result.windows["rows"] if w["process"] == process["process"]]
    if process["lost_ns"] is not None:
        known = sum(w["lost_ns"] is not None and bool(w["represents_ns"]) for w in windows)
        return _Lost(known, process["lost_ns"], process["represented_ns"])
    lost = lost_by_layers(result.layers, windows)
    apart = [w["represents_ns"] for w in windows if w["represents_ns"]]
    if lost is None or not apart:
        return None
    return _Lost(len(windows), lost, len(windows) * statistics.mean(apart))


def _told(name: str, lost: _Lost | None, whose: str) -> str:
    if lost is None:
        return f"{name}, cost not known"
    if lost.lost_ns < 0:
        return f"{name}, ≈ 0 ms lost to each, ≈ 0 % of {whose} time"
    each, share = lost.lost_ns / lost.windows / 1e6, lost.lost_ns / lost.represented_ns
    return f"{name}, {each:.0f} ms lost to each, {share * 100:.1f} % of {whose} time"


def lost_by_layers(ends: Sequence[int], windows: Sequence[Mapping[str, Any]]) -> float | None:
    """Nanoseconds lost to windows in all: the layers they touched, less as many median layers that none touched.

    ``ends`` are Unix ns, one a layer. None where too few layers are left to know what a layer takes.
    """
    phases = ("quiesce_ns", "close_ns", "save_ns", "free_ns")
    spans = [
        (
            w["start_unix_ns"] - (w["open_ns"] or 0),
            w["start_unix_ns"] + w["duration_ns"] + sum(w[phase] or 0 for phase in phases) + RESIDUE_NS,
        )
        for w in windows
    ]
    touched: list[int] = []
    free: list[int] = []
    for begin, end in itertools.pairwise(ends[WARM_UP:]):
        hit = any(begin < last and end > first for first, last in spans)
        (touched if hit else free).append(end - begin)
    if len(free) < FEWEST:
        return None
    return float(sum(touched) - len(touched) * statistics.median(free))


def _layer_ends(child: Child) -> list[int]:
    lines = child.log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [int(line) for line in lines if line.isdigit()]
