"""Where a process runs: container, pod and Slurm job, from its control group, which a job cannot choose; its own pid.

What a job says of itself counts only where the kernel says nothing: a process that cannot be seen, names of pods where
kubelet's folder is not there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from roofwatch.agent import job_map
from roofwatch.agent.identity import PROC
from roofwatch.agent.messages import Hello
from roofwatch.model.resource import CONTAINER_ID, NAMESPACE, POD_NAME, POD_UID, VPID

PATH_MOST = 1 << 16  # of a control group file
LISTED_MOST = 10_000  # pods of a node: kubelet has a few hundred at most
AGAIN_S = 5.0  # between two looks at kubelet's folder for a pod that is not there

_HEX64 = r"([0-9a-f]{64})"
# docker, podman (libpod), containerd (cri-containerd, nerdctl) and CRI-O under systemd; the same without it, where the
# id is a folder. Not conmon, which watches a container from outside.
_CONTAINER = re.compile(rf"(?:[:/]|[:/](?!\S*conmon)(?:[a-z]+-)+){_HEX64}(?=\.scope|/|$)")
_POD = re.compile(r"kubepods\S*?[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=\.slice|/|$)")
_SLURM = re.compile(r"/(?:slurm[^/]*|[^/]*slurmstepd\.scope)(?:/uid_\d+)?/job_(\d{1,20})(?:/step_([a-z0-9]+))?(?=/|$)")
_OF_A_USER = "/user.slice/"  # below it a user names control groups as they like: containers, but no pods or jobs
_RESERVED = ("host.", "process.", CONTAINER_ID)  # labels that are for the kernel to tell
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """What a control group tells; None: nothing."""

    container: str | None = None
    pod_uid: str | None = None
    job: str | None = None  # slurm:JOB, with .STEP where it is a step of its own


def of_cgroup(text: str) -> Place:
    """From the lines of ``/proc/PID/cgroup``, of both versions; of containers within containers the innermost.

    Of pods the outermost: it is the one that this node's kubelet made, and below it a container may make others up.
    """
    paths = [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]
    own = [path for path in paths if _OF_A_USER not in path]
    containers = [names[-1] for path in paths if (names := _CONTAINER.findall(path))]
    pods = [uids[0].replace("_", "-") for path in own if (uids := _POD.findall(path))]
    jobs = [
        f"slurm:{of[1]}" + (f".{of[2]}" if (of[2] or "").isdigit() else "")
        for path in own
        if (of := _SLURM.search(path))
    ]
    return Place(next(iter(containers), None), next(iter(pods), None), max(jobs, key=len, default=None))


def seen(pid: int, proc: Path = PROC) -> Place | None:
    """What the kernel tells of a process; None where it is not to be seen."""
    text = _start_of(proc / str(pid) / "cgroup") if pid > 0 else ""
    return of_cgroup(text) if text else None


def vpid(pid: int, proc: Path = PROC) -> int | None:
    """What a process takes for its pid, where that is another one: of the innermost pid namespace that it is in."""
    for line in (_start_of(proc / str(pid) / "status") if pid > 0 else "").splitlines():
        if line.startswith("NSpid:"):
            numbers = line.split()[1:]
            return int(numbers[-1]) if len(numbers) > 1 and numbers[-1].isdigit() else None
    return None


def _start_of(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return file.read(PATH_MOST).decode("utf-8", "replace")
    return ""


@dataclass(slots=True)
class Pods:
    """Names of pods by uid, from the folder in which kubelet keeps a folder a pod: NAMESPACE_NAME_UID."""

    folder: str
    _known: dict[str, tuple[str, str]] = field(default_factory=dict)
    _looked: float = float("-inf")

    def names(self, uid: str) -> tuple[str, str] | None:
        """Namespace and name; None where kubelet does not tell."""
        if self.folder and uid not in self._known and time.monotonic() - self._looked >= AGAIN_S:
            self._look()
        return self._known.get(uid)

    def _look(self) -> None:
        self._looked = time.monotonic()
        found: dict[str, tuple[str, str]] = {}
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry, _ in zip(entries, range(LISTED_MOST), strict=False):
                parts = entry.name.split("_")  # none of the three can hold one
                if len(parts) == 3 and all(_NAME.match(part) for part in parts):
                    found[parts[2]] = (parts[0], parts[1])
        self._known = found


@dataclass(slots=True)
class Places:
    """What is known of processes beside their own words: maps in folders, and the kernel."""

    job_map: str = ""
    pods: Pods = field(default_factory=lambda: Pods(""))
    proc: Path = PROC

    def use(self, job_folder: str, pod_folder: str) -> None:
        """Take other folders, for processes that come from now on."""
        self.job_map = job_folder
        if pod_folder != self.pods.folder:
            self.pods = Pods(pod_folder)

    def of(self, pid: int, hello: Hello, user: str | None) -> tuple[str | None, str | None, Mapping[str, str]]:
        """Job, container and labels of a process that has said hello; ``pid`` is the kernel's, 0 where it is hidden."""
        told = seen(pid, self.proc)
        job = _job(hello.job, told)
        labels = {k: v for k, v in hello.labels.items() if not k.startswith(_RESERVED)}
        if self.job_map:
            labels = {key: value for key, value in labels.items() if not key.startswith("slurm.")}
        if told is not None and told.pod_uid is not None:
            labels[POD_UID] = told.pod_uid
            names = self.pods.names(told.pod_uid)
            if names is not None:
                labels[NAMESPACE], labels[POD_NAME] = names
        inner = vpid(pid, self.proc) if pid > 0 else None
        if inner is not None and inner != pid:
            labels[VPID] = str(inner)
        labels |= job_map.labels(self.job_map, job, user)
        return job, hello.container if told is None else told.container, labels


def _job(said: str | None, told: Place | None) -> str | None:
    """Slurm's control group is right about the job; the step is as the job says, if it says so of that job."""
    if told is None or told.job is None:
        return said
    number = told.job.partition(".")[0]
    return said if said is not None and (said == number or said.startswith(f"{number}.")) else told.job
