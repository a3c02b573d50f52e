"""What ``roofwatch --help`` costs above a bare Python: median of 11 runs each, taken in turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

RUNS = 11
LIMIT_S = 0.15
MEASURED = {
    "python -c pass": ["-c", "pass"],
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
    """Print one line a command; only --help has a limit."""
    times: dict[str, list[float]] = {name: [] for name in MEASURED}
    for arguments in MEASURED.values():
        seconds(arguments)  # fill the caches of the file system
    for _ in range(RUNS):
        for name, arguments in MEASURED.items():
            times[name].append(seconds(arguments))
    bare = statistics.median(times["python -c pass"])
    for name in MEASURED:
        if name == "python -c pass":
            continue
        value = round(statistics.median(times[name]) - bare, 4)
        limited = name == "roofwatch --help"
        print(
            json.dumps(
                {
                    "name": f"`{name}` above bare Python",
                    "value": value,
                    "unit": "s",
                    "limit": f"≤ {LIMIT_S} s" if limited else "–",
                    "ok": value <= LIMIT_S if limited else None,
                },
                ensure_ascii=False,
            )
        )


if __name__ == "__main__":
    main()
