"""What goes wrong and when: a plan that is the same for the same seed and length."""

from __future__ import annotations

import random
from dataclasses import dataclass

AGENTS = ("a", "b")
# kind → targets; every entry of the deck comes once before any comes again.
DECK = {
    "kill": ("agent a", "agent b", "store", "postgres"),
    "terminate": ("agent a", "agent b", "store"),
    "stop": ("agent a", "agent b", "store", "postgres", "worker a", "worker b", "job"),
    "end": ("worker a", "worker b", "job", "job"),  # SIGKILL of what nobody starts again by itself
    "cut": AGENTS,
    "stall": AGENTS,
    "slow": AGENTS,
    "fill": ("agent a", "agent b", "postgres"),
    "clock": ("agent a", "store"),
}
LONGEST_S = {"kill": 4.0, "terminate": 3.0, "stop": 6.0, "end": 0.0, "cut": 8.0, "stall": 8.0, "slow": 10.0,
             "fill": 8.0, "clock": 12.0}  # fmt: skip
# At the beginning of the last part, where it is long: hours are over at once, so a store sums them up. What it takes to
# do that for the first time it takes before its memory counts.
LATER_S, LATER_FOR_S, LATER_LEAST_S = 3 * 86_400.0, 35.0, 120.0
CLOCKS_S = (-7_200, -90, 40, 1_200, 10_800, 3 * 86_400, -2 * 86_400)
# In the last part the store and one agent live on, so that their memory can be told to be flat.
STEADY = {("kill", "store"), ("terminate", "store"), ("kill", "agent b"), ("terminate", "agent b"),
          ("kill", "postgres")}  # fmt: skip


@dataclass(frozen=True)
class Event:
    """Something that goes wrong, from a moment until another, in seconds since the beginning."""

    at: float
    until: float
    kind: str
    target: str
    by: float = 0.0  # of a clock: seconds


def plan(seed: int, seconds: float, steady_from: float, every: float) -> list[Event]:
    """Events, in order; the last ones are over a little before the end."""
    draw = random.Random(seed)
    deck: list[tuple[str, str]] = []
    found: list[Event] = []
    at = 0.0
    while at < seconds:
        if not deck:
            deck = [(kind, target) for kind, targets in DECK.items() for target in targets]
            draw.shuffle(deck)
        kind, target = deck.pop()
        if at >= steady_from and (kind, target) in STEADY:
            continue
        until = min(at + draw.uniform(0.2, 1.0) * LONGEST_S[kind], seconds)
        found.append(Event(at, until, kind, target, draw.choice(CLOCKS_S) if kind == "clock" else 0.0))
        at += draw.uniform(0.4, 1.6) * every
    return _with_later(found, steady_from) if seconds - steady_from >= LATER_LEAST_S else found


def _with_later(events: list[Event], steady_from: float) -> list[Event]:
    """With the store's clock days ahead at the beginning of the last part, and no other step of it meanwhile."""
    later = Event(steady_from, steady_from + LATER_FOR_S, "clock", "store", LATER_S)
    kept = [e for e in events if (e.kind, e.target) != ("clock", "store") or e.until < later.at or e.at > later.until]
    return sorted([*kept, later], key=lambda event: event.at)
