"""How long every reading command takes on a store of 24 hours of one node (bench/_day.py).

Real processes, against the file (--db) and against a served store (--store): wall time, the best of ROUNDS. The first
run builds the store (about a minute) in build/bench and keeps it.

    python bench/answers.py [--only COMMAND …] [--rounds N] [--way db|store|both]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _day
from _rows import CACHE, row

from roofwatch.cli.fleet.local import local_store

PROGRAM = (str(Path(sys.executable).with_name("roofwatch")),)
ROUNDS = 3
ODD = ("--since", "2027-01-01T03:17:29Z", "--until", "2027-01-01T21:41:07Z")  # neither end is a whole hour
ALL = ("--since", "all")
SIDES = ("version=v1", "version=v2")

# name → arguments and the limit in seconds
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "top": (("top", *ALL), 1.0),
    "top of odd hours": (("top", *ODD), 1.0),
    "top of one process": (("top", *ALL, "--process", "1003"), 1.0),
    "top of one label": (("top", *ALL, "--label", "version=v2"), 1.0),
    "roofline": (("roofline", *ALL), 1.0),
    "timeline": (("timeline", *ALL), 1.0),
    "timeline by window": (("timeline", *ALL, "--by", "window"), 1.0),
    "timeline of odd hours": (("timeline", *ODD), 1.0),
    "diagnose": (("diagnose", *ALL), 1.0),
    "diagnose of odd hours": (("diagnose", *ODD), 1.0),
    "nodes": (("nodes", *ALL), 1.0),
    "processes": (("processes", *ALL), 1.0),
    "windows": (("windows", *ALL), 1.0),
    "padding": (("padding", *ALL), 1.0),
    "whatif": (("whatif", *ALL, "--weights", "int4"), 1.0),
    "ranks": (("ranks", *ALL, "--job", _day.JOB), 1.0),
    "compare": (
        ("compare", *ALL, "--model", _day.MODEL, "--left", f"label={SIDES[0]}", "--right", f"label={SIDES[1]}"), 3.0,
    ),
    "regressions": (
        ("regressions", *ALL, "--model", _day.MODEL, "--before", f"label={SIDES[0]}", "--after", f"label={SIDES[1]}"),
        3.0,
    ),
    "report": (("report", *ALL, "-o", "report.html"), 5.0),
}  # fmt: skip


def exists(command: str) -> bool:
    """Whether this version has the command."""
    from roofwatch.cli.main import READING  # noqa: PLC0415

    return command in READING


def timed(arguments: tuple[str, ...], where: tuple[str, ...], folder: Path, rounds: int) -> tuple[float, float, str]:
    """Least wall time and least CPU time of the command's process, and what it wrote to stderr if it failed."""
    walls, cpus, error = [], [], ""
    for _ in range(rounds):
        begin, before = time.perf_counter(), os.times()
        done = subprocess.run([*PROGRAM, *arguments, *where], capture_output=True, text=True, cwd=folder, check=False)
        after = os.times()
        walls.append(time.perf_counter() - begin)
        cpus.append(after.children_user + after.children_system - before.children_user - before.children_system)
        if done.returncode not in {0, 1} or (done.returncode == 1 and not done.stdout):
            error = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"
    return min(walls), min(cpus), error


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of commands")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--way", choices=("db", "store", "both"), default="both")
    options = parser.parse_args()
    file = _day.day(CACHE)
    wanted = {
        name: told for name, told in COMMANDS.items()
        if exists(told[0][0]) and (not options.only or told[0][0] in options.only or name in options.only)
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.way != "store":
            for label, (arguments, limit) in wanted.items():
                wall, cpu, error = timed(arguments, ("--db", f"sqlite:///{file}"), folder, options.rounds)
                row(f"answer of a day from the file: {label}", wall, "s", at_most=limit, problem=error, cpu_s=cpu)
        if options.way != "db":
            with local_store(folder, f"sqlite:///{file}") as store:
                for label, (arguments, limit) in wanted.items():
                    wall, cpu, error = timed(arguments, ("--store", store.address), folder, options.rounds)
                    row(f"answer of a day from a store: {label}", wall, "s", at_most=limit, problem=error, cpu_s=cpu)
    size = file.stat().st_size / (_day.MINUTES * _day.DEVICES * _day.ROWS)
    row("a day of one node: bytes a row, everything included", size, "B")


if __name__ == "__main__":
    main()
