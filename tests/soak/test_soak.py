"""The soak's own accounts: they find what they are there to find, and nothing else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the soak's modules; the import mode leaves the path alone

import chaos
import leaks
from ledger import Held, Sealed, Spooled, compare

from roofwatch.agent import counters, spool
from roofwatch.proto import codec


def account() -> tuple[Spooled, Held]:
    """Two segments stored, and one given up with its reason, told by the second."""
    spooled = Spooled("node", Path("none"), "agent")
    spooled.segments = {
        ("boot", 1): Sealed(["a", "b"], 10, {}, gone=True),
        ("boot", 2): Sealed(["c"], 5, {}, gone=True),
        ("boot", 3): Sealed(["d"], 7, {"spool_age": 1, "parse_crash": 2}, gone=True),
    }
    stored = {"agent": {("boot", 1), ("boot", 3)}}
    return spooled, Held(stored, ["a", "b", "d"], {"agent": {"spool_age": 1, "parse_crash": 2}}, {"node": 17})


def test_what_adds_up() -> None:
    """No finding."""
    spooled, held = account()
    assert compare([spooled], held) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda _s, h: h.uids.remove("b"), "is stored without 1 of its windows"),
        (lambda _s, h: h.uids.append("a"), "window a is stored 2 times"),
        (lambda _s, h: h.uids.append("z"), "window z is stored and nobody sealed it"),
        (lambda _s, h: h.segments["agent"].remove(("boot", 1)), "3 sealed windows left the spool and are not stored"),
        (lambda _s, h: h.segments["agent"].add(("boot", 9)), "a segment is stored that was never sealed"),
        (lambda s, _h: setattr(s.segments["boot", 2], "gone", False), "is neither stored nor given up"),
        (lambda s, _h: setattr(s.segments["boot", 1], "gone", False), "its ack is missing"),
        (
            lambda s, _h: s.segments["boot", 3].drops.clear(),
            "1 sealed windows left the spool and are not",
        ),
        (lambda _s, h: h.drops["agent"].clear(), "the store tells drops {}"),
        (lambda _s, h: h.totals.update(node=16), "top tells 16 ns of kernels, stored were 17"),
    ],
)
def test_what_does_not(change, found: str) -> None:
    """Lost, doubled, unaccounted for: each is told."""
    spooled, held = account()
    change(spooled, held)
    assert any(found in finding for finding in compare([spooled], held)), compare([spooled], held)


def test_an_ack_that_was_lost() -> None:
    """A window is stored, its ack is lost, and it is given up later: told, and no finding."""
    spooled, held = account()
    spooled.segments["boot", 3].drops["spool_age"] = held.drops["agent"]["spool_age"] = 3
    assert compare([spooled], held) == []
    assert spooled.stored_and_told == 2


def test_a_spool_is_watched(tmp_path: Path) -> None:
    """What a real spool seals and lets go is noted, whoever reads it and when."""
    kept = spool.Spool(tmp_path, 1 << 20, 3600, counters.Counters())
    spooled = Spooled("node", kept.path)
    spooled.watch()
    for i in range(3):
        kept.append(lambda *number, i=i: codec.seal(codec.segment([], {"parse_time": i}), *number))
    kept.delete(1)
    spooled.harvest()
    kept.delete(2)
    kept.close()
    spooled.harvest(last=True)
    assert spooled.agent == kept.agent
    assert [s.gone for s in spooled.segments.values()] == [True, True, False]
    assert [s.drops for s in spooled.segments.values()] == [{"parse_time": i} for i in range(3)]


def test_plan() -> None:
    """The same for the same seed; everything is in it; what is steady is left alone; all is over at the end."""
    events = chaos.plan(3, 120, 72, 2.0)
    assert events == chaos.plan(3, 120, 72, 2.0) != chaos.plan(4, 120, 72, 2.0)
    assert {(e.kind, e.target) for e in events} == {(k, t) for k, targets in chaos.DECK.items() for t in targets}
    assert not [e for e in events if e.at >= 72 and (e.kind, e.target) in chaos.STEADY]
    assert all(0 <= e.at <= e.until <= 120 for e in events)
    assert 45 <= len(events) <= 75


def test_the_first_sums_come_before_memory_counts() -> None:
    """A long last part begins with the store's clock days ahead, and nothing sets it otherwise meanwhile."""
    events = chaos.plan(5, 900, 540, 2.0)
    later = [e for e in events if (e.kind, e.target) == ("clock", "store") and e.at < 575.1 and e.until > 539.9]
    assert [(e.at, e.until, e.by) for e in later] == [(540, 575, 3 * 86_400)]
    assert events == sorted(events, key=lambda event: event.at)
    assert not [e for e in chaos.plan(5, 120, 72, 2.0) if e.until - e.at > 12]


