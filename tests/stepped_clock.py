"""A clock of some processes' own, which a test can set: the machine's is never touched."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Clock:
    """A clock of some processes' own, by libfaketime."""

    file: Path
    library: str

    def env(self) -> dict[str, str]:
        """For their environment; nothing where there is no such library."""
        if not self.library:
            return {}
        path = [str(Path(__file__).parent / "faked_clock"), os.environ.get("PYTHONPATH", "")]
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, path)), "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def set(self, by: float) -> None:
        """So many seconds from the machine's, at once and for all."""
        beside = self.file.with_suffix(".new")
        beside.write_text(f"{by:+.0f}\n")
        beside.rename(self.file)


def faketime() -> str:
    """libfaketime, installed or fetched; "" where there is none."""
    for folder in (Path("/usr/lib"), ROOT / "build" / "faketime" / "usr" / "lib"):
        for found in sorted(folder.glob("*/faketime/libfaketimeMT.so.1")):
            return str(found)
    into = ROOT / "build" / "faketime"
    into.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["apt-get", "download", "libfaketime"], cwd=into, check=True, capture_output=True, timeout=60)
        subprocess.run(["dpkg", "-x", *map(str, into.glob("*.deb")), "."], cwd=into, check=True, capture_output=True)
    return next((str(p) for p in sorted(into.glob("usr/lib/*/faketime/libfaketimeMT.so.1"))), "")
