"""Soak and chaos: a store on Postgres, two agents and twelve jobs that come and go, while everything goes wrong.

    python tests/soak/run.py --minutes 20 --seed 1

Everything gets SIGKILL and SIGSTOP, networks are cut and slow, disks fill up, clocks are stepped. At the end
nothing may be lost, doubled or left over, and every job must have given what it gives without us. Prints a table; exits
1 on any finding.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import chaos
import isolate
import leaks
import ledger
import slots
from parts import signal_all
from stepped_clock import faketime
from world import Site

ROOT = Path(__file__).resolve().parents[2]
BUILD_S = 60.0  # of the time that was asked for: references, starting, coming to rest, accounts
CHAOS_LEAST_S, STEADY_SHARE = 45.0, 0.4
DRAINED_WITHIN_S, GONE_WITHIN_S = 120.0, 10.0
# Threads and descriptors that come with the first work and stay: pools, connections.
POOLS = {"store": (8, 8), "agent": (1, 3)}
SAVING = "/roofwatch-window-"  # a folder that a killed job leaves, empty but for a link, for ten minutes
WINDOWS_LEAST = 0.05  # a second of chaos and agent; fewer prove nothing


@dataclass
class Soak:
    """One run."""

    site: Site
    seconds: float
    seed: int
    findings: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    samples: leaks.Samples = field(default_factory=leaks.Samples)

    def run(self) -> None:
        """All of it, in order."""
        site = self.site
        begun = time.monotonic()
        expected = slots.references(site.lengths, site.env("jobs"))
        site.build()
        site.slots.expected = expected
        self.notes["jobs measured without us"] = f"{len(expected)}"
        self._wait(site.connected, 30, "agents did not connect")
        new = site.held()
        length = max(CHAOS_LEAST_S, self.seconds - BUILD_S - (time.monotonic() - begun))
        steady = length * (1 - STEADY_SHARE)
        trouble = self._chaos(length, steady)
        site.heal()
        self._wait(lambda: not site.slots.running, slots.ENDS_WITHIN_S + 60, "jobs did not end")
        self._wait(self._drained, DRAINED_WITHIN_S, "spools did not empty")
        signal_all(self._workers(), signal.SIGKILL)  # idle ones live for 100 s, which nobody waits for here
        self._wait(lambda: not self._workers(), GONE_WITHIN_S, "parse workers that were killed are still there")
        self._at_rest(new)
        self._stop(length)
        self.findings += trouble.wrong + site.slots.wrong + [u for p in site.parts.values() for u in p.unmeant]
        self._told(trouble, length)

    def _chaos(self, length: float, steady: float) -> Any:
        from trouble import Trouble  # noqa: PLC0415

        events = chaos.plan(self.seed, length - 5, steady, every=2.0)
        trouble = Trouble(self.site, events, time.monotonic())
        if length - steady >= chaos.LATER_LEAST_S:
            self.samples.warm_s = trouble.begun - self.samples.begun + steady + leaks.WARM_S
        sampled = 0.0
        while (now := time.monotonic() - trouble.begun) < length:
            self.site.look(jobs=True)
            trouble.look()
            for disk in self.site.disks.values():
                if disk.full:
                    disk.fill()
            if now - sampled > 2.0:
                sampled = now
                self.samples.take(self.site.pids())
                for spool in self.site.spools.values():
                    spool.harvest()
            time.sleep(0.1)
        self.samples.rest_s = time.monotonic() - self.samples.begun
        return trouble

    def _wait(self, ready: Callable[[], bool], within: float, what: str) -> None:
        until, sampled = time.monotonic() + within, 0.0
        while not ready():
            self.site.look(jobs=False)
            if time.monotonic() - sampled > 2.0:
                sampled = time.monotonic()
                self.samples.take(self.site.pids())
            if time.monotonic() > until:
                self.findings.append(f"{what} within {within:.0f} s")
                return
            time.sleep(0.1)

    def _workers(self) -> list[int]:
        return self.site.workers("a") + self.site.workers("b")

    def _drained(self) -> bool:
        for spool in self.site.spools.values():
            spool.harvest()
        return all(segment.gone for spool in self.site.spools.values() for segment in spool.segments.values())

    def _at_rest(self, new: dict[str, leaks.Held]) -> None:
        """What daemons hold when nothing is to do, beside what they held when they were new."""
        for name, held in self.site.held().items():
            threads, descriptors = POOLS[name.split()[0]]
            self.findings += leaks.grown(name, new[name], held, threads=threads, descriptors=descriptors)
            self.notes[f"{name}, new → at rest"] = (
                f"{len(new[name].descriptors)} → {len(held.descriptors)} descriptors, "
                f"{new[name].threads} → {held.threads} threads"
            )
        for slope in self.samples.slopes():
            self.notes[f"memory of {slope.name}"] = slope.told()
            if slope.grows():
                self.findings.append(f"memory is not flat: {slope.told()}")

    def _stop(self, length: float) -> None:
        """Everything in order; then the accounts, and what is left over."""
        site = self.site
        for name in ("agent a", "agent b"):
            wrong = site.parts[name].terminate()
            self.findings += [wrong] if wrong else []
        for spool in site.spools.values():
            spool.harvest(last=True)
        wrong = site.parts["store"].terminate()
        self.findings += [wrong] if wrong else []
        held = site.stored()
        self.findings += ledger.compare(site.spools.values(), held)
        self._windows(held, length)
        site.server.postgres.stop()
        site.network.close()
        self._left_over()

    def _windows(self, held: ledger.Held, length: float) -> None:
        for name, spool in site_spools(self.site):
            sealed = [uid for segment in spool.segments.values() for uid in segment.uids]
            there = held.segments.get(spool.agent, set())
            stored = sum(len(s.uids) for key, s in spool.segments.items() if key in there)
            drops = counted_text(held.drops.get(spool.agent, {}))
            self.notes[f"windows of agent {name}"] = (
                f"{len(sealed)} sealed in {len(spool.segments)} segments, {stored} stored, "
                f"{len(sealed) - stored} given up; told drops: {drops}"
                f"; stored and told as given up, as their acks were lost: {spool.stored_and_told}"
            )
            if len(sealed) < WINDOWS_LEAST * length:
                self.findings.append(f"agent {name} sealed {len(sealed)} windows only: this soak proves nothing")

    def _left_over(self) -> None:
        site = self.site
        time.sleep(0.5)
        left = leaks.processes()
        of_jobs = leaks.files(site.folder / "jobs", only=leaks.OURS)
        killed = [one for one in of_jobs if SAVING in one]
        self.notes["folders of jobs that were killed while they saved"] = f"{len(killed)}, which the next hook removes"
        left += leaks.files(site.folder / "tmp") + [one for one in of_jobs if one not in killed]
        left += leaks.files(site.folder / "home", allowed=(".cache",))
        for name in ("a", "b"):
            left += leaks.files(site.folder / name, allowed=("spool.db", "spool.lock"))
            left += leaks.files(site.folder / f"run-{name}")
        if site.isolated:
            left += leaks.sockets() + leaks.segments()
            left += [
                one
                for one in leaks.files(Path("/dev/shm"))  # noqa: S108
                if "faketime" not in one and "/torch_" not in one
            ]
        self.findings += left

    def _told(self, trouble: Any, length: float) -> None:
        site = self.site
        self.notes["chaos"] = f"{length:.0f} s, {sum(trouble.done.values())} events, seed {self.seed}"
        self.notes["events"] = counted_text(trouble.done)
        self.notes["events with nobody there"] = counted_text(trouble.skipped)
        self.notes["jobs ended"] = counted_text(site.slots.ended)
        starts = {name: part.started for name, part in site.parts.items()}
        self.notes["started"] = counted_text({**starts, "postgres": site.server.started + 1})
        self.notes["Postgres went down by itself"] = str(site.server.deaths)
        if sum(site.slots.ended.values()) == 0:
            self.findings.append("no job came to its end: this soak proves nothing")


def counted_text(counts: Mapping[str, int]) -> str:
    """For people."""
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items())) or "none"


def site_spools(site: Site) -> list[tuple[str, ledger.Spooled]]:
    """By name of the agent."""
    return sorted(site.spools.items())


def main() -> int:
    """Run, print, exit."""
    parser = argparse.ArgumentParser(description="Soak and chaos.")
    parser.add_argument("--minutes", type=float, default=20.0, help="in all (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="of what goes wrong, and of the jobs (default 1)")
    parser.add_argument("--json", action="store_true", help="print one object instead of the table")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs")
    options = parser.parse_args()
    os.environ.setdefault("ROOFWATCH_SOAK_FAKETIME", faketime())
    isolated = isolate.enter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("soak: stopped"))  # the first of a namespace has no default
    library = os.environ["ROOFWATCH_SOAK_FAKETIME"]
    folder = Path(tempfile.mkdtemp(prefix="rwsoak-"))
    folder.chmod(0o755)  # Postgres is another user
    seconds = options.minutes * 60
    lengths = slots.LENGTHS_S if seconds > 400 else slots.LENGTHS_S[:2]
    site = Site(folder, isolated, library, random.Random(options.seed), lengths)
    soak = Soak(site, seconds, options.seed)
    begun = time.monotonic()
    try:
        soak.run()
    except Exception as error:  # noqa: BLE001 - what else was found is told all the same
        traceback.print_exc()
        soak.findings.append(f"the soak did not come to its end: {error!r}")
    finally:
        site.close()
        if options.keep:
            print(f"logs are in {folder}", file=sys.stderr)
        else:
            site.remove()
    skipped = ([] if isolated else ["disks were not filled, sockets not counted: that needs root and unshare"]) + (
        [] if library else ["clocks were not stepped: libfaketime is not there"]
    )
    show(soak, skipped, time.monotonic() - begun, as_json=options.json)
    return 1 if soak.findings else 0


def show(soak: Soak, skipped: list[str], seconds: float, *, as_json: bool) -> None:
    """The table, or one object."""
    if as_json:
        told = {"seconds": round(seconds, 1), "seed": soak.seed, "findings": soak.findings, "notes": soak.notes}
        print(json.dumps({**told, "skipped": skipped, "samples": soak.samples.taken}, indent=1))
        return
    width = max(map(len, soak.notes), default=0)
    for name, value in soak.notes.items():
        print(f"{name:{width}}  {value}")
    for one in skipped:
        print(f"skipped: {one}")
    counted = Counter(soak.findings)
    for finding, number in counted.items():
        print(f"FINDING: {finding}" + (f" (×{number})" if number > 1 else ""))
    print(f"{len(counted)} findings in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
