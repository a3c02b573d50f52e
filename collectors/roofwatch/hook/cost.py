"""What a window cost the job, from the steps around it."""

from typing import Any, Dict, Optional

from .steps import Steps


class Stamps:
    """When things happened to a window (monotonic ns), at which step, and how long each phase took."""

    def __init__(self) -> None:
        self.opened = self.cut = 0
        self.opened_step = self.cut_step = self.freed_step = 0
        self.open_ns = self.quiesce_ns = self.close_ns = self.save_ns = self.free_ns = 0


def cost(at: Stamps, steps: Steps, path: str, by_steps: bool, steady: bool = False) -> Dict[str, Any]:
    """The keys of ``model.Cost``, and ``after_steps``, those that ``lost_after_ns`` is of.

    What the steps cannot say is None: no steps, too few before, too many since.

    Lost time is the sum of the steps less as many base steps, so a window that made nothing slower may show a little
    less than zero. The step in which the window was freed counts as inside. Where there are very many steps after it
    (``steady``: a child was at work beside them) their median stands for each: a checkpoint among them is not ours.
    """
    base = steps.base_ns(at.opened_step) if by_steps else None
    inside_until = min(at.freed_step + 1, steps.count)
    inside = steps.durations(at.opened_step, inside_until) if base is not None else None
    after = steps.durations(inside_until, steps.count) if inside else None
    return {
        "close_path": path,
        "open_ns": at.open_ns,
        "quiesce_ns": at.quiesce_ns,
        "close_ns": at.close_ns,
        "save_ns": at.save_ns,
        "free_ns": at.free_ns,
        "base_step_ns": base,
        "longest_step_ns": max(inside) if inside else None,
        "lost_in_ns": _lost(inside, base),
        "after_steps": len(after) if after else 0,
        "lost_after_ns": _lost([sorted(after)[len(after) // 2]] * len(after) if after and steady else after, base),
    }


def _lost(durations: Any, base: Optional[int]) -> Optional[int]:
    if not durations or base is None:
        return None
    return int(sum(durations)) - len(durations) * base
