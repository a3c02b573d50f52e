"""The next command: which profiler looks deeper, how it selects a kernel, and what it measures for the kernel's bound.

Options as documented by the tools: Nsight Compute and Nsight Systems user guides, rocprofv3's user guide (ROCm 6.2 and
later), MindStudio's msprof and msprof op, py-spy, Linux perf. ``CMD`` stands for the job's own command: Roofwatch does
not record command lines.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.model.advice_selectors import Selector, select
from roofwatch.model.record import Bound, Vendor

CMD = "CMD"
# Steps before the launch that is looked at: compilation, autotuning and the allocator's growth are over by then.
WARM_UP_STEPS = 10
# Launches that are looked at where several sorts of calls have the same name; each is replayed tens of times.
MAX_LAUNCHES = 20
# Of a system timeline: after a minute a job has started, and ten seconds hold some steps and a file that opens.
DELAY_S, DURATION_S = 60, 10

_NCU_SECTIONS: Mapping[Bound, tuple[str, ...]] = {
    Bound.COMPUTE: ("SpeedOfLight", "ComputeWorkloadAnalysis", "Occupancy", "WarpStateStats"),
    Bound.MEMORY: ("SpeedOfLight", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "WarpStateStats"),
    Bound.LATENCY: ("SpeedOfLight", "LaunchStats", "Occupancy", "SchedulerStats"),
}
_NCU_DEFAULT = ("SpeedOfLight", "MemoryWorkloadAnalysis", "ComputeWorkloadAnalysis", "Occupancy")
# Two derived counters of different blocks each, so that one run of the job collects them.
_PMC: Mapping[Bound, tuple[str, ...]] = {
    Bound.COMPUTE: ("MfmaUtil", "VALUBusy"),
    Bound.MEMORY: ("FETCH_SIZE", "MemUnitStalled"),
    Bound.LATENCY: ("SQ_WAVES", "OccupancyPercent"),
}
_AIC: Mapping[Bound, str] = {
    Bound.COMPUTE: "ArithmeticUtilization,PipeUtilization",
    Bound.MEMORY: "Memory,L2Cache",
    Bound.LATENCY: "PipeUtilization,ResourceConflictRatio",
}


# Older versions of CANN collect only; whether an export is needed shows in the folder.
_INSIGHT = (
    "open timeline/PROF_* in MindStudio Insight; where it has no mindstudio_profiler_output, first run "
    "msprof --export=on --output=timeline/PROF_*"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Which of the launches that a selector matches: so many are passed over, so many looked at."""

    skip: int
    count: int


def launch_of(per_step: float | None, seen: int, own_share: float) -> Launch:
    """After the warm-up, one launch where all that match are of one sort, else those of a step.

    ``per_step``: launches a step that match, None where steps are unknown: then as many as the windows saw (``seen``)
    count as the warm-up. ``own_share``: the part of them that is the row's own.
    """
    a_round = max(1, seen if per_step is None else math.ceil(per_step))
    skip = a_round if per_step is None else math.ceil(per_step * WARM_UP_STEPS)
    return Launch(skip, 1 if own_share > 0.99 else min(a_round, MAX_LAUNCHES))


def command(what: str, tool: str, arguments: Sequence[str], **more: Any) -> dict[str, Any]:
    """One command: ``arguments`` as a list, and quoted for a shell; ``then``: what to open its result with."""
    return {"what": what, "tool": tool, **more, "command": shlex.join(arguments), "arguments": list(arguments)}


def of_kernel(
    vendor: Vendor | None, name: str, bound: Bound, selector: Selector | None, launch: Launch, pid: int | None = None
) -> dict[str, Any] | None:
    """The command that looks at one kernel; None where nothing could select it, or its vendor is unknown.

    ``name`` is what its output is called.
    """
    if vendor is Vendor.CPU:  # perf ends with the command that it is given, here after ten seconds
        about = ["--pid", str(pid), "--", "sleep", str(DURATION_S)] if pid else ["--", CMD]
        return command("kernel", "perf", ["perf", "record", "--call-graph", "dwarf", *about])
    if selector is None:
        return None
    if vendor is Vendor.NVIDIA:
        return command("kernel", "ncu", _ncu(name, bound, selector, launch))
    if vendor is Vendor.AMD:
        return command("kernel", "rocprofv3", _rocprof(name, bound, selector, launch))
    if vendor is Vendor.ASCEND:
        then = f"open {name}/OPPROF_*/visualize_data.bin in MindStudio Insight"
        return command("kernel", "msprof op", _msprof_op(name, bound, selector, launch), then=then)
    return None


