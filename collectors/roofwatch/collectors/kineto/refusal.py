"""Whether a trace holds what makes a window; where not, what it holds instead and what to do."""

from __future__ import annotations

from collections import Counter

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import Columns
from roofwatch.model.errors import RoofwatchError


class TraceViewError(RoofwatchError):
    """It is no trace of Kineto's but a trace view of an Ascend profiler, for which there is another reader."""


def require_records(columns: Columns, may_be_cut: bool, may_be_empty: bool, reasons: str, name: str) -> None:
    """Ops alone are a CPU window, unless work for a device was launched, or its records may have been cut off."""
    if columns.ascend and not len(columns.device):
        raise TraceViewError(
            f"{name} is an Ascend trace_view.json and cannot be read again from a pipe: give the file."
        )
    launching = calls.mask(columns.names.values_seen, calls.is_launch)[columns.host["name"]]
    if len(columns.device) or (len(columns.ops) and not launching.any() and not may_be_cut):
        return
    if may_be_empty and not len(columns.ops) and not launching.any():
        return
    if launching.any():
        what = f"{int(launching.sum())} kernel launches but not one device record"
    elif len(columns.ops):
        what = f"{len(columns.ops)} operators of a window with a device but not one device record"
    elif columns.xla:
        what = (
            f"{columns.events} events of JAX or XLA, which Roofwatch does not read: give it a trace of torch.profiler"
        )
    elif columns.events:
        what = (
            f"{columns.events} events and among them neither a device record nor an operator (cpu_op), as "
            "traces of torch.profiler have them"
        )
    else:
        what = "no events"
    then = ""
    if launching.any() or len(columns.ops):
        then = (
            "; its end is missing: give the whole file, as it was written"
            if may_be_cut
            else "; record it with ProfilerActivity.CUDA, and stop the profiler after a synchronize"
        )
    raise RoofwatchError(f"{name} holds {what}{reasons}{then}.")


def reasons_of(problems: list[str], dropped: Counter[str]) -> str:
    """What a sentence says of damage, in brackets; "" where there is none."""
    lost = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(dropped.items()) if count)
    why = "; ".join([*problems, *([f"dropped: {lost}"] if lost else [])])
    return f" ({why})" if why else ""
