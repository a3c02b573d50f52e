"""The checks of ``roofwatch doctor``: each gives one line, and what to do where it is not ok."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from roofwatch.cli import doctor_agent, doctor_node
from roofwatch.hook import protocol
from roofwatch.model.errors import RoofwatchError

PROBE_S = 120  # torch on a cold network disk
TIME_ERROR = 5  # what adjtimex(2) gives while the clock is not synchronised

# Loads the hook under a name of its own, so that nothing else of ours gets onto the path of the other Python.
_PROBE = """
import importlib.util, json, os, sys
folder = sys.argv[1]
found = {"python": "%d.%d.%d" % sys.version_info[:3], "torch": None, "threads": None, "path": None, "folder": folder}
try:
    import torch
    found["torch"], found["threads"] = torch.__version__, torch.get_num_threads()
    spec = importlib.util.spec_from_file_location(
        "_roofwatch_doctor", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    sys.modules["_roofwatch_doctor"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from _roofwatch_doctor import paths
    found["path"] = paths.choose(torch).name
except ImportError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and what to do."""

    check: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    advice: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The row of the answer."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user wants checked."""

    python: str
    socket: str
    store: str
    threads: int | None  # of a CPU job; None: what its torch takes


def run(asked: Asked) -> list[Check]:
    """Every check, in the order of a record's way; one that fails by surprise does not keep out the others."""
    checks: Sequence[tuple[str, Callable[[Asked], Check]]] = (
        ("python", python),
        ("torch", torch),
        ("hook", hook),
        ("socket", socket_folder),
        ("container", lambda asked: _of("container", doctor_node.container(asked.socket))),
        ("agent", lambda asked: _of("agent", doctor_agent.agent(asked.socket))),
        ("spool", lambda asked: _of("spool", doctor_agent.spool(asked.socket))),
        ("store", lambda asked: _of("store", doctor_agent.store(asked.store, asked.socket))),
        ("trust", trust),
        ("clock", clock),
        ("skew", skew),
        *((name, lambda _, name=name, look=look: _of(name, look())) for name, look in doctor_node.CHECKS),
        ("calibration", calibration),
    )
    found = []
    for name, check in checks:
        try:
            found.append(check(asked))
        except (OSError, RoofwatchError, ValueError) as error:
            found.append(Check(name, "fail", str(error), "look at the message; it names what is wrong"))
    return found


def _of(name: str, found: doctor_node.Found) -> Check:
    return Check(name, *found)


def hook(asked: Asked) -> Check:
    """Whether the job's Python can load the hook; ``roofwatch run`` puts it on its path."""
    where = shutil.which(asked.python)
    found = probed(where) if where else None
    if found is None or found["torch"] is None:
        return Check("hook", "warn", "unknown without torch", "name the job's Python with --python")
    if found["path"] is None:
        return Check("hook", "fail", f"cannot be loaded: {found.get('error')}", "install this version for that Python")
    return Check("hook", "ok", f"loads from {found.get('folder')}")


def skew(asked: Asked) -> Check:
    """This clock against the store's."""
    try:
        return _of("skew", doctor_node.skew(asked.store))
    except RoofwatchError:
        return Check("skew", "warn", "unknown without a store", "start one: roofwatch store serve")


def python(_: Asked) -> Check:
    """This program's own Python."""
    version = platform.python_version()
    return Check("python", "ok", f"{version} runs this program")


def torch(asked: Asked) -> Check:
    """The job's Python: its torch, and how windows will be closed there."""
    where = shutil.which(asked.python)
    if where is None:
        return Check("torch", "fail", f"there is no {asked.python}", "name the job's Python with --python")
    found = probed(where)
    if found is None:
        return Check("torch", "fail", f"{where} cannot be asked about torch", "name the job's Python with --python")
    return _torch(found, where)


@lru_cache(maxsize=1)
def probed(where: str) -> dict[str, Any] | None:
    """What a Python says about its torch; None where it does not answer. Asked once: torch takes seconds."""
    from roofwatch import hook  # noqa: PLC0415  # only its folder is wanted

    folder = str(Path(str(hook.__file__)).parent)
    try:
        done = subprocess.run(  # noqa: S603  # the Python that the user names
            [where, "-c", _PROBE, folder], capture_output=True, text=True, timeout=PROBE_S, check=False
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError, OSError):
        return None
    return found if isinstance(found, dict) else None


def _torch(found: dict[str, Any], where: str) -> Check:
    if found["torch"] is None:
        return Check("torch", "warn", f"{where} has no torch: {found['error']}", "name the job's Python with --python")
    what = f"{found['torch']} on Python {found['python']}, close path {found['path'] or 'none'}"
    if found["path"] in {None, protocol.NONE}:
        return Check("torch", "fail", what, "no window can be taken there: this torch lacks what the hook needs")
    if found["path"] == protocol.PLAIN:
        advice = (
            "windows stall the job while they close, since the close without the GIL is not proved on this torch; "
            "a job on a CPU without optimizer steps has windows only where Python has no other thread. Where "
            "there is no GPU, torch's CPU build: pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
        return Check("torch", "warn", what, advice)
    return Check("torch", "ok", what)


def socket_folder(asked: Asked) -> Check:
    """The folder of the agent's socket: there, ours, and closed to others."""
    folder = Path(asked.socket).parent
    try:
        status = folder.stat()
    except FileNotFoundError:
        return Check(
            "socket", "warn", f"{folder} is not there yet", "it is made when the agent starts: roofwatch agent"
        )
    except OSError as error:
        return Check(
            "socket", "fail", f"{folder}: {error.strerror}", "choose another with --socket or ROOFWATCH_SOCKET"
        )
    if status.st_uid not in {os.getuid(), 0}:
        return Check("socket", "fail", f"{folder} belongs to uid {status.st_uid}", "choose another with --socket")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        return Check("socket", "fail", f"{folder} can be written by others", f"chmod go-w {folder}")
    return Check("socket", "ok", str(folder))


def trust(asked: Asked) -> Check:
    """How long the certificates are good that this machine uses and meets."""
    from roofwatch.cli import doctor_trust  # noqa: PLC0415

    status, detail, advice = doctor_trust.found(asked.store, asked.socket)
    return Check("trust", status, detail, advice)


def clock(_: Asked) -> Check:
    """Whether this node's clock is kept; windows of several nodes are laid side by side by it."""
    buffer = ctypes.create_string_buffer(512)  # struct timex is 208 bytes; modes = 0 only reads
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except AttributeError:
        state = -1
    if state < 0:
        return Check("clock", "warn", "cannot be asked here", "see that NTP or PTP runs on this node")
    if state == TIME_ERROR:
        return Check("clock", "warn", "not synchronised", "start NTP or PTP: chronyd, systemd-timesyncd or ptp4l")
    return Check("clock", "ok", "synchronised")


def calibration(asked: Asked) -> Check:
    """Whether the CPU's peaks were measured for the number of threads of a CPU job."""
    from roofwatch.cli.calibrating import doubted, known, repeat  # noqa: PLC0415
    from roofwatch.cli.render.text import plural  # noqa: PLC0415
    from roofwatch.model import devices  # noqa: PLC0415

    threads, whose = asked.threads, ""
    if threads is None:
        where = shutil.which(asked.python)
        said = (probed(where) or {}).get("threads") if where else None
        threads, whose = said or len(os.sched_getaffinity(0)), ", what a job takes by default here"
    with_threads = f"{plural(threads, 'thread')}{whose}"
    if not known(threads):
        advice = f"before CPU jobs run: {repeat([threads])}"
        return Check("calibration", "warn", f"none of this CPU with {with_threads}", advice)
    if doubt := doubted(threads):
        detail = f"may be too low with {with_threads}: {doubt}"
        return Check("calibration", "warn", detail, f"when nothing else runs: {repeat([threads])}")
    return Check("calibration", "ok", f"{devices.cpu_model() or 'CPU'}, {with_threads}")
