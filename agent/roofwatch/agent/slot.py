"""What the scheduler keeps of one process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from roofwatch.agent import governor
from roofwatch.agent.governor import Account, Paid, Spending
from roofwatch.agent.lending import Lending
from roofwatch.agent.plan import Plan, Rates
from roofwatch.agent.ranks import Pace, Run
from roofwatch.agent.registry import Member
from roofwatch.model.record import Trigger, Window


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a window: taken where ``window`` is set, lost where ``taken``, else refused; why and a word."""

    reason: str = ""
    detail: str = ""
    taken: bool = False
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Asker:
    """Somebody who asked for a window and waits for it."""

    told: Callable[[Ended], None]
    keep: bool = False  # its trace


@dataclass(slots=True)
class Open:
    """A request that awaits its window."""

    request: int
    trigger: Trigger
    plan: Plan
    batch: int  # the same for ranks that were asked together
    deadline: asyncio.TimerHandle
    asker: Asker | None = None
    reason: str = governor.SCHEDULE  # why it was asked for then
    interval_s: float = 0.0  # between two windows, as it was in force
    event_cap: int = 0

    def end(self, ended: Ended) -> None:
        """Tell who asked for it; once."""
        asker, self.asker = self.asker, None
        if asker is not None:
            asker.told(ended)


@dataclass(slots=True)
class Slot:
    """The schedule of one process."""

    member: Member
    account: Account  # what its job may still spend: one for all ranks of a run on this node
    rates: Rates = field(default_factory=Rates)
    spending: Spending = field(default_factory=Spending)
    lending: Lending = field(default_factory=Lending)
    reason: str = governor.SCHEDULE  # of the pause it is in
    answered_at: float | None = None  # loop time of the last answer
    rested_s: float = 0.0  # between the last two windows, where the budget made it so
    timer: asyncio.TimerHandle | None = None
    open: Open | None = None
    last_start_ns: int | None = None
    unread: int = 0  # windows that arrived and are not read yet
    run: Run | None = None  # the job that it is a rank of
    pace: Pace = field(default_factory=Pace)  # its optimizer steps
    jitter: float = 1.0  # of the pause after the next answer, the same for ranks that were asked together
    waited: int = 0  # for other ranks
    resting_until: float = 0.0  # loop time; it cannot take windows now, so nobody waits for it
    registered_unix_ns: int = field(default_factory=time.time_ns)
    skipped: Counter[str] = field(default_factory=Counter)  # windows not taken, by reason
    charged: Paid | None = None  # the last window
    unanswered: Open | None = None  # the last request that nobody answered in time
    told: tuple[tuple[object, ...], float] | None = None  # what the store was told last, and when

    @property
    def free(self) -> bool:
        """Nothing asked, nothing to be read."""
        return self.open is None and not self.unread
