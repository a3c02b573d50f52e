"""What the agent asked for: one window, within this process's own limits; or a refusal."""

from typing import Any, Dict, List, Optional, Tuple

from . import protocol
from .cost import Stamps

FIRST_NS = 50_000_000  # a process's first window, while its cost is unknown
MOST_NS = 10_000_000_000  # a window that the agent forgot to bound
MOST_APART = 1 << 20  # steps; an alignment beyond it would never be reached
MOST_LISTED = 64


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """No window: ``reason`` is one of the protocol's, ``detail`` a word or two."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail
        self.opened = False  # it had begun, so it has cost something


class Window:
    """What was asked for, and what has happened so far."""

    def __init__(self, request: Dict[str, Any], first: bool, by_steps: bool, trial: bool = False) -> None:
        careful = first and not request.get("cost_known")
        self.by_steps = by_steps
        self.trial = trial and not by_steps  # of a process that seems to do nothing: until something happens
        self.steps = max(1, int(request.get("steps") or 1))
        most = int(float(request.get("max_ms") or 0) * 1e6) or MOST_NS
        self.max_ns = min(most, FIRST_NS) if careful else min(most, MOST_NS)
        self.duration_ns = min(int(float(request.get("duration_ms") or 50) * 1e6), self.max_ns)
        self.shapes = bool(request.get("shapes")) and not careful
        self.align = _alignment(request.get("align"))
        self.listed = _listed(request.get("at_steps"))
        self.timeout_s = float(request.get("timeout_ms") or 30_000) / 1e3
        self.start_unix_ns = 0
        self.offset_ns = 0  # of the machine's clock, before the opening
        self.clock_set = False  # since then, so all its times are wrong
        self.active_ns: Optional[int] = None  # of a window by time: how much of the job's work it stands for
        self.whole = False  # cut at a step boundary
        self.lost = ""  # why it was given up …
        self.detail = ""  # … in a word or two
        self.at = Stamps()

    def first_boundary(self, count: int, warm: int) -> int:
        """The step at whose end the opening begins: after ``count``, and ``warm`` steps before one as asked for.

        Raises Refused where every step asked for has passed.
        """
        if self.listed:
            for step in self.listed:
                if step - warm > count:
                    return step - warm
            raise Refused(protocol.NO_STEPS, "passed")
        modulus, remainder = self.align
        return count + 1 + (remainder - warm - count - 1) % modulus


def _listed(asked: Any) -> List[int]:
    """The steps at one of which a window may open, ascending; none where nothing of the kind is asked."""
    if isinstance(asked, list) and len(asked) <= MOST_LISTED and all(type(step) is int for step in asked):
        return sorted(asked)
    return []


def _alignment(asked: Any) -> Tuple[int, int]:
    """The steps at whose end a window may open, by modulus and remainder: all of them where nothing else is asked."""
    if isinstance(asked, list) and len(asked) == 2 and all(type(number) is int for number in asked):
        modulus, remainder = asked
        if 0 < modulus <= MOST_APART:
            return modulus, remainder % modulus
    return 1, 0
