"""The Kineto reader on a trace of more than a million events, beside HolisticTraceAnalysis on the same file.

The trace is a real one repeated, with times moved on and new correlation ids, so that everything links as in the
original. Both programs run as processes of their own, start-up and imports included; what counts is their CPU time
(user and system) and their peak memory. Three amounts of work, each with the one before it: the events alone, in
columns; links, graphs and the idle timeline, which is what "reader" means; formulas and verdicts, which make a window.

    python bench/reader.py            # needs the real traces (ROOFWATCH_TRACES)
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("ROOFWATCH_BENCH_CACHE", ROOT / "build" / "bench"))
TRACES = Path(os.environ.get("ROOFWATCH_TRACES", ROOT.parent / "shared" / "traces"))
ORIGINAL = "a100_cudagraph_triton_nccl_shapes.json.gz"
COPIES = 10
ID_STEP = 1_000_000  # between the correlation ids of two copies; the original's span fewer
MIN_EVENTS_PER_S, MAX_RSS_MB, MIN_TIMES_HTA = 400_000, 250, 8
HTA_TIMEOUT_S = 300

READ = """
import sys
from roofwatch.collectors.registry import read
profile = read(sys.argv[1])
assert not profile.problem, profile.problem
assert all(d.span_ns - d.busy_ns == sum(c.total_ns for c in d.causes) for d in profile.devices)
print(profile.events_read, sum(g.calls for g in profile.groups), sum(g.calls for g in profile.groups if g.linked))
"""
EVENTS = """
import sys
from roofwatch.collectors.base import Limits
from roofwatch.collectors.kineto.reader import _collect, no_garbage_collection
from roofwatch.collectors.kineto.source import Source
with open(sys.argv[1], "rb") as file, no_garbage_collection():
    columns, document = _collect(Source(file, sys.argv[1], Limits(), None), Limits())
assert not document.problems, document.problems
print(columns.events)
"""
WINDOW = (
    READ
    + """
from roofwatch.collectors.base import WindowContext
from roofwatch.collectors.pipeline import window_of
from roofwatch.model.record import Node, Process, Trigger
window = window_of(profile, WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED))
assert window.ledger.classified_ns > 0
"""
)
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
analysis.get_gpu_kernel_breakdown(visualize=False)
"""


def main() -> int:
    if sys.argv[1:2] == ["--make"]:
        make_trace(Path(sys.argv[2]))
        return 0
    if not (TRACES / "kineto" / ORIGINAL).is_file():
        print(f"no {ORIGINAL} below {TRACES}: set ROOFWATCH_TRACES", file=sys.stderr)
        return 1
    CACHE.mkdir(parents=True, exist_ok=True)
    trace = CACHE / f"repeated_{COPIES}.json"
    if not trace.exists():
        print("  making the trace", file=sys.stderr)
        # In a process of its own: the memory of a parent counts in its children's peak.
        subprocess.run([sys.executable, __file__, "--make", trace], check=True)
    cpu_s, wall_s, rss_mb, output = best_of(3, [sys.executable, "-c", READ, str(trace)])
    events, records, linked = (int(number) for number in output.split())
    rate = events / cpu_s
    row("reader: events", events, "events", "≥ 1000000", events >= 1_000_000)
    row("reader: device records", records, "records", "", None)
    row("reader: device records linked to an op", linked, "records", "", None)
    bare_cpu_s, _, bare_rss_mb, _ = best_of(3, [sys.executable, "-c", EVENTS, str(trace)])
    row("events alone: rate", events / bare_cpu_s, "events per CPU-second", "", None)
    row("events alone: peak memory", bare_rss_mb, "MB", "", None)
    row("reader: rate", rate, "events per CPU-second", f"≥ {MIN_EVENTS_PER_S}", rate >= MIN_EVENTS_PER_S)
    row("reader: CPU time", cpu_s, "s", "", None)
    row("reader: wall time", wall_s, "s", "", None)
    row("reader: peak memory", rss_mb, "MB", f"≤ {MAX_RSS_MB}", rss_mb <= MAX_RSS_MB)
    all_cpu_s, _, all_rss_mb, _ = best_of(3, [sys.executable, "-c", WINDOW, str(trace)])
    row("with formulas and verdicts: rate", events / all_cpu_s, "events per CPU-second", f"≥ {MIN_EVENTS_PER_S}",
        events / all_cpu_s >= MIN_EVENTS_PER_S)  # fmt: skip
    row("with formulas and verdicts: peak memory", all_rss_mb, "MB", f"≤ {MAX_RSS_MB}", all_rss_mb <= MAX_RSS_MB)
    packed = packed_copy(trace)
    gz_cpu_s, _, gz_rss_mb, _ = best_of(3, [sys.executable, "-c", READ, str(packed)])
    row("reader, .json.gz: rate", events / gz_cpu_s, "events per CPU-second", "", None)
    row("reader, .json.gz: peak memory", gz_rss_mb, "MB", f"≤ {MAX_RSS_MB}", gz_rss_mb <= MAX_RSS_MB)
    compare(trace, cpu_s, rss_mb)
    return 0


