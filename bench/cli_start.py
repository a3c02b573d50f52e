"""What ``roofwatch --help`` costs above a bare Python: median of some runs each, taken in turns.

python bench/cli_start.py [--runs N]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from _rows import row

RUNS = 11
LIMIT_S = 0.15
BARE = "python -c pass"
MEASURED = {
    BARE: ["-c", "pass"],
    "roofwatch --help": ["-m", "roofwatch.cli.main", "--help"],
    "roofwatch top --help": ["-m", "roofwatch.cli.main", "top", "--help"],
    "roofwatch run -- true": ["-m", "roofwatch.cli.main", "run", "--", "true"],
}


def seconds(arguments: list[str]) -> float:
    """Wall time of one start."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Print one row a command; only --help has a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {name: [] for name in MEASURED}
    for arguments in MEASURED.values():
        seconds(arguments)  # fill the caches of the file system
    for _ in range(runs):
        for name, arguments in MEASURED.items():
            times[name].append(seconds(arguments))
    bare = statistics.median(times.pop(BARE))
    for name, taken in times.items():
        limit = LIMIT_S if name == "roofwatch --help" else None
        row(f"`{name}` above bare Python", statistics.median(taken) - bare, "s", at_most=limit)


if __name__ == "__main__":
    main()