def walk(seconds: int, per_hour: float, steps: dict[int, float], seed: int = 1) -> list[tuple[float, int]]:
    """Memory every two seconds, in MiB: noise, what is taken and given back, a leak, and what is taken once."""
    noise, found, held = random.Random(seed), [], 0.0
    for t in range(0, seconds, 2):
        held = max(0.0, held + noise.gauss(0, 0.03)) * 0.98
        once = sum(size for at, size in steps.items() if t >= at)
        found.append((float(t), int((110 + held + once + per_hour * t / 3600) * (1 << 20))))
    return found


@pytest.mark.parametrize(
    ("seconds", "per_hour", "steps", "grows"),
    [
        (360, 0, {}, False),
        (360, 13, {}, False),  # what a store takes for jobs that are new to it
        (360, 30, {}, True),
        (360, 0, {180: 7}, False),  # done for the first time, at the worst moment
        (360, 5, {60: 2, 310: 3}, False),
        (360, 0, dict.fromkeys(range(0, 360, 30), 0.25), True),  # a quarter of a MiB with every reconnection
        (100, 25, {}, False),  # too short to tell
        (100, 0, {10: 2, 50: 2}, False),
        (100, 400, {}, True),
    ],
)
def test_memory(seconds: int, per_hour: float, steps: dict[int, float], *, grows: bool) -> None:
    """A leak of 30 MiB an hour is found in six minutes, whatever the noise; what is taken once is none."""
    found = [leaks.slope("store", walk(seconds, per_hour, steps, seed)) for seed in range(20)]
    assert [slope is not None and slope.grows() for slope in found] == [grows] * 20, [s and s.told() for s in found]
    assert leaks.slope("few", walk(22, 0, {})) is None


def test_what_is_left_over_is_found(tmp_path: Path) -> None:
    """A process that lives on, a file, a descriptor, a thread."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    # Other tests of this process keep servers, which have processes of their own.
    known = {p.pid for p in leaks.psutil.Process().children(recursive=True)} - {child.pid}
    assert any(f"process {child.pid} is left" in one for one in leaks.processes(known))
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert leaks.processes(known) == []
    (tmp_path / "roofwatch-1").touch()
    (tmp_path / "job's").touch()
    assert leaks.files(tmp_path, only=leaks.OURS) == [f"{tmp_path}/roofwatch-1 is left"]
    new, old = leaks.Held(("socket",), 3, 0), leaks.Held(("pipe", "socket", "socket"), 6, 0)
    assert [finding.split(": ")[0] for finding in leaks.grown("x", new, old, threads=2, descriptors=1)] == [
        "x holds 2 descriptors more than when it was new",
        "x has 6 threads, 3 when it was new",
    ]
    assert leaks.grown("x", new, old, threads=3, descriptors=2) == []


def test_a_process_that_has_ended_holds_nothing() -> None:
    """One that was killed, and that nobody has waited for yet, has a status without memory: it is told as gone."""
    child = subprocess.Popen(["sleep", "60"])
    assert leaks.Held.of(child.pid).memory > 0
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(OSError, match="has ended"):
        leaks.Held.of(child.pid)
    child.wait()