def compare(trace: Path, cpu_s: float, rss_mb: float) -> None:
    """Rows beside HolisticTraceAnalysis: loading and its kernel breakdown, in an environment of its own."""
    python = hta_python()
    if python is None:
        row("HolisticTraceAnalysis could not be installed", None, "", f"≥ {MIN_TIMES_HTA} times", None)
        return
    try:
        hta_cpu_s, _, hta_rss_mb, _ = measure([str(python), "-c", HTA, str(trace)])
    except subprocess.SubprocessError as error:
        print(f"  {error}", file=sys.stderr)
        row("HolisticTraceAnalysis failed on the trace", None, "", f"≥ {MIN_TIMES_HTA} times", None)
        return
    row("HolisticTraceAnalysis: CPU time", hta_cpu_s, "s", "", None)
    row("HolisticTraceAnalysis: peak memory", hta_rss_mb, "MB", "", None)
    times = hta_cpu_s / cpu_s
    row("reader: times faster than it", times, "×", f"≥ {MIN_TIMES_HTA}", times >= MIN_TIMES_HTA)
    row("reader: times less memory than it", hta_rss_mb / rss_mb, "×", "", None)


def row(name: str, value: float | None, unit: str, limit: str, ok: bool | None) -> None:
    rounded = value if value is None or isinstance(value, int) else round(value, 2 if value < 1000 else 0)
    line = {"name": name, "value": rounded, "unit": unit, "limit": limit, "ok": ok}
    print(json.dumps(line, ensure_ascii=False), flush=True)


def best_of(times: int, command: list[str]) -> tuple[float, float, float, str]:
    """The run with the least CPU time: on a shared machine the others measure the neighbours."""
    return min(measure(command) for _ in range(times))


def measure(command: list[str]) -> tuple[float, float, float, str]:
    """CPU seconds, wall seconds, peak memory in MB and output of a process."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err)
        deadline = start + HTA_TIMEOUT_S
        pid = 0
        while not pid:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if not pid and time.monotonic() > deadline:
                process.kill()
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        out.seek(0)
        err.seek(0)
        if process.returncode:
            tail = err.read()[-400:].decode("utf-8", "replace")
            raise subprocess.SubprocessError(f"{command[0]} ended with {process.returncode}: {tail}")
        return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * 1024 / 1e6, out.read().decode()


def make_trace(path: Path) -> None:
    """Writes the original's events ``COPIES`` times, each copy later and with its own ids."""
    text = gzip.decompress((TRACES / "kineto" / ORIGINAL).read_bytes()).decode()
    opening = re.search(r'"traceEvents"\s*:\s*\[', text)
    assert opening is not None
    close = text.rindex("]")
    head, body, tail = text[: opening.end()], text[opening.end() : close].rstrip(), text[close:]
    times = [int(t) for t in re.findall(r'"ts": (\d+)', body)]
    span = max(times) - min(times) + 1_000_000
    ids = re.compile(r'("(?:ts|id|correlation|External id)": |"ProfilerStep#)(\d+)')

    def moved(copy: int) -> str:
        def one(found: re.Match[str]) -> str:
            step = {'"ts": ': span, '"ProfilerStep#': 100}.get(found[1], ID_STEP)
            return f"{found[1]}{int(found[2]) + copy * step}"

        return ids.sub(one, body) if copy else body

    part = path.with_suffix(".part")
    with part.open("w") as out:
        out.write(head)
        for copy in range(COPIES):
            out.write(("," if copy else "") + moved(copy))
        out.write(tail)
    part.rename(path)


def packed_copy(trace: Path) -> Path:
    packed = trace.with_suffix(".json.gz")
    if not packed.exists():
        part = packed.with_suffix(".part")
        with trace.open("rb") as source, gzip.open(part, "wb", compresslevel=6) as out:
            while block := source.read(1 << 20):
                out.write(block)
        part.rename(packed)
    return packed


def hta_python() -> Path | None:
    """An interpreter with HolisticTraceAnalysis, made on first use; None where that is not possible."""
    folder = CACHE / "hta"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists():
        return python
    print("  installing HolisticTraceAnalysis", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, stdout=sys.stderr)
        install = [python, "-m", "pip", "install", "-qq", "HolisticTraceAnalysis"]
        subprocess.run(install, check=True, stdout=sys.stderr, timeout=600)
        subprocess.run([python, "-c", "import hta.trace_analysis"], check=True, stdout=sys.stderr)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"  {error}", file=sys.stderr)
        return None
    ready.touch()
    return python


if __name__ == "__main__":
    sys.exit(main())
