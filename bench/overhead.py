"""What being profiled costs a job: nothing asked, the default rate, ten times the rate. Prints README's table.

The real hook and the real agent with its governor. Two runs of a job differ by more than a window costs, so blocks of
at least 20 steps with a window and without one are taken in turns inside one process (off on, on off, …), each pair
giving one difference; the table has their mean and its 95 % interval (Student's t). A phase ends when the interval's
half-width is at most 0.25 % of the job's time, or at its time cap, which is then said. The agent's clock passes over
the minutes in which nothing happens (``_overhead_agent.py``), so the share at a rate is what a window took × the
windows a minute that this very run counted, those that the governor put off included. Idle: CPU time of the hook's
thread ÷ wall time, and its call in each optimizer step. Absent is what all of it is measured against.

    python bench/overhead.py [--only CASE …] [--quick] [--write] [--json FILE]

About 7 minutes on two idle cores. Rows go to standard output, README's table to standard error. Exit code 3 where a
limit does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _overhead_case
import _overhead_memory
from _overhead_figures import DEFAULT_LIMIT, IDLE_LIMIT, LONGEST_LIMIT
from _rows import BROKEN, ROOT, row, say
from run import machine

README = ROOT / "README.md"
BEGIN, END = "<!-- overhead: written by make bench-overhead -->", "<!-- overhead: end -->"
CAP_S, IDLE_S = 28.0, 8.0
WINDOWS, MEMORY_CAP_S = 2000, 300.0
CASES = (
    _overhead_case.Case("training", "training", 1, "training: transformer"),
    _overhead_case.Case("training-2", "training", 2, "the same, gloo"),
    _overhead_case.Case("training-4", "training", 4, "the same, gloo"),
    _overhead_case.Case("inference", "inference", 1, "inference: transformer"),
    _overhead_case.Case("loader", "loader", 1, "DataLoader-heavy"),
    _overhead_case.Case("ops", "ops", 1, "eager, many small ops"),
)


def main() -> int:
    """Exit 0 when every limit holds, 3 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES] + ["memory"]
    parser.add_argument("--only", nargs="*", default=[], choices=names, metavar="CASE", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="a sixth of the time; says nothing about the limits")
    parser.add_argument("--write", action="store_true", help="put the table into README.md (a whole run only)")
    parser.add_argument("--json", type=Path, help="also write all figures here")
    options = parser.parse_args()
    if options.write and (options.only or options.quick):
        parser.error("--write wants a whole run: leave --only and --quick out")
    scale = 1 / 6 if options.quick else 1.0
    rows = [measured(case, scale) for case in CASES if not options.only or case.name in options.only]
    grown = memory(scale) if not options.only or "memory" in options.only else None
    text = table([found for found in rows if "error" not in found], grown)
    say(text)
    for found in rows:
        show(found)
    if grown is not None:
        show_memory(grown)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows, "memory": grown}, indent=1) + "\n")
    if options.write and all("error" not in found for found in rows):
        README.write_text(written(README.read_text(), text))
    broken = [line for found in rows for line in faults(found)] + ([] if grown is None else faults_of_memory(grown))
    for line in broken:
        say(f"DOES NOT HOLD: {line}")
    return BROKEN if broken else 0


def show(found: dict[str, Any]) -> None:
    """A case's rows."""
    name = f"overhead, {found['case']}"
    if "error" in found:
        row(f"{name}: did not run", 1, at_most=0, problem=found["error"])
        return
    default, without = found["default"], found["default"]["longest_step_without"]
    row(f"{name}: idle", 100 * found["idle"]["share"], "%", at_most=100 * IDLE_LIMIT)
    half = 100 * default["share"]["half"]
    row(f"{name}: default rate", 100 * default["share"]["mean"], "%", at_most=100 * DEFAULT_LIMIT, half_interval=half)
    row(f"{name}: longest step", default["longest_step"], "usual steps", at_most=max(LONGEST_LIMIT, without))


def show_memory(grown: dict[str, Any]) -> None:
    """The rows of memory."""
    found = faults_of_memory(grown)
    rate, windows = grown["slope_bytes_a_window"]["value"], grown["windows"]
    row(f"overhead: growth of memory over {windows:,} windows", rate, "bytes a window", problem="; ".join(found))


