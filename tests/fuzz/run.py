"""Feeds broken input to what reads hostile input, for a while: `python tests/fuzz/run.py --seconds 300 [TARGET …]`.

Each target runs in a process of its own under limits. Hypothesis draws some of the changes, and of a fault the fewest
that still make it; most are drawn without it, ten times as fast. A fault leaves the input in a file and says how to try
it again.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import hypothesis
from hypothesis import strategies

sys.path.insert(0, str(Path(__file__).parent))
from mutate import mutated
from targets import TARGETS

MEMORY = 2 << 30
BATCH, BY_HYPOTHESIS = 200, 20  # inputs between two looks at the clock, and how many of them Hypothesis draws
SLOW_S = 20.0  # of CPU for one input of at most 4 MiB: more is a way to stop a worker


def one(name: str, data: bytes) -> str:
    """What became of an input; a fault is raised."""
    began = time.process_time()
    outcome = TARGETS[name].run(data)
    if time.process_time() - began > SLOW_S:
        raise TimeoutError(f"took {time.process_time() - began:.0f} s of CPU")
    return outcome


def fuzz(name: str, seconds: float, seed: int, keep: Path, most: int = 1 << 62) -> int:
    """Until the time is over, ``most`` inputs were tried or a fault was found; 1 for a fault."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    target, outcomes, plain = TARGETS[name], Counter(), random.Random(seed)
    seeds = target.seeds()
    for whole in seeds:
        outcomes[one(name, whole)] += 1
    current = keep / f"fuzz-{name}-{seed}.input"

    def tried(draw: random.Random) -> None:
        data = mutated(draw, seeds, target.changes)
        current.write_bytes(data)  # before it is tried: a crash of the interpreter leaves it
        outcomes[one(name, data)] += 1
        current.unlink()  # to write over a file is slower by far

    drawn = hypothesis.settings(
        max_examples=BY_HYPOTHESIS, database=None, deadline=None, report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )(hypothesis.given(strategies.randoms(use_true_random=False))(tried))  # fmt: skip

    end, batches = time.monotonic() + seconds, 0
    while time.monotonic() < end and sum(outcomes.values()) < most:
        try:
            hypothesis.seed(seed + (batches << 32))(drawn)()
            for _ in range(BATCH - BY_HYPOTHESIS):
                tried(plain)
        except Exception:  # noqa: BLE001 - any is a fault: what is meant to happen has a word
            traceback.print_exc()
            print(f"{name}: a fault; try again with: python tests/fuzz/run.py --input {current} {name}")
            return 1
        batches += 1
    told = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    print(f"{name}: {sum(outcomes.values()):,} inputs of {len(seeds)} seeds in {seconds:g} s: {told}")
    return 0


def main() -> int:
    """All targets, or those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=[], help=f"of {', '.join(TARGETS)}; all without")
    parser.add_argument("--seconds", type=float, default=300, help="for each target (default 300)")
    parser.add_argument("--seed", type=int, help="of the changes; a new one without")
    parser.add_argument("--most", type=int, default=1 << 62, help="inputs of each target: the same on any machine")
    parser.add_argument("--input", type=Path, help="try this one file")
    parser.add_argument("--keep", type=Path, default=Path(), help="folder for inputs that make a fault")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = asked.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}: there are {', '.join(TARGETS)}")
    if asked.input:
        print(one(names[0], asked.input.read_bytes()))
        return 0
    seed = asked.seed if asked.seed is not None else int(time.time())
    if asked.alone:
        return fuzz(names[0], asked.seconds, seed, asked.keep, asked.most)
    failed = []
    for name in names:
        options = ("--seconds", str(asked.seconds), "--seed", str(seed), "--keep", str(asked.keep), "--alone")
        options += ("--most", str(asked.most))
        ended = subprocess.run([sys.executable, __file__, name, *options], check=False).returncode
        if ended:
            failed.append(name)
            print(f"{name}: ended with {ended}; the input is {asked.keep / f'fuzz-{name}-{seed}.input'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
