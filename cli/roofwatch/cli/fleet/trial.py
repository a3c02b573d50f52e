"""A replay with everything around it: the store, where none runs, and its folder."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from roofwatch.cli.fleet.local import local_store
from roofwatch.cli.fleet.replay import Plan, Replayed, replay
from roofwatch.model.record import Window


def plan(nodes: int, rate: float, seconds: float, seed: int) -> Plan:
    """A run under a name that no other run has."""
    return Plan(nodes, rate, seconds, seed, secrets.token_hex(4))


def replayed(windows: Sequence[Window], wanted: Plan, store: str | None, db: str | None) -> Replayed:
    """Send to a running store, or to one that is started for it.

    Raises:
        RoofwatchError: the store does not start.
        UnreachableError: not all agents could connect.
    """
    if store:
        return replay(windows, wanted, store, None, _say)
    with tempfile.TemporaryDirectory(prefix="roofwatch-replay-") as name, local_store(Path(name), db) as local:
        return replay(windows, wanted, local.address, local, _say)


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
