"""The agent with the stand-in as its worker, small limits, and in a hurry: at SIGUSR2 it tells what it holds.

Into the file $HELD: Python's blocks, and bytes of the C library.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from held import held

from roofwatch.agent import books, config, daemon, registry, schedule, scheduler, sealer, standing, uplink
from roofwatch.agent.slot import Slot


class Often(schedule.Schedule):
    def __init__(self, given: config.Config) -> None:
        super().__init__(given)
        self.interval_s = 0.1  # by which requests are spread

    def interval_of(self, _: Slot) -> float:
        return 0.02


def tell(*_: object) -> None:
    """Where $HELD says."""
    told = Path(os.environ["HELD"])
    draft = told.with_suffix(".part")
    draft.write_text(" ".join(map(str, held())))
    draft.rename(told)


if __name__ == "__main__":
    books.FORMER_MOST = standing.PARTED_MOST = int(os.environ["MOST"])
    registry.HELLOS_MOST = 1 << 30  # else most are closed unread, and what those that are heard leave is not told
    scheduler.Schedule = Often
    sealer.GATHER_S = 0.1
    uplink.BACKOFF_LEAST_S, uplink.BACKOFF_MOST_S = 0.002, 0.01
    signal.signal(signal.SIGUSR2, tell)
    given, stand_in = config.typed(sys.argv[1:]), str(Path(__file__).with_name("stand_in_worker.py"))
    sys.exit(daemon.run(config.resolve(given), (sys.executable, "-P", stand_in), lambda: config.resolve(given)))
