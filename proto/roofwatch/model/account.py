"""What windows cost a process, and how the account of its job stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roofwatch.model.places import Process


@dataclass(frozen=True, slots=True)
class Cost:
    """What taking the window cost the job, as the hook measured it. Phases are wall time of the hook's thread."""

    close_path: str  # native | bindings | plain | npu
    open_ns: int
    quiesce_ns: int
    close_ns: int
    save_ns: int
    free_ns: int
    base_step_ns: int | None = None  # median step before the window
    longest_step_ns: int | None = None  # from opening to the end of freeing
    lost_in_ns: int | None = None  # steps from opening to the end of freeing, less as many base steps
    lost_after_ns: int | None = None  # the same for the steps after it (residue)
    parse_cpu_ns: int | None = None  # on the node, not in the job

    @property
    def lost_ns(self) -> int | None:
        """Time the job lost in all, where it could be measured."""
        if self.lost_in_ns is None:
            return None
        return self.lost_in_ns + (self.lost_after_ns or 0)


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The account of a process's job on its node: what windows may cost it and did, and the schedule that follows.

    Shares are of the job's wall time. ``charged_ns`` is for one window: the one that holds this, or a process's last;
    slightly below zero where noise made its steps faster. ``measured``: by those steps, else estimated.
    """

    reason: str  # why the interval is what it is: schedule, learning, budget, hard_stop, residue, …
    budget_share: float | None = None
    hard_stop_share: float | None = None
    spent_share: float | None = None  # over the last hour, or since the job is known
    balance_ns: int | None = None  # earned and not spent; below zero: to be earned first
    charged_ns: int | None = None
    measured: bool | None = None
    interval_ns: int | None = None  # between two windows
    event_cap: int | None = None  # profiler events that a window may hold


@dataclass(frozen=True, slots=True)
class ProcessState:
    """How a process stands with its agent at a moment: a newer one replaces an older one."""

    process: Process
    unix_ns: int
    since_unix_ns: int  # when it registered
    budget: BudgetState
    skipped: Mapping[str, int] = field(default_factory=dict)  # windows not taken since then: reason → count
