"""Checks of ``roofwatch doctor`` about this machine: kernel, limits, drivers, other profilers, settings, two clocks."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from roofwatch.model.errors import RoofwatchError

Found = tuple[Literal["ok", "warn", "fail"], str, str | None]
PROC = Path("/proc")
FILES_LEAST = 4096  # descriptors that an agent or a store of a node with many jobs wants
SKEW_WARN_S, SKEW_FAIL_S = 0.1, 60.0  # ranks are laid side by side by the clock; a window ten minutes off is lost
ROUNDS = 5
SHM_LEAST = 64 << 20
# Variables that attach another profiler to every process started with them.
INJECTED = {
    "CUDA_INJECTION64_PATH": "CUPTI is taken by what it names (Nsight Systems, Compute Sanitizer)",
    "NVTX_INJECTION64_PATH": "a tool listens to NVTX",
    "KINETO_USE_DAEMON": "dynolog may start torch's profiler at any time",
    "KINETO_CONFIG": "torch's profiler is started by a file",
    "HSA_TOOLS_LIB": "ROCm's tracer is taken by what it names",
    "ROCP_TOOL_LIB": "ROCm's tracer is taken by what it names",
    "ROCP_TOOL_LIBRARIES": "ROCm's tracer is taken by what it names",
    "PROFILING_MODE": "CANN's profiler is started by a variable",
}
TOOLS = frozenset(
    {"nsys", "nsys-launcher", "ncu", "nsight-sys", "dynolog", "nv-hostengine", "dcgm-exporter", "msprof", "rocprofv3"}
)
_CONFINE = "from roofwatch.agent.sandbox import confine; print(','.join(confine()))"


def profilers(environ: Mapping[str, str] = os.environ, proc: Path = PROC) -> Found:
    """Whether another profiler has what ours needs: only one at a time may listen to a device."""
    found = [f"{name} is set: {INJECTED[name]}" for name in INJECTED if environ.get(name)]
    running = sorted(set(_names(proc)) & TOOLS)
    found += [f"{name} runs" for name in running]
    if not found:
        return "ok", "no other profiler here", None
    advice = "a job that another profiler is attached to gives no window (own_profiler): unset it for jobs, or stop it"
    return "warn", "; ".join(found), advice


def _names(proc: Path) -> Iterable[str]:
    for path in proc.iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                yield (path / "comm").read_text().strip()


def sandbox() -> Found:
    """What a parse worker can be confined by here; tried in a process of its own."""
    try:
        done = subprocess.run(  # noqa: S603 - this Python
            [sys.executable, "-P", "-c", _CONFINE], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "warn", f"cannot be tried: {error}", "see that this Python can start programs"
    taken = [word for word in done.stdout.strip().split(",") if word]
    missing = [word for word in ("landlock", "seccomp") if word not in taken]
    if not missing:
        return "ok", f"traces are read behind {' and '.join(taken)}", None
    advice = "Linux 5.13 has Landlock (lsm= of the kernel's command line); a container's own filter may forbid both"
    return "warn", f"traces are read without {' and without '.join(missing)}, under limits only", advice


def limits(shm: Path = Path("/dev/shm")) -> Found:  # noqa: S108 - looked at, not written to
    """Descriptors, and room for traces on their way: they lie in memory that no file system counts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "no limit on" if hard == resource.RLIM_INFINITY else f"{hard}"
    if hard != resource.RLIM_INFINITY and hard < FILES_LEAST:
        return (
            "warn",
            f"{hard} open files at most",
            f"allow {FILES_LEAST}: LimitNOFILE= of systemd, ulimit -Hn, or --ulimit",
        )
    with suppress(OSError):
        free = shutil.disk_usage(shm).free
        if free < SHM_LEAST:
            advice = "give containers more (--shm-size): DataLoader workers of jobs need it; windows do not"
            return "warn", f"{shown} open files; {shm} has {free >> 20} MiB left", advice
    return "ok", f"{shown} open files", None