def measured(case: _overhead_case.Case, scale: float) -> dict[str, Any]:
    """One case's figures; one that could not run is told by its sentence."""
    say(f"… {case.name}")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="roofwatch-overhead-") as folder:
        try:
            found = _overhead_case.run(case, Path(folder), CAP_S * scale, IDLE_S * scale)
        except _overhead_case.Gone as gone:
            found = {"case": case.name, "error": str(gone)}
    say(json.dumps(found))
    say(f"  {time.monotonic() - begun:.0f} s")
    return found


def memory(scale: float) -> dict[str, Any]:
    """Two thousand windows in one process."""
    say("… memory")
    with tempfile.TemporaryDirectory(prefix="roofwatch-overhead-") as folder:
        found = _overhead_memory.run(Path(folder), round(WINDOWS * scale), MEMORY_CAP_S * scale)
    say(json.dumps(found))
    return found


def faults(row: dict[str, Any]) -> list[str]:
    """The limits that a case does not hold."""
    name = row["case"]
    if "error" in row:
        return [f"{name}: {row['error']}"]
    share, found = row["default"]["share"]["mean"], []
    if row["idle"]["share"] > IDLE_LIMIT:
        found.append(f"{name}: idle {percent(row['idle']['share'])}")
    if share > DEFAULT_LIMIT:
        found.append(f"{name}: {percent(share)} at the default rate")
    longest, without = row["default"]["longest_step"], row["default"]["longest_step_without"]
    if longest > max(LONGEST_LIMIT, without):  # a step that long without a window is not the window's
        found.append(f"{name}: the longest step is {longest:.1f} usual ones")
    return found


def faults_of_memory(grown: dict[str, Any]) -> list[str]:
    """The same of memory."""
    found = [] if grown["flat"] else [f"memory grows by {grown['slope_bytes_a_window']['value']:.0f} bytes a window"]
    if grown["windows"] < grown["asked_for"]:
        found.append(f"only {grown['windows']} windows in the time")
    return found


def table(rows: list[dict[str, Any]], grown: dict[str, Any] | None) -> str:
    """The figures in Markdown."""
    lines = [
        f"Measured {time.strftime('%Y-%m-%d')} on {machine()}. Means ± half of the 95 % interval, of n pairs.",
        "",
        "| job | ranks | idle | a window takes | default rate | 10 × the rate | longest step |",
        "|---|---|---|---|---|---|---|",
        *[line(row) for row in rows],
        "",
        "*Idle*: the hook is there and nothing is asked, against a job without it. *Default rate*, *10 ×*: what a",
        "window took × the windows a minute that this run counted, the default budget in force. *Longest step*: in",
        "usual steps, of all blocks with windows at the default rate (of all without). †: the time cap came before a",
        "half-width of 0.25 % of the job's time.",
    ]
    if grown is not None:
        rate = grown["slope_bytes_a_window"]
        kept = f"{grown['warm_mb']:.1f} MB after the first tenth, {grown['last_mb']:.1f} MB at the end"
        change = f"{rate['value']:.0f} ± {rate['half']:.0f} bytes a window"
        lines += ["", f"Memory over {grown['windows']:,} windows in one process: {kept}; {change}."]
    return "\n".join(lines)


def line(row: dict[str, Any]) -> str:
    """A case's row."""
    default, often = row["default"], row["often"]
    took = default["window_ms"]
    return (
        f"| {row['title']} | {row['ranks']} | {percent(row['idle']['share'])} "
        f"| {took['mean']:.0f} ± {took['half']:.0f} ms (n {took['n']}) | {share(default)} | {share(often)} "
        f"| {default['longest_step']:.1f} ({default['longest_step_without']:.1f}) |"
    )


def share(phase: dict[str, Any]) -> str:
    """A share of the job's time with its interval and rate."""
    found, mark = phase["share"], "" if phase["half_width_reached"] else " †"
    return (
        f"{100 * found['mean']:.2f} ± {100 * found['half']:.2f} % at {phase['windows_a_minute']:.1f} a minute"
        f" (n {found['n']}){mark}"
    )


def percent(value: float) -> str:
    """As the table shows it."""
    return f"{100 * value:.3f} %" if value >= 0.00001 else "< 0.001 %"


def written(readme: str, text: str) -> str:
    """README with the table between its two marks."""
    before, found, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"README.md has no {BEGIN} … {END}: put them where the table belongs")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
