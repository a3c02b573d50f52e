"""Analyses one NPU window: a program of its own, the job's child, with nothing of the job's and nothing of ours in it.

It starts the vendor's analysis in a fresh interpreter, watches it (time, bytes, the job's life), believes only the
rows in the database, deletes the folder whatever has happened, and passes the database over its standard input, which
is a socket. When the job hangs up or dies, everything here ends and is deleted.

Run as ``python -I -S npu_child.py JSON``, standard library only.
"""

import array
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

FAILED, TIME, BYTES, ROWS, COLUMNS = "failed", "time", "bytes", "rows", "columns"  # why there is no database
NICE = 15
TICK_S = 0.1
MEASURE_S = 0.5  # how often the folder's bytes are added up
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OUTPUT, DATABASE = "ASCEND_PROFILER_OUTPUT", "ascend_pytorch_profiler"
# What every window with a kernel has, in every version of the database that is known.
TASKS = (
    "SELECT count(*) FROM TASK t JOIN COMPUTE_TASK_INFO c ON c.globalTaskId = t.globalTaskId"
    " WHERE t.endNs >= t.startNs AND c.name IS NOT NULL"
)

# What the fresh interpreter runs. It is started in the profile's folder, which is no place to import from.
ANALYSE = """
import importlib, inspect, json, sys
spec = json.loads(sys.argv[1])
sys.path[:] = [entry for entry in sys.path if entry]
sys.path += [entry for entry in spec["roots"] if entry not in sys.path]
analyse = getattr(importlib.import_module(spec["module"]), spec["function"])
known = inspect.signature(analyse).parameters
analyse(**{key: value for key, value in spec["arguments"].items() if key in known})
"""


class GaveUp(Exception):  # noqa: N818 - an answer, not a fault
    """No database. The text is one of the reasons above, or empty where nobody waits for an answer any more."""


class Job:
    """Whoever waits for the answer."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid, self.sock = pid, sock

    def check(self) -> None:
        """Raise GaveUp where it has hung up or died."""
        if os.getppid() != self.pid or select.select([self.sock], [], [], 0)[0]:
            raise GaveUp("")

    def answer(self, facts: Dict[str, Any], fd: Optional[int] = None) -> None:
        """Tell it; whether it still listens does not matter."""
        rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]).tobytes())]
        try:
            self.sock.sendmsg([json.dumps(facts).encode()], rights)
        except OSError:
            pass


def confine(most: int) -> None:
    """A group of its own, behind every job on this node; no file above ``most`` bytes."""
    os.setsid()
    os.nice(NICE)
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what the analysis leaves behind becomes ours to end
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def wait_for_turn(path: str, until: float, job: Job) -> None:
    """One analysis at a time on a node: it would take the processors from the jobs. The lock ends with this process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            job.check()
            if time.monotonic() > until:
                raise GaveUp(TIME) from None
            time.sleep(TICK_S)


def analyse(spec: Dict[str, Any], job: Job) -> None:
    """Run the vendor's analysis. Raises GaveUp; its exit code means nothing."""

    def with_us() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    what = json.dumps(spec["analyse"])
    nothing = subprocess.DEVNULL
    child = subprocess.Popen(  # noqa: S603 - the job's own interpreter
        [spec["python"], "-c", ANALYSE, what], cwd=spec["folder"], stdin=nothing, stdout=nothing, stderr=nothing,
        start_new_session=True, preexec_fn=with_us,  # noqa: PLW1509 - this process has one thread
    )  # fmt: skip
    job.answer({"group": child.pid})  # should this process be killed, the job ends the rest
    try:
        _watch(child, spec, job)
    finally:
        end_all(child.pid)


def _watch(child: "subprocess.Popen[bytes]", spec: Dict[str, Any], job: Job) -> None:
    end = time.monotonic() + spec["limit_s"]
    measured = 0.0
    while child.poll() is None:
        job.check()
        now = time.monotonic()
        if now > end:
            raise GaveUp(TIME)
        if now - measured > MEASURE_S:
            measured = now
            check_bytes(spec)
        time.sleep(TICK_S)
    check_bytes(spec)


def check_bytes(spec: Dict[str, Any]) -> None:
    """Raise GaveUp where the folder has more bytes than it may, or the disk too few left."""
    disk = os.statvfs(spec["folder"])
    if size(spec["folder"]) > spec["most"] or disk.f_bavail * disk.f_frsize < spec["reserve"]:
        raise GaveUp(BYTES)


def size(path: str) -> int:
    """Bytes on disk under a folder."""
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                pass
    return total


def end_all(group: int) -> None:
    """Kill the analysis and everything that it has started, also what has left its group."""
    _kill(-group)
    while True:
        for pid in _children():
            _kill(pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def _children() -> List[int]:
    """Processes whose parent we are, orphans of the analysis among them."""
    try:
        with open("/proc/self/task/%d/children" % os.getpid()) as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def database(profile: str) -> Tuple[int, int]:
    """The analysis's database, opened, and how many compute tasks it has. Raises GaveUp."""
    folder = os.path.join(profile, OUTPUT)
    try:
        names = [name for name in os.listdir(folder) if name.startswith(DATABASE) and name.endswith(".db")]
    except OSError:
        names = []
    if len(names) != 1:
        raise GaveUp(FAILED)
    path = os.path.join(folder, names[0])
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise GaveUp(FAILED) from None
    unfinished = [path + tail for tail in ("-wal", "-journal") if os.path.exists(path + tail)]
    if not stat.S_ISREG(os.fstat(fd).st_mode) or any(os.path.getsize(file) for file in unfinished):
        raise GaveUp(FAILED)
    return fd, rows(path)


def rows(path: str) -> int:
    """Compute tasks with a time and a name. Raises GaveUp where there is none, or no such table or column."""
    try:
        connection = sqlite3.connect("file:%s?mode=ro&immutable=1" % path, uri=True)
        try:
            (count,) = connection.execute(TASKS).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        raise GaveUp(COLUMNS) from None
    if not count:
        raise GaveUp(ROWS)
    return int(count)


def run(spec: Dict[str, Any], job: Job) -> Tuple[Dict[str, Any], Optional[int]]:
    """The answer: the database and what it took, or why there is none."""
    fd: Optional[int] = None
    facts: Dict[str, Any] = {}
    begun = time.monotonic()
    try:
        raw = size(spec["folder"])
        wait_for_turn(spec["turn"], begun + spec["turn_s"], job)
        turn = time.monotonic()
        check_bytes(spec)
        analyse(spec, job)
        fd, count = database(spec["profile"])
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        facts = {
            "rows": count,
            "raw_bytes": raw,
            "waited_ns": int((turn - begun) * 1e9),
            "wall_ns": int((time.monotonic() - turn) * 1e9),
            "cpu_ns": int((used.ru_utime + used.ru_stime) * 1e9),
        }
    except GaveUp as reason:
        facts = {"failed": str(reason)}
    except Exception as error:
        facts = {"failed": "%s %s" % (FAILED, type(error).__name__)}
    finally:
        shutil.rmtree(spec["folder"], ignore_errors=True)
    return facts, fd


def main() -> None:
    """Standard input is the socket; descriptor 3 keeps the folder locked; nothing else of the job's stays open."""
    spec = json.loads(sys.argv[1])
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 3:
            try:
                os.close(int(name))
            except OSError:
                pass
    confine(spec["most"])
    job = Job(spec["job"], socket.socket(fileno=0))
    facts, fd = run(spec, job)
    if facts.get("failed") != "":
        job.answer(facts, fd)


if __name__ == "__main__":
    main()
