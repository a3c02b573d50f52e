"""Run the benchmarks of this folder one after another (two would measure each other), and print one table.

A benchmark is a script that prints rows (bench/_rows.py). Exit code 1 where a limit does not hold or a benchmark does
not run; what this machine lacks is skipped, and said.

    python bench/run.py [--list] [--only NAME …] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from _rows import BROKEN, Row, number, parsed, say

HERE = Path(__file__).resolve().parent
TIME_LIMIT_S, STOP_S = 1800.0, 30.0
MARKS = {True: "yes", False: "NO", None: "–"}


@dataclass(frozen=True, slots=True)
class Bench:
    """What a script measures, about how long that takes on two cores, and why a plain run leaves it out."""

    measures: str
    takes: str
    left_out: str = ""


BENCHES = {
    "reader": Bench("Kineto reader beside HolisticTraceAnalysis; needs real traces", "3 min, the first run more"),
    "ascend": Bench("readers of Ascend's databases; needs real traces", "1 min"),
    "ascend_csv": Bench("reader of Ascend's kernel tables; needs real traces", "1 min"),
    "window_close": Bench("what a window costs a training job", "30 s"),
    "attach_cost": Bench("what attaching costs a job without an agent", "1 min"),
    "agent_idle": Bench("an agent with 8 processes: processor and memory", "2 min"),
    "ingest": Bench("ingest over gRPC on SQLite and Postgres, against each engine alone", "1 min"),
    "store_size": Bench("bytes a fact on SQLite and Postgres", "seconds; the first run builds stores for minutes"),
    "store_queries": Bench("answers of a fleet's day on SQLite and Postgres", "1 min; the first run builds the same"),
    "store_clickhouse": Bench("ingest, answers and bytes a fact on ClickHouse", "2 min"),
    "answers": Bench("every reading command on a node's day", "3 min, the first run a minute more"),
    "cli_start": Bench("how long `roofwatch --help` takes to start", "10 s"),
    "padding": Bench("foretold savings of padding against those that come", "30 s"),
    "regressions_power": Bench("windows that `regressions` needs, and false alarms", "3 min"),
    "store_long": Bench("answers of 400 days on SQLite", "10 min", "it takes long and nothing in it has a limit"),
    "fleet": Bench("125 to 1,000 agents against one store", "5 min", "it takes the whole machine for minutes"),
    "overhead": Bench("what profiling costs jobs", "7 min", "it wants an idle machine: make bench-overhead"),
    "gpu_smoke": Bench("the whole product on an NVIDIA GPU", "5 min", "it needs an NVIDIA GPU for five minutes"),
}


def main(
    arguments: Sequence[str] | None = None, folder: Path = HERE, benches: Mapping[str, Bench] | None = None
) -> int:
    """Exit 0 when every promised limit that could be measured holds, 1 otherwise."""
    known = BENCHES if benches is None else benches
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(known), metavar="NAME", help="these; see --list")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(listed(known)))
        return 0
    rows: dict[str, list[Row]] = {}
    for name, bench in known.items():
        if options.only is None and bench.left_out:
            rows[name] = [Row(name, skipped=f"{bench.left_out} (make bench BENCH={name})")]
        elif options.only is None or name in options.only:
            say(f"… {name}: {bench.measures}, {bench.takes}")
            rows[name] = run(folder / f"{name}.py")
    found = [row for some in rows.values() for row in some]
    print(table(found), flush=True)
    if options.json:
        told = [{"script": name, **asdict(row)} for name, some in rows.items() for row in some]
        options.json.write_text(json.dumps({"machine": machine(), "rows": told}, indent=1, ensure_ascii=False) + "\n")
    say(summary(found))
    return int(any(row.ok is False for row in found))


def run(script: Path, limit_s: float = TIME_LIMIT_S) -> list[Row]:
    """One script's rows as they come; that it failed, took too long or printed none is a row that does not hold."""
    begin, rows = time.monotonic(), []
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True, encoding="utf-8"
    ) as process:
        late = threading.Timer(limit_s, end, (process,))
        late.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                row = parsed(line)
                say(f"  {shown(row)}" if row else line.rstrip("\n"))
                rows += [row] if row else []
            code = process.wait()
        finally:  # interrupted: what runs is in a session of its own, and would go on
            late.cancel()
            end(process)
    took = time.monotonic() - begin
    say(f"  {took:.0f} s")
    if took > limit_s:
        rows.append(Row(script.stem, limit="runs", ok=False, problem=f"took more than {limit_s:g} s"))
    elif code not in {0, BROKEN}:
        rows.append(Row(script.stem, limit="runs", ok=False, problem=f"ended with exit code {code}"))
    elif not rows:
        rows.append(Row(script.stem, limit="runs", ok=False, problem="printed no row"))
    return rows


def end(process: subprocess.Popen[str]) -> None:
    """Interrupt a script and what it has started or left behind, as Ctrl-C does; kill it if it goes on."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def listed(benches: Mapping[str, Bench]) -> list[str]:
    """A line a benchmark."""
    lines = [f"{name:<18} {one.measures} ({one.takes})" for name, one in benches.items() if not one.left_out]
    lines += ["", "Only when named:"]
    lines += [
        f"{name:<18} {one.measures} ({one.takes}): {one.left_out}" for name, one in benches.items() if one.left_out
    ]
    return lines


def shown(row: Row) -> str:
    """A row while the table is still to come."""
    return f"{row.name}: {row.measured}" + (f" ({row.limit}: {MARKS[row.ok]})" if row.limit else "")


def table(rows: Sequence[Row]) -> str:
    """The figures in Markdown, as docs/performance.md holds them."""
    lines = [
        f"Measured {time.strftime('%Y-%m-%d')} on {machine()}.",
        "",
        "| what | measured | limit | holds |",
        "|---|---|---|---|",
    ]
    lines += [f"| {row.name} | {row.measured} | {row.limit or '–'} | {MARKS[row.ok]} |" for row in rows]
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """How many limits hold, and which do not."""
    hold, broken = sum(row.ok is True for row in rows), [row for row in rows if row.ok is False]
    skipped = sum(bool(row.skipped) for row in rows)
    counted = f"{number(hold)} limits hold, {len(broken)} do not, {skipped} rows were skipped"
    return "\n".join([counted, *(f"DOES NOT HOLD: {shown(row)}" for row in broken)])


def machine() -> str:
    """Processor, cores, kernel and Python of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    model, kernel = next(named, platform.machine()), platform.release().split("-")[0]
    return f"{os.cpu_count()} cores of {model}, Linux {kernel}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
