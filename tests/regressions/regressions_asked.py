"""Two sides of windows, and ``roofwatch regressions`` asked about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from regression_scene import Scene, Work, kernel

from roofwatch.model.record import DeviceState

Roofwatch = Callable[..., Any]
WORK = tuple(Work(kernel(i)) for i in range(30))
BEFORE = Scene(WORK, 30, {"image": "v1"})
AFTER = Scene(WORK, 30, {"image": "v2"}, seed=2, first_minute=60, pid=200)
SIDES = ("--since", "all", "--before", "image=v1", "--after", "image=v2")
FAST = DeviceState(clock_hz=1.98e9, power_limit_w=700.0, throttle="")


def asked(roofwatch: Roofwatch, url: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer."""
    done = roofwatch("regressions", "--db", url, *SIDES, "--format", "json", "--limit", "0", *more)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def table(roofwatch: Roofwatch, url: str) -> str:
    """What a user reads, in one line."""
    done = roofwatch("regressions", "--db", url, *SIDES)
    assert max(map(len, done.stdout.splitlines())) <= 80
    return " ".join(done.stdout.split())


def verdicts(answer: dict[str, Any]) -> dict[str, str]:
    """The verdict of each kernel that is not the same, by the name that it has now."""
    return {row["kernel"]: row["verdict"] for row in answer["rows"] if row["verdict"] != "same"}
