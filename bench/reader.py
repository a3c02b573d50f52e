"""The Kineto reader on a trace of more than a million events, beside HolisticTraceAnalysis on the same file.

The trace is a real one repeated, with times moved on and new correlation ids, so that everything links as in the
original. Both programs run as processes of their own, start-up and imports included; what counts is their CPU time
(user and system) and their peak memory. Three amounts of work, each with the one before it: the events alone, in
columns; links, graphs and the idle timeline, which is what "reader" means; formulas and verdicts, which make a window.

    python bench/reader.py [--alone]      # needs the real traces (ROOFWATCH_TRACES)
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _rows import CACHE, or_skipped, row, say, skip, trace

ORIGINAL = "kineto/a100_cudagraph_triton_nccl_shapes.json.gz"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alone", action="store_true", help="without HolisticTraceAnalysis")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make_trace(options.make)
        return
    with or_skipped("reader: Kineto"):
        trace(ORIGINAL)
        figures(repeated(), alone=options.alone)


def repeated() -> Path:
    """The trace, made on first use."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"repeated_{COPIES}.json"
    if not path.exists():
        say("  making the trace")
        # In a process of its own: the memory of a parent counts in its children's peak.
        subprocess.run([sys.executable, __file__, "--make", str(path)], check=True)
    return path


def figures(path: Path, *, alone: bool) -> None:
    """Three amounts of work, and the same packed."""
    unit = "events per CPU-second"
    cpu_s, wall_s, rss_mb, output = best_of(3, [sys.executable, "-c", READ, str(path)])
    events, records, linked = (int(number) for number in output.split())
    row("reader: events", events, "events", at_least=1_000_000)
    row("reader: device records", records, "records")
    row("reader: device records linked to an op", linked, "records")
    bare_cpu_s, _, bare_rss_mb, _ = best_of(3, [sys.executable, "-c", EVENTS, str(path)])
    row("events alone: rate", events / bare_cpu_s, unit)
    row("events alone: peak memory", bare_rss_mb, "MB")
    row("reader: rate", events / cpu_s, unit, at_least=MIN_EVENTS_PER_S)
    row("reader: CPU time", cpu_s, "s")
    row("reader: wall time", wall_s, "s")
    row("reader: peak memory", rss_mb, "MB", at_most=MAX_RSS_MB)
    all_cpu_s, _, all_rss_mb, _ = best_of(3, [sys.executable, "-c", WINDOW, str(path)])
    row("with formulas and verdicts: rate", events / all_cpu_s, unit, at_least=MIN_EVENTS_PER_S)
    row("with formulas and verdicts: peak memory", all_rss_mb, "MB", at_most=MAX_RSS_MB)
    gz_cpu_s, _, gz_rss_mb, _ = best_of(3, [sys.executable, "-c", READ, str(packed_copy(path))])
    row("reader, .json.gz: rate", events / gz_cpu_s, unit)
    row("reader, .json.gz: peak memory", gz_rss_mb, "MB", at_most=MAX_RSS_MB)
    if not alone:
        compare(path, cpu_s, rss_mb)


def compare(path: Path, cpu_s: float, rss_mb: float) -> None:
    """Rows beside HolisticTraceAnalysis: loading and its kernel breakdown, in an environment of its own."""
    name = f"reader: times faster than HolisticTraceAnalysis (≥ {MIN_TIMES_HTA})"
    python = hta_python()
    if python is None:
        skip(name, "it could not be installed, which needs a network")
        return
    try:
        hta_cpu_s, _, hta_rss_mb, _ = measure([str(python), "-c", HTA, str(path)])
    except subprocess.SubprocessError as error:
        say(f"  {error}")
        skip(name, "it failed on the trace")
        return
    row("HolisticTraceAnalysis: CPU time", hta_cpu_s, "s")
    row("HolisticTraceAnalysis: peak memory", hta_rss_mb, "MB")
    row("reader: times faster than HolisticTraceAnalysis", hta_cpu_s / cpu_s, "×", at_least=MIN_TIMES_HTA)
    row("reader: times less memory than it", hta_rss_mb / rss_mb, "×")


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
    text = gzip.decompress(trace(ORIGINAL).read_bytes()).decode()
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


def packed_copy(path: Path) -> Path:
    packed = path.with_suffix(".json.gz")
    if not packed.exists():
        part = packed.with_suffix(".part")
        with path.open("rb") as source, gzip.open(part, "wb", compresslevel=6) as out:
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
    say("  installing HolisticTraceAnalysis")
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, stdout=sys.stderr)
        install = [str(python), "-m", "pip", "install", "-qq", "HolisticTraceAnalysis"]
        subprocess.run(install, check=True, stdout=sys.stderr, timeout=600)
        subprocess.run([python, "-c", "import hta.trace_analysis"], check=True, stdout=sys.stderr)
    except (subprocess.SubprocessError, OSError) as error:
        say(f"  {error}")
        return None
    ready.touch()
    return python


if __name__ == "__main__":
    main()