def _ncu(name: str, bound: Bound, selector: Selector, launch: Launch) -> list[str]:
    """``--launch-skip`` counts only launches that match; a graph's kernels are looked at one by one, as by default."""
    wanted = selector.expression if selector.exact else f"regex:{selector.expression}"
    base = ["--kernel-name-base", "demangled"] if selector.demangled else []
    sections = [word for section in _NCU_SECTIONS.get(bound, _NCU_DEFAULT) for word in ("--section", section)]
    return [
        "ncu", "--target-processes", "all", *base, "--kernel-name", wanted,
        "--launch-skip", str(launch.skip), "--launch-count", str(launch.count),
        *sections, "--export", name, CMD,
    ]  # fmt: skip


def _rocprof(name: str, bound: Bound, selector: Selector, launch: Launch) -> list[str]:
    """The expression is searched in the demangled name; iterations count from 1."""
    return [
        "rocprofv3", "--kernel-include-regex", selector.expression,
        "--kernel-iteration-range", f"[{launch.skip + 1}-{launch.skip + launch.count}]",
        "--pmc", *_PMC.get(bound, _PMC[Bound.MEMORY]),
        "--output-format", "csv", "--output-directory", name, "--", CMD,
    ]  # fmt: skip


def _msprof_op(name: str, bound: Bound, selector: Selector, launch: Launch) -> list[str]:
    """A name is matched by its beginning, and only by letters, digits and "_"."""
    return [
        "msprof", "op", f"--kernel-name={selector.words[0]}", f"--launch-count={launch.count}",
        f"--aic-metrics={_AIC.get(bound, 'Default')}", f"--output=./{name}", CMD,
    ]  # fmt: skip


def of_timeline(vendor: Vendor | None, *, graphs: bool = False) -> dict[str, Any] | None:
    """The command that records the system's timeline."""
    if vendor is Vendor.NVIDIA:
        nodes = ["--cuda-graph-trace=node"] if graphs else []
        arguments = [
            "nsys", "profile", "--trace=cuda,nvtx,osrt", *nodes, f"--delay={DELAY_S}", f"--duration={DURATION_S}",
            "--kill=none", "--output=timeline", CMD,
        ]  # fmt: skip
        return command("timeline", "nsys", arguments)
    if vendor is Vendor.AMD:
        arguments = ["rocprofv3", "--runtime-trace", "--output-format", "pftrace", "--output-directory", "timeline"]
        return command("timeline", "rocprofv3", [*arguments, "--", CMD])
    if vendor is Vendor.ASCEND:
        arguments = ["msprof", "--output=./timeline", "--ascendcl=on", "--runtime-api=on", "--task-time=on", CMD]
        return command("timeline", "msprof", arguments, then=_INSIGHT)
    return None


def of_export(vendor: Vendor | None, source: str | None) -> dict[str, Any] | None:
    """The command that writes a window as its vendor's own viewer opens it; ``source`` is a file or a window's uid."""
    if vendor is not Vendor.ASCEND or source is None:
        return None
    arguments = ["roofwatch", "export", source, "--format", "insight", "--output", "insight"]
    return command("window", "roofwatch", arguments, then="open insight in MindStudio Insight (Import Data)")


def with_source(given: dict[str, Any], source: Sequence[str]) -> dict[str, Any]:
    """A command of ``of_export`` with the words that name the store or database; any other as it is."""
    if given["tool"] != "roofwatch" or not source:
        return given
    return given | command(given["what"], "roofwatch", [*given["arguments"], *source])


def of_host(pid: int | None) -> dict[str, Any]:
    """The command that says what Python does: of the running process where it is known, else of a new one."""
    about = ["--duration", "30", "--pid", str(pid)] if pid else ["--", CMD]
    return command("host", "py-spy", ["py-spy", "record", "--subprocesses", "--output", "host.svg", *about])


def selector_of(kernel: str, names: Mapping[str, int]) -> tuple[Selector | None, list[str]]:
    """The selector of a kernel among the kernels there are, and the names that it selects, its own with them."""
    selector = select(kernel, names)
    return selector, [name for name in names if selector is not None and selector.matches(name)]
