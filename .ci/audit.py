"""Ask whether a version that we pin has a known vulnerability: pip-audit, in an environment of its own.

Its database is on the network. Where that cannot be reached nothing fails, and a line says that nothing was audited;
what needs no network (pins, licences, use) is tested in tests/packaging/test_dependencies.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PIP_AUDIT = "pip-audit==2.10.1"
WITHIN_S = 180
# Vulnerability → why it does not concern us, and until when that is believed.
ACCEPTED: dict[str, str] = {}


def asked(folder: Path) -> str:
    """What pip-audit says of constraints.txt, as JSON; "" where it cannot be had."""
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PIP_AUDIT)
    audit = (
        folder / "bin" / "pip-audit", "--requirement", ROOT / "constraints.txt", "--no-deps", "--disable-pip",
        "--format", "json", "--progress-spinner", "off", "--timeout", "10",
    )  # fmt: skip
    try:
        subprocess.run(pip, check=True, timeout=WITHIN_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
        return subprocess.run(  # noqa: S603
            audit, check=False, timeout=WITHIN_S, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def judged(answer: str) -> int:
    """Print what was found; 1 where a pinned version has a hole that nobody has accepted."""
    try:
        rows: list[dict[str, Any]] = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        rows = []
    looked_at = [row for row in rows if "vulns" in row]
    if not looked_at:
        print("NOT AUDITED for known vulnerabilities: no database could be reached")  # noqa: T201
        return 0
    found = [
        f"{row['name']} {row['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version yet'}"
        for row in looked_at
        for hole in row["vulns"]
        if hole["id"] not in ACCEPTED
    ]
    left_out = [row["name"] for row in rows if "vulns" not in row]
    print("\n".join(found) or f"{len(looked_at)} packages, no known vulnerability")  # noqa: T201
    if left_out:
        print(f"not in the database: {', '.join(left_out)}")  # noqa: T201
    return 1 if found else 0


def main() -> int:
    """Audit, or judge an answer that is there already."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answer", type=Path, help="a file with pip-audit's answer, instead of asking")
    given = parser.parse_args()
    if given.answer is not None:
        return judged(given.answer.read_text())
    with tempfile.TemporaryDirectory(prefix="roofwatch-audit-") as folder:
        return judged(asked(Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
