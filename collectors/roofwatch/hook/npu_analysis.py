"""The job's side of the analysis of an NPU window: starts the child, waits without the GIL, takes the database."""

import array
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import protocol
from .descriptors import Mark, lifted
from .log import log
from .npu_names import USED
from .npu_scratch import RESERVE, Folder, base, window_most
from .request import Refused

LIMIT_S = 120.0  # of one analysis: ``ROOFWATCH_NPU_ANALYSIS_S``
TURN_S = protocol.ANALYSIS_S - LIMIT_S  # other jobs on this node come first
LOOK_S = 0.25
END_S = 10.0  # the child ends by itself long before
_SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


class Analysis:
    """One child at work on one folder, which is the child's from now on."""

    def __init__(self, folder: Folder, profile: str, roots: List[str]) -> None:
        """Raises Refused, with the folder gone."""
        self.folder, self.pid, self.group = folder, 0, 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self.pid = _spawn(_spec(folder, profile, roots), theirs.fileno(), folder.lock)
        except (OSError, NotImplementedError, AttributeError) as error:
            ours.close()
            folder.remove()
            raise Refused(protocol.ANALYSIS, "no child") from error
        folder.unlock()  # the child holds it
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=lifted(ours.detach()))
        self._mark = Mark(self.sock.fileno())

    def wait(self, stop: Callable[[], bool], exiting: Callable[[], bool]) -> Tuple[int, Dict[str, Any]]:
        """The database's descriptor, and what it took. Raises Refused: the child is gone then, and the folder too."""
        end = time.monotonic() + protocol.ANALYSIS_S + END_S
        answer: Optional[Tuple[Dict[str, Any], Optional[int]]] = None
        try:
            while answer is None and not stop() and time.monotonic() < end:
                answer = self._look()
        finally:
            self.end(exiting)
        if answer is not None and not answer[0] and self.group:  # killed: what it watched over is not
            _kill(-self.group)
        if answer is None:
            raise Refused(protocol.EXITING if exiting() else protocol.GIVEN_UP, "analysis")
        facts, fd = answer
        if fd is None:
            why = str(facts.get("failed") or "no answer")
            raise Refused(protocol.DISK if why == "bytes" else protocol.ANALYSIS, why)
        return lifted(fd), facts

    def _look(self) -> Optional[Tuple[Dict[str, Any], Optional[int]]]:
        """What the child has said, waiting a moment for it; an empty answer where it has hung up."""
        if not self._mark.holds(self.sock.fileno()):  # the job has closed all it did not know
            return {"failed": "the job closed our socket"}, None
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        if not poll.poll(LOOK_S * 1e3):
            return None
        data, ancillary, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC)
        fds = array.array("i")
        for _, _, payload in ancillary:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        try:
            facts = json.loads(data.decode())
        except ValueError:
            facts = {}
        if facts.get("group"):
            self.group = int(facts["group"])
            return None
        return facts, fds[0] if fds else None

    def end(self, exiting: Callable[[], bool]) -> None:
        """Hang up; the child ends everything and deletes the folder. At exit it does so without being waited for."""
        if self._mark.holds(self.sock.fileno()):
            self.sock.close()
        else:
            self.sock.detach()
        until = time.monotonic() + END_S
        while not exiting() and not self._reaped():
            if time.monotonic() > until:
                _kill(self.pid)
                until += END_S
            time.sleep(0.01)
        if not exiting():
            self.folder.remove()

    def _reaped(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # the job waits for all its children, and has met this one
            return True


def _spec(folder: Folder, profile: str, roots: List[str]) -> Dict[str, Any]:
    name = USED["analyse"]
    arguments = {"profiler_path": profile, "max_process_number": 1, "export_type": ["db"]}
    return {
        "job": os.getpid(),
        "folder": folder.path,
        "profile": profile,
        "limit_s": limit_s(),
        "turn_s": TURN_S,
        "turn": os.path.join(base(), "turn"),
        "most": window_most(),
        "reserve": RESERVE // 2,
        "python": sys.executable,
        "analyse": {"module": name.module, "function": name.path, "arguments": arguments, "roots": roots},
    }


def limit_s() -> float:
    """How long one analysis may take."""
    try:
        return min(LIMIT_S, float(os.environ.get("ROOFWATCH_NPU_ANALYSIS_S") or LIMIT_S))
    except ValueError:
        return LIMIT_S


def environment(environ: Mapping[str, str]) -> Dict[str, str]:
    """The job's environment, in which no hook attaches: the analysis imports torch."""
    inject = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inject")
    result = dict(environ)
    if "PYTHONPATH" in result:
        entries = [entry for entry in result["PYTHONPATH"].split(os.pathsep) if entry != inject]
        result["PYTHONPATH"] = os.pathsep.join(entries)
    return result


def _spawn(spec: Dict[str, Any], sock: int, lock: int) -> int:
    """Start the child. Neither fork handlers nor the job's memory are touched: posix_spawn shares it until exec."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npu_child.py")
    if not sys.executable or not os.path.exists(program):
        raise OSError("no interpreter to start")
    null, sock, lock = lifted(os.open(os.devnull, os.O_RDWR)), _above(sock), _above(lock)
    actions = [
        (os.POSIX_SPAWN_DUP2, sock, 0),
        (os.POSIX_SPAWN_DUP2, null, 1),
        (os.POSIX_SPAWN_DUP2, null, 2),
        (os.POSIX_SPAWN_DUP2, lock, 3),
    ]
    command = [sys.executable, "-I", "-S", program, json.dumps(spec)]
    try:
        pid: int = os.posix_spawn(
            sys.executable,
            command,
            environment(os.environ),
            file_actions=actions,
            setsigmask=[],
            setsigdef=_SIGNALS,
        )
    finally:
        for fd in (null, sock, lock):
            os.close(fd)
    log("analysis: child %d" % pid)
    return pid


def _above(fd: int) -> int:
    """A copy of a descriptor, under a number that none of the child's first four is."""
    return lifted(os.dup(fd))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
