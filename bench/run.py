"""Run every benchmark of this folder and print one table of limits and figures.

A benchmark is a script that prints JSON lines ``{"name", "value", "unit", "limit", "ok"}`` on stdout (``limit`` as
text, ``ok`` null where nothing is promised) and its progress on stderr. They run one after another: two would measure
each other.

    python bench/run.py [--only NAME …] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"run.py", "gpu_smoke.py", "overhead.py"}  # the last takes 12 minutes: make bench-overhead
TIME_LIMIT_S = 1200


def main() -> int:
    """Exit 0 when every promised limit holds, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of scripts, without .py")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    scripts = sorted(p for p in HERE.glob("*.py") if p.name not in NOT_BENCHMARKS and not p.name.startswith("_"))
    rows: list[dict[str, object]] = []
    for script in scripts:
        if not options.only or script.stem in options.only:
            rows += run(script)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    return 1 if any(row["ok"] is False for row in rows) else 0


def run(script: Path) -> list[dict[str, object]]:
    """One script's rows; a script that fails or prints nothing is a row that is not ok."""
    print(f"… {script.stem}", file=sys.stderr, flush=True)
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, timeout=TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [failure(script, f"took more than {TIME_LIMIT_S} s")]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not rows:
        rows.append(failure(script, f"exit code {done.returncode}"))
    print(f"  {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return [{"script": script.stem, **row} for row in rows]


def failure(script: Path, why: str) -> dict[str, object]:
    """A row for a script that did not measure."""
    return {
        "script": script.stem,
        "name": f"{script.stem}: {why}",
        "value": None,
        "unit": "",
        "limit": "runs",
        "ok": False,
    }


def table(rows: list[dict[str, object]]) -> str:
    """The figures in Markdown, as docs/performance.md holds them."""
    marks = {True: "yes", False: "NO", None: "–"}
    lines = [
        f"Measured {time.strftime('%Y-%m-%d')} on {machine()}.",
        "",
        "| what | measured | limit | holds |",
        "|---|---|---|---|",
    ]
    lines += [f"| {r['name']} | {shown(r['value'])} {r['unit']} | {r['limit']} | {marks[r['ok']]} |" for r in rows]  # type: ignore[index]
    return "\n".join(lines)


def shown(value: object) -> str:
    """Three significant digits, thousands apart."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "–" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine() -> str:
    """Processor, cores, kernel and Python of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    model, kernel = next(named, platform.machine()), platform.release().split("-")[0]
    return f"{os.cpu_count()} cores of {model}, Linux {kernel}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
