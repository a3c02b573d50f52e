"""A replay with everything around it: the store, where none runs, and its folder."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from roofwatch.cli import trusting
from roofwatch.cli.asking import ask
from roofwatch.cli.fleet.local import local_store
from roofwatch.cli.fleet.replay import Plan, Replayed, replay
from roofwatch.model.errors import UnreachableError
from roofwatch.model.record import Window
from roofwatch.proto import handshake
from roofwatch.proto.trust import Material
from roofwatch.store.config import format_address, is_loopback, parse_address
from roofwatch.store.filter import Filter


def plan(nodes: int, rate: float, seconds: float, seed: int) -> Plan:
    """A run under a name that no other run has."""
    return Plan(nodes, rate, seconds, seed, secrets.token_hex(4))


def replayed(windows: Sequence[Window], wanted: Plan, store: str | None, db: str | None) -> Replayed:
    """Send to a running store, or to one that is started for it.

    Raises:
        RoofwatchError: the store does not start.
        UnreachableError: not all agents could connect.
        UsageError: the connection would be plain text, or a file of trust cannot be used.
    """
    if store:
        host, port = parse_address(store)
        trust = trusting.given()
        trust.check(store, loopback=is_loopback(host))
        material = trust.load()
        ask("nodes", Filter(), 1, store=store, db=None)  # whether it lets in who asks: told at once, in a sentence
        try:
            return replay(windows, wanted, format_address(host, port), None, _say, material)
        except UnreachableError as error:
            if not (problem := handshake.ask(host, port, material).problem):
                raise
            raise UnreachableError(f"the store at {store} {problem}") from error
    with tempfile.TemporaryDirectory(prefix="roofwatch-replay-") as name, local_store(Path(name), db) as local:
        return replay(windows, wanted, local.address, local, _say, Material())


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