def container(socket: str, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Found:
    """Whether this is a container, and whether the node's agent can be reached from it."""
    inside = (
        (root / ".dockerenv").exists() or (root / "run/.containerenv").exists() or "KUBERNETES_SERVICE_HOST" in environ
    )
    if not inside:
        return "ok", "not in a container", None
    if Path(socket).exists():
        return "ok", f"in a container, with {socket} mounted", None
    advice = (
        "mount the folder of the agent's socket and set ROOFWATCH_SOCKET (docs/machines.md), or start an agent here"
    )
    return "warn", f"in a container without {socket}", advice


def nvidia(proc: Path = PROC) -> Found:
    """The driver's library, which tells clock, power and temperature; a machine without one is normal."""
    import pynvml  # noqa: PLC0415 - 6,000 lines

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if not (proc / "driver/nvidia").exists():
            return "ok", "no NVIDIA driver here", None
        advice = (
            "the driver is there and its library is not: in a container mount it (NVIDIA container toolkit, 'utility')"
        )
        return "warn", f"NVML: {error}", advice
    try:
        return "ok", f"{pynvml.nvmlDeviceGetCount()} devices, driver {_text(pynvml.nvmlSystemGetDriverVersion())}", None
    finally:
        pynvml.nvmlShutdown()


def _text(told: str | bytes) -> str:
    return told.decode() if isinstance(told, bytes) else told


def ascend(dev: Path = Path("/dev")) -> Found:
    """``npu-smi``, which tells the same of Ascend devices."""
    found, devices = shutil.which("npu-smi"), sorted(dev.glob("davinci[0-9]*"))
    if found is None and not devices:
        return "ok", "no Ascend driver here", None
    if found is None:
        advice = "clock, power and temperature stay unknown: mount /usr/local/bin/npu-smi and the driver's folder"
        return "warn", f"{len(devices)} devices, and no npu-smi", advice
    try:
        done = subprocess.run([found, "info", "-m"], capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return "warn", f"{found} does not answer: {error}", "see whether 'npu-smi info' does; the driver may hang"
    if done.returncode or "NPU ID" not in done.stdout:
        told = (done.stdout or done.stderr).strip().partition("\n")[0] or f"exit code {done.returncode}"
        return "warn", f"{found}: {told}", "let the agent's user into the driver's group (HwHiAiUser)"
    return "ok", f"{len(devices)} devices, {found}", None


def settings(environ: Mapping[str, str] = os.environ) -> Found:
    """Whether agent and store could read their settings here."""
    from roofwatch.agent import config as agent  # noqa: PLC0415
    from roofwatch.proto.settings import unknown  # noqa: PLC0415
    from roofwatch.store import config as store  # noqa: PLC0415

    try:
        _, found = agent.settled({}, environ)
        store.serve_config(store.settled({}, environ)[0])
    except RoofwatchError as error:
        return "fail", str(error), "roofwatch config show --help tells what may stand there"
    odd = [*unknown(agent.PROGRAM, environ), *unknown(store.PROGRAM, environ)]
    if odd:
        return "warn", "; ".join(odd), "roofwatch config show --origin tells what holds"
    return "ok", f"from {found.file}" if found.file else "no file, variables and flags only", None


def skew(store: str) -> Found:
    """How far this clock is from the store's: the best of a few questions, and what their way leaves open."""
    best = min((measured for _ in range(ROUNDS) if (measured := _asked(store)) is not None), default=None)
    if best is None:
        return "ok", "the store does not tell its time: it is older than this", None
    way_s, off_s = best
    detail = f"the store's clock is {abs(off_s):.3f} s {'ahead' if off_s > 0 else 'behind'}, ± {way_s / 2:.3f} s"
    if abs(off_s) - way_s / 2 < SKEW_WARN_S:
        return "ok", detail, None
    advice = "start NTP or PTP on both: windows of several nodes are laid side by side by their clocks"
    return ("fail" if abs(off_s) > SKEW_FAIL_S else "warn"), detail, advice


def _asked(store: str) -> tuple[float, float] | None:
    """The way there and back without the store's own time, and the store's clock less ours, as NTP finds it."""
    from roofwatch.cli import wire  # noqa: PLC0415  # grpc takes 0.08 s
    from roofwatch.proto.v1 import roofwatch_pb2 as pb  # noqa: PLC0415

    with wire.channel(store) as channel:
        request = pb.QueryRequest(query="nodes", limit=1)
        wire.answer(channel, request, 10)  # the connection
        sent, began = time.time_ns(), time.monotonic_ns()
        told = wire.answer(channel, request, 10)
        took = time.monotonic_ns() - began
    return between(sent, took, told.received_unix_ns, told.sent_unix_ns)


def between(sent_ns: int, took_ns: int, received_ns: int, answered_ns: int) -> tuple[float, float] | None:
    """(way in seconds, the other clock less ours in seconds); None of a store that does not tell."""
    if not received_ns or not answered_ns:
        return None
    offset = ((received_ns - sent_ns) + (answered_ns - (sent_ns + took_ns))) / 2
    return max(0, took_ns - (answered_ns - received_ns)) / 1e9, offset / 1e9


def version(told: Mapping[str, Any], own: str) -> str | None:
    """Advice where an agent is of another version than this program; None where it is not."""
    theirs = str(told.get("version") or "unknown")
    return (
        None if theirs == own else f"it is of version {theirs}, this is {own}: one minor version apart works both ways"
    )


CHECKS: tuple[tuple[str, Callable[[], Found]], ...] = (
    ("settings", settings), ("profilers", profilers), ("nvidia", nvidia), ("ascend", ascend),
    ("sandbox", sandbox), ("limits", limits),
)  # fmt: skip
