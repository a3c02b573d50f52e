"""What happened, counted: the agent's own metrics, and the drops that the next segment reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

# Why a finished or promised window was lost. One list, so that a reason is spelled once.
TRACE_MISSING = "trace_missing"  # a window message without a descriptor
TRACE_NOT_REGULAR = "trace_not_regular"
TRACE_EMPTY = "trace_empty"
TRACE_TOO_LARGE = "trace_too_large"
TRACE_SPARSE = "trace_sparse"
TRACE_CHANGED = "trace_changed"
BAD_WINDOW = "bad_window"  # a window message whose fields are not what the protocol says
PARSE_QUEUE_FULL = "parse_queue_full"
PARSE_MEMORY = "parse_memory"
PARSE_TIME = "parse_time"
PARSE_CRASH = "parse_crash"
PARSE_ERROR = "parse_error"  # the reader's one sentence, logged
PARSE_TOO_LARGE = "parse_too_large"  # the worker's answer is over the limit
SPOOL_BYTES = "spool_bytes"
SPOOL_AGE = "spool_age"
SPOOL_ERROR = "spool_error"
STORE_REJECTED = "store_rejected"
STOPPING = "stopping"


@dataclass(slots=True)
class Counters:
    """Everything countable since the start; ``drops`` counts windows."""

    windows: Counter[str] = field(default_factory=Counter)  # requested, recorded, sealed, stored, duplicate
    refusals: Counter[str] = field(default_factory=Counter)  # the hook's reason, or no_answer, closed
    asked: Counter[str] = field(default_factory=Counter)  # windows by why they were asked for then
    held: Counter[str] = field(default_factory=Counter)  # windows that were due and not asked for, by governor's reason
    connections: Counter[str] = field(default_factory=Counter)  # accepted, registered, rejected_…, closed_…
    drops: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)  # windows without shapes: borrowed, changed
    uplink: Counter[str] = field(default_factory=Counter)
    captures: Counter[str] = field(default_factory=Counter)  # windows by hand: taken, refused, timed_out, lost
    traces: Counter[str] = field(default_factory=Counter)  # kept, not_kept, dropped_bytes, dropped_age
    workers: Counter[str] = field(default_factory=Counter)
    lost_ns: int = 0  # that windows cost their jobs, of those whose cost was measured…
    represented_ns: int = 0  # …and the time for which these stand
    unreported: Counter[str] = field(default_factory=Counter)  # drops no segment has told yet

    def drop(self, reason: str, windows: int = 1) -> None:
        """Count windows that were lost."""
        self.drops[reason] += windows
        self.unreported[reason] += windows

    def take_unreported(self) -> dict[str, int]:
        """The drops since the last call, for the next segment."""
        taken = {reason: count for reason, count in self.unreported.items() if count > 0}
        self.unreported.clear()
        return taken
