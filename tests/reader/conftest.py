"""Small traces, written event by event."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # graph_traces; the import mode leaves the path alone

from roofwatch.collectors.base import Limits, RawProfile
from roofwatch.collectors.registry import read

PID, TID = 100, 101


class Trace:
    """Events in the form Kineto writes them; times in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.fields: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000}

    def add(self, cat: str, name: str, ts: float | str, dur: float | str, tid: Any = TID, **args: Any) -> Trace:
        event = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)
        return self

    def op(self, name: str, ts: float, dur: float, tid: Any = TID, shapes: Any = None, **args: Any) -> Trace:
        if shapes is not None:
            args |= {"Input Dims": shapes, "Input type": ["float"] * len(shapes)}
        return self.add("cpu_op", name, ts, dur, tid, **args)

    def call(self, name: str, ts: float, dur: float, correlation: int, tid: Any = TID, **args: Any) -> Trace:
        return self.add("cuda_runtime", name, ts, dur, tid, correlation=correlation, **args)

    def kernel(self, name: str, ts: float, dur: float, correlation: int, **args: Any) -> Trace:
        return self.add("kernel", name, ts, dur, 7, correlation=correlation, **{"device": 0, "stream": 7} | args)

    def copy(self, name: str, ts: float, dur: float, correlation: int, **args: Any) -> Trace:
        return self.add("gpu_memcpy", name, ts, dur, 7, correlation=correlation, **{"device": 0, "stream": 7} | args)

    def note(self, name: str, ts: float, dur: float, tid: Any = TID) -> Trace:
        return self.add("user_annotation", name, ts, dur, tid)

    def document(self) -> dict[str, Any]:
        return {**self.fields, "traceEvents": self.events}

    def text(self) -> bytes:
        return json.dumps(self.document(), indent=2).encode()


@pytest.fixture
def trace() -> Trace:
    """An empty trace to add events to."""
    return Trace()


@pytest.fixture
def read_bytes(tmp_path: Path) -> Callable[..., RawProfile]:
    """Reads bytes as a file would be read."""

    def run(data: bytes, limits: Limits | None = None, **known: Any) -> RawProfile:
        path = tmp_path / "some.trace"
        path.write_bytes(data)
        return read(path, limits, **known)

    return run


@pytest.fixture
def read_trace(read_bytes: Callable[..., RawProfile]) -> Callable[..., RawProfile]:
    """Reads a ``Trace``."""
    return lambda trace, limits=None: read_bytes(trace.text(), limits)


@pytest.fixture(scope="session")
def sound(traces: Path) -> bytes:
    """The text of a small real trace."""
    return gzip.decompress((traces / "kineto" / "mi300_inductor_triton_min.json.gz").read_bytes())
