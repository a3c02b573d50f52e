"""The account of windows: what agents sealed, by triggers in their spools, against what the store holds in the end.

A trigger runs inside the agent's own transaction, so what it notes is exactly what was sealed and what was let go,
whenever the agent is killed. The comparison is pure; tests show that it finds what it has to.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

# Reasons for which a *sealed* window may be given up; the other reasons are of windows that never were.
GIVEN_UP = frozenset({"spool_bytes", "spool_age", "store_rejected"})
_WATCH = """
CREATE TABLE IF NOT EXISTS soak (
  id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT, boot TEXT, sequence INTEGER, envelope BLOB);
CREATE TRIGGER IF NOT EXISTS soak_in AFTER INSERT ON segment BEGIN
  INSERT INTO soak (what, boot, sequence, envelope) VALUES ('sealed', new.boot, new.sequence, new.envelope); END;
CREATE TRIGGER IF NOT EXISTS soak_out AFTER DELETE ON segment BEGIN
  INSERT INTO soak (what, boot, sequence) VALUES ('gone', old.boot, old.sequence); END;
"""
Key = tuple[str, int]  # boot, sequence


@dataclass
class Sealed:
    """What one segment held."""

    uids: list[str]
    total_ns: int
    drops: dict[str, int]
    gone: bool = False  # no longer in the spool: acknowledged, or given up


@dataclass
class Spooled:
    """All that one agent sealed so far."""

    node: str
    path: Path
    agent: str = ""
    segments: dict[Key, Sealed] = field(default_factory=dict)
    # Windows that were stored and are told as given up: their ack was lost, and no agent can know.
    stored_and_told: int = 0
    _seen: int = 0

    def watch(self) -> None:
        """Add the triggers to a spool that an agent has just made."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as spool:
            spool.executescript(_WATCH)
            self.agent = str(spool.execute("SELECT value FROM meta WHERE key = 'agent'").fetchone()[0])

    def harvest(self, *, last: bool = False) -> None:
        """Take what was noted since; where the spool is busy or its disk full, the next time."""
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=10.0 if last else 0.2)) as spool:
                for row in spool.execute("SELECT * FROM soak WHERE id > ? ORDER BY id", (self._seen,)).fetchall():
                    self._note(*row)
                with spool:
                    spool.execute("DELETE FROM soak WHERE id <= ?", (self._seen,))
        except sqlite3.Error:
            if last:
                raise

    def _note(self, number: int, what: str, boot: str, sequence: int, envelope: bytes | None) -> None:
        self._seen = number
        if what == "gone":
            self.segments[boot, sequence].gone = True
            return
        message = codec.unseal(pb.SegmentEnvelope.FromString(envelope or b""))
        uids = [window.uid.hex() for window in message.windows]
        total = sum(sum(window.kernels.total_ns) for window in message.windows)
        self.segments[boot, sequence] = Sealed(uids, total, dict(message.agent_drops))


@dataclass
class Held:
    """What a store holds."""

    segments: Mapping[str, set[Key]]  # by agent
    uids: Iterable[str]  # of all windows, as often as they are there
    drops: Mapping[str, Mapping[str, int]]  # by agent: reason → windows
    totals: Mapping[str, int]  # by node: kernel time that `top` tells


def compare(spools: Iterable[Spooled], held: Held) -> list[str]:
    """What does not add up, in sentences."""
    found: list[str] = []
    there = Counter(held.uids)
    expected: Counter[str] = Counter()
    for spool in spools:
        stored = held.segments.get(spool.agent, set())
        found += _of_one(spool, stored, held, there)
        for key in stored & set(spool.segments):
            expected.update(spool.segments[key].uids)
    found += [f"window {uid} is stored {number} times" for uid, number in there.items() if number > 1]
    found += [f"window {uid} is stored and nobody sealed it" for uid in there if uid not in expected]
    return found


def _of_one(spool: Spooled, stored: set[Key], held: Held, there: Mapping[str, int]) -> list[str]:
    found: list[str] = []
    given_up, told, total = 0, Counter[str](), 0
    for key, segment in spool.segments.items():
        name = f"{spool.node}: segment {key[1]} of boot {key[0][:8]} ({len(segment.uids)} windows)"
        if key in stored:
            missing = [uid for uid in segment.uids if uid not in there]
            found += [f"{name} is stored without {len(missing)} of its windows"] if missing else []
            found += [] if segment.gone else [f"{name} is stored and still in the spool: its ack is missing"]
            told.update(segment.drops)
            total += segment.total_ns
        elif segment.gone:
            given_up += len(segment.uids)
        else:
            found.append(f"{name} is neither stored nor given up: it waits in the spool")
    found += [f"{spool.node}: a segment is stored that was never sealed: {key}" for key in stored - set(spool.segments)]
    reasons = sum(number for reason, number in told.items() if reason in GIVEN_UP)
    spool.stored_and_told = max(0, reasons - given_up)
    if given_up > reasons:
        found.append(
            f"{spool.node}: {given_up} sealed windows left the spool and are not stored, and {reasons} were told as "
            f"given up ({', '.join(f'{r} {n}' for r, n in sorted(told.items())) or 'no reason'})"
        )
    drops = dict(held.drops.get(spool.agent, {}))
    if dict(told) != drops:
        found.append(f"{spool.node}: the store tells drops {drops}, sent were {dict(told)}")
    if total != held.totals.get(spool.node, 0):
        found.append(f"{spool.node}: top tells {held.totals.get(spool.node, 0)} ns of kernels, stored were {total}")
    return found
