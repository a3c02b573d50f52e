"""Small trace views, written event by event as torch_npu and msprof write them."""

from __future__ import annotations

import io
import json
from typing import Any

from roofwatch.collectors.base import Limits, RawProfile
from roofwatch.collectors.registry import read

PYTHON, HARDWARE, HCCL, CANN = 100, 3_170_820_512, 3_170_820_576, 3_170_820_320
MAIN, LAUNCHER, AUTOGRAD = 100, 103, 105  # threads; the main one has the process's number
STREAM = 2
BASE = 1_736_408_883_000_000  # µs, January 2025


class View:
    """Events; times are microseconds after ``BASE``."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._flows = 40_004_912_544_273_661_951  # CANN's ids are beyond 64 bits, as text
        for pid, name in ((PYTHON, "Python"), (HARDWARE, "Ascend Hardware"), (HCCL, "HCCL"), (CANN, "CANN")):
            self.events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})

    def _add(self, pid: int, tid: int, name: str, span: tuple[float, float], **rest: Any) -> View:
        start, end = span
        event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": time(start), "dur": round(end - start, 5)}
        self.events.append(event | rest)
        return self

    def op(self, name: str, span: tuple[float, float], tid: int = MAIN, **args: Any) -> View:
        """An op of torch, or a range, which looks the same."""
        return self._add(
            PYTHON, tid, name, span, cat="cpu_op", args={"Sequence number": -1, "Fwd thread id": 0, **args}
        )

    def python(self, name: str, span: tuple[float, float]) -> View:
        """A Python function, where stacks were switched on."""
        return self._add(PYTHON, MAIN, name, span, cat="python_function", args={"Python id": 1})

    def call(self, name: str, span: tuple[float, float], tid: int = MAIN, connection: int = 0) -> View:
        """A call of CANN."""
        return self._add(CANN, tid, name, span, args={"Thread Id": tid, "level": "acl", "connection_id": connection})

    def task(self, name: str, span: tuple[float, float], sort: str = "AI_CORE") -> View:
        """What ran on the device."""
        return self._add(HARDWARE, STREAM, name, span, args={"Task Type": sort, "Physic Stream Id": STREAM})

    def collective(self, name: str, span: tuple[float, float], **args: Any) -> View:
        """A collective of HCCL's."""
        return self._add(HCCL, 0, name, span, args={"connection_id": 7, **args})

    def arrow(self, cat: str, tail: tuple[int, int, float], head: tuple[int, int, float]) -> View:
        """An arrow between (process, thread, time) of the host and of the device."""
        self._flows += 7
        number: Any = round((BASE + head[2]) * 1000) if cat == "async_npu" else str(self._flows)
        for phase, (pid, tid, at) in (("s", tail), ("f", head)):
            self.events.append(
                {"ph": phase, "cat": cat, "name": cat, "id": number, "pid": pid, "tid": tid, "ts": time(at), "bp": "e"}
            )
        return self

    def launch(
        self, kernel: str, op: float, runs: tuple[float, float], tid: int = MAIN, sort: str = "AI_CORE", **queue: Any
    ) -> View:
        """A kernel asked for by an op that begins at ``op``: with ``enqueued`` and ``launched`` through the queue.

        Both are (begin, end): on the op's thread, and of CANN's call on the launching thread.
        """
        self.task(kernel, runs, sort)
        self.arrow("async_npu", (PYTHON, tid, op), (HARDWARE, STREAM, runs[0]))
        if "enqueued" in queue:
            self._add(PYTHON, tid, "Enqueue", queue["enqueued"], cat="enqueue", args={"correlation_id": 1})
        if "launched" in queue:
            self.call("Node@launch", queue["launched"], queue.get("thread", LAUNCHER))
            at = (CANN, queue.get("thread", LAUNCHER), queue["launched"][0] + 1)
            self.arrow("HostToDevice", at, (HARDWARE, STREAM, runs[0]))
        return self

    def text(self) -> bytes:
        """The file."""
        return json.dumps(self.events).encode()

    def read(self, limits: Limits | None = None) -> RawProfile:
        """Reads it."""
        return read(io.BytesIO(self.text()), limits)


def time(at: float) -> str:
    """A time as these files have it: text, three decimals."""
    ns = round(at * 1000)
    return f"{BASE + ns // 1000}.{ns % 1000:03d}"
