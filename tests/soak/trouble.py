"""Carries the plan out: each event is begun, and ended when its time is over. What has gone meanwhile is left alone."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chaos import Event
from parts import family, signal_all
from world import AFTER_S, Site

Undo = Callable[[], None]


@dataclass
class Trouble:
    """What is to come, and what is going on."""

    site: Site
    events: list[Event]
    begun: float
    done: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _going_on: list[tuple[float, Undo]] = field(default_factory=list)

    def look(self) -> None:
        """Begin and end what is due."""
        now = time.monotonic() - self.begun
        for entry in [e for e in self._going_on if e[0] <= now]:
            self._going_on.remove(entry)
            entry[1]()
        while self.events and self.events[0].at <= now:
            event = self.events.pop(0)
            undo = getattr(self, f"_{event.kind}")(event)
            name = f"{event.kind} {event.target}"
            if undo is None:
                self.skipped[name] += 1  # nobody is there
                continue
            self.done[name] += 1
            self._going_on.append((event.until, undo))

    def _until(self, event: Event) -> float:
        return self.begun + event.until

    def _kill(self, event: Event) -> Undo | None:
        if event.target == "postgres":
            self.site.server.kill(self._until(event))
        elif not self.site.parts[event.target].pid:
            return None
        else:
            self.site.parts[event.target].kill(self._until(event))
        return _nothing

    def _terminate(self, event: Event) -> Undo | None:
        part = self.site.parts[event.target]
        if not part.pid or any(pid in self._stopped() for pid in [part.pid]):
            return None  # who is stopped hears nothing
        wrong = part.terminate(self._until(event))
        self.wrong += [wrong] if wrong else []
        return _nothing

    def _stopped(self) -> set[int]:
        return {pid for pids in self._stops for pid in pids}

    _stops: list[Sequence[int]] = field(default_factory=list)

    def _pids(self, target: str) -> list[int]:
        if target == "postgres":
            return self.site.server.pids()
        if target == "job":
            running = list(self.site.slots.running.values())
            return family(self.site.draw.choice(running).process.pid) if running else []
        if target.startswith("worker"):
            return self.site.workers(target.split()[1])
        return [pid] if (pid := self.site.parts[target].pid) else []

    def _stop(self, event: Event) -> Undo | None:
        pids = self._pids(event.target)
        if not pids:
            return None
        if event.target == "postgres":
            self.site.stopped_until = self._until(event) + AFTER_S
        signal_all(pids, signal.SIGSTOP)
        self._stops.append(pids)

        def go_on() -> None:
            self._stops.remove(pids)
            signal_all(pids, signal.SIGCONT)

        return go_on

    def _end(self, event: Event) -> Undo | None:
        if event.target == "job":
            running = list(self.site.slots.running.values())
            if not running:
                return None
            self.site.slots.kill(self.site.draw.choice(running))
        elif pids := self._pids(event.target):
            signal_all(pids, signal.SIGKILL)
        else:
            return None
        return _nothing

    def _network(self, event: Event) -> Undo:
        line = self.site.lines[event.target]
        self.site.network.set(line, event.kind)
        return lambda: self.site.network.set(line, "pass")

    _cut = _stall = _slow = _network

    def _fill(self, event: Event) -> Undo | None:
        disk = self.site.disks["pg" if event.target == "postgres" else event.target.split()[1]]
        if not disk.small:
            return None
        disk.fill()
        return disk.free

    def _clock(self, event: Event) -> Undo | None:
        clock = self.site.clocks["store" if event.target == "store" else event.target.split()[1]]
        if not clock.library:
            return None
        clock.set(event.by)
        return lambda: clock.set(0)


def _nothing() -> None:
    """A supervisor does it."""
