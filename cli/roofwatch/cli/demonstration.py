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
UNITS = ("layer", "second")  # what a line of each is about
INTERVAL_S = 3
BUDGET_PERCENT = 20  # of the jobs' time: in a minute the usual half per cent buys no window worth a look
ENOUGH = 7  # windows of each job
LIMIT_S = 40.0  # from the jobs' start to the answer, where each job has given a window by then
PATIENCE_S = 150.0  # the same on a busy machine, while the jobs are seen to get on
STALLED_S = 40.0  # without a sign of a job or a window: it does not get on; torch alone may take as long to load
JOB_S = 180.0  # a job ends by itself then, also when nobody is left to stop it
LISTENS_S = 60.0  # a store or an agent on a busy machine; an idle one needs two
CALIBRATION_S = 40.0  # for one number of threads; an idle machine needs less than ten
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
    doubts: Sequence[str] = ()  # why verdicts may be missing or wrong


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
    threads = max(1, len(os.sched_getaffinity(0)) // len(JOBS))
    with private_folder() as folder, children(folder) as group:
        env = _environment(folder, threads)
        doubts = _calibrate(group, env, threads, say)
        say("starting a store and an agent on this machine")
        address = _start_store(group, folder, env)
        _start_agent(group, folder, env, address)
        say(f"starting two jobs with {plural(threads, 'thread')} each, a window every {INTERVAL_S} s")
        jobs = {script: _start_job(group, env, model, script) for model, script in JOBS.items()}
        _collect(group, list(jobs.values()), address, say)
        top, processes, windows = (
            ask(query, Filter(), rows, store=address, db=None)
            for query, rows in (("top", limit), ("processes", 0), ("windows", 0))
        )
        return Result(top, processes, windows, _layer_ends(jobs["inference"]), doubts)


def _start_job(group: Children, env: Mapping[str, str], model: str, script: str) -> Child:
    path = Path(__file__).parent / "demo_jobs" / f"{script}.py"
    job = (sys.executable, str(path), "--seconds", str(JOB_S))
    return group.start(script, (*PROGRAM, "run", "--model", model, "--", *job), env)


def _environment(folder: Path, threads: int) -> dict[str, str]:
    return {**environment(), "ROOFWATCH_SOCKET": str(folder / "agent.sock"), "OMP_NUM_THREADS": str(threads)}


def _calibrate(group: Children, env: Mapping[str, str], threads: int, say: Say) -> Sequence[str]:
    """Measure the CPU's peaks once, alone, before any job runs: for the jobs' threads, and for a job's that has all.

    What is missing or in doubt of the jobs' threads, in sentences; of all threads it is only said.
    """
    every = len(os.sched_getaffinity(0))
    wanted = [n for n in sorted({threads, every}) if not known(n)]
    if wanted:
        say(f"measuring this CPU with {' and with '.join(plural(n, 'thread') for n in wanted)}, once")
        command = (
            *PROGRAM,
            "devices",
            "calibrate",
            "--force",
            *(word for n in wanted for word in ("--threads", str(n))),
        )
        group.ended(group.start("calibration", command, env), CALIBRATION_S * len(wanted))
    found = {n: told for n in sorted({threads, *wanted}) if (told := _doubt(n))}
    for told in found.values():
        say(told)
    return [found[threads]] if threads in found else []


def _doubt(threads: int) -> str | None:
    """What is wrong with the CPU's peaks for a number of threads, and what mends it."""
    again = f"Once it is idle: {repeat([threads])}"
    if not known(threads):
        return (
            f"the CPU's peaks with {plural(threads, 'thread')} stay unknown, and with them verdicts: measuring took "
            f"too long or failed; is this machine busy? {again}"
        )
    doubt = doubted(threads)
    told = f"the CPU's peaks with {plural(threads, 'thread')} may be too low, and so roof and bound wrong ({doubt})."
    return f"{told} {again}" if doubt else None


def _start_store(group: Children, folder: Path, env: Mapping[str, str]) -> str:
    port_file = folder / "port"
    database = f"sqlite:///{folder}/store.db"
    listen = ("--listen", "127.0.0.1:0", "--port-file", str(port_file))
    group.start("store", (*PROGRAM, "store", "serve", "--db", database, *listen), env)
    group.until(port_file.exists, "the store did not listen", LISTENS_S)
    return f"127.0.0.1:{port_file.read_text().strip()}"


def _start_agent(group: Children, folder: Path, env: Mapping[str, str], address: str) -> None:
    settings = (
        "--store", address, "--state", str(folder / "state"), "--interval", str(INTERVAL_S),
        "--budget", str(BUDGET_PERCENT), "--hard-stop", str(BUDGET_PERCENT),
    )  # fmt: skip
    group.start("agent", (*PROGRAM, "agent", *settings), env)
    group.until((folder / "agent.sock").exists, "the agent did not listen", LISTENS_S)


def _collect(group: Children, jobs: Sequence[Child], address: str, say: Say) -> None:
    """Wait until each job has given enough windows, or some and the time is over; longer while jobs get on."""
    told, begin = 0, time.monotonic()
    seen, moved = (0, 0), begin
    patient = False
    while True:
        group.check()
        counts = [row["windows"] for row in ask("processes", Filter(), 0, store=address, db=None)["rows"]]
        now, windows, each = time.monotonic(), sum(counts), min(counts) if len(counts) >= len(JOBS) else 0
        if windows != told:
            told = windows
            say(f"{plural(told, 'window')} so far")
        sign = (windows, sum(job.log.stat().st_size for job in jobs))
        if sign != seen:
            seen, moved = sign, now
        if each >= ENOUGH or (each and now > begin + LIMIT_S):
            return
        if now > begin + PATIENCE_S or (now > begin + LIMIT_S and now > moved + STALLED_S):
            if windows:
                return
            raise RoofwatchError(_too_busy(now - begin, jobs))
        if now > begin + LIMIT_S and not patient:
            patient = True
            say(f"this machine is busy: waiting up to {PATIENCE_S - LIMIT_S:.0f} s more")
        time.sleep(0.5)


def _too_busy(waited_s: float, jobs: Sequence[Child]) -> str:
    """Why no window came, as far as it can be seen, and what to do."""
    done = ", ".join(f"{job.name}: {plural(len(_lines(job)), unit)}" for job, unit in zip(jobs, UNITS, strict=True))
    return (
        f"no window arrived within {waited_s:.0f} s ({done}): this machine is too busy, its load is "
        f"{os.getloadavg()[0]:.1f} on {plural(len(os.sched_getaffinity(0)), 'CPU')}. "
        "Stop what else runs, or wait until it is done, and repeat: roofwatch demo"
    )


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
    return [int(line) for line in _lines(child) if line.isdigit()]


def _lines(child: Child) -> list[str]:
    return child.log.read_text(encoding="utf-8", errors="replace").splitlines()
