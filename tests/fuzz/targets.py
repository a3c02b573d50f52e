"""What is fuzzed: each target takes bytes and gives a word for what became of them; any other end is a fault."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from mutate import BYTES, TEXTS, WORDS, Change

from roofwatch.agent import messages
from roofwatch.collectors import pipeline, registry
from roofwatch.collectors.base import Limits, WindowContext
from roofwatch.hook import protocol
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Device,
    DeviceWindow,
    Evidence,
    KernelStat,
    Ledger,
    Node,
    Process,
    Signature,
    Trigger,
    Vendor,
    Window,
)
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

TRACES = Path(os.environ.get("ROOFWATCH_TRACES", Path(__file__).resolve().parents[3] / "shared" / "traces"))
SEED_BYTES = 60_000  # of a file: small, so that many are tried
CONTEXT = WindowContext("0" * 32, Process(Node("n"), 1), Trigger.PERIODIC)


@dataclass(frozen=True, slots=True)
class Target:
    """Seeds, how they are changed, and what they are given to."""

    seeds: Callable[[], Sequence[bytes]]
    changes: Sequence[Change]
    run: Callable[[bytes], str]


@lru_cache(maxsize=1)
def unpacker():
    """A store's check of what comes in."""
    from roofwatch.store.unpack import Unpacker  # noqa: PLC0415 - for targets that need it

    return Unpacker()


def read(data: bytes) -> str:
    """A trace, database or table through reader, roofline, wire and the store's checks."""
    try:
        raw = registry.read(io.BytesIO(data), Limits(max_events=50_000, max_bytes=64 << 20, max_groups=5_000))
        window = pipeline.window_of(raw, CONTEXT)
    except RoofwatchError:
        return "refused"
    unpacker().unpack(codec.seal(codec.segment([window]), "agent", "boot", 1))  # what is read, a store must take
    return "read"


def talk(data: bytes) -> str:
    """Bytes of a job on the agent's socket."""
    decoder = protocol.Decoder(protocol.MAX_FROM_JOB)
    outcome = "silent"
    try:
        for message in decoder.feed(data):
            outcome = "heard"
            for meaning in (messages.hello_of, messages.window_of):
                try:
                    meaning(message)
                except messages.BadMessage:
                    outcome = "bad"
    except protocol.ProtocolError:
        return "hung up"
    return outcome


def ingest(data: bytes) -> str:
    """Bytes of an agent's envelope; and of a segment, in an envelope whose checksum fits.

    Nearly all bytes of a segment can be read as an envelope, too, so both are tried.
    """
    outcome = "no message"
    for kind in (pb.SegmentEnvelope, pb.Segment):
        message = kind()
        try:
            message.ParseFromString(data)
        except DecodeError:  # gRPC would refuse it as well
            continue
        whole = message if kind is pb.SegmentEnvelope else codec.seal(message, "agent", "boot", 1)
        try:
            unpacked = unpacker().unpack(whole)
        except RoofwatchError:
            outcome = "refused"
            continue
        return "taken" if unpacked is not None else "nothing"
    return outcome


def _event(name: str, category: str, at: float, took: float, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": took, "pid": 0, "tid": 7, "args": args}


def kineto_seeds() -> Sequence[bytes]:
    """A trace by hand, and the small real ones."""
    events = [
        _event("ProfilerStep#1", "user_annotation", 0, 200),
        _event(
            "aten::mm",
            "cpu_op",
            0,
            20,
            **{"External id": 1, "Input Dims": [[4, 4], [4, 4]], "Input type": ["float"] * 2},
        ),
        _event("cudaLaunchKernel", "cuda_runtime", 5, 3, correlation=1, **{"External id": 1}),
        _event("gemm", "kernel", 30, 50, correlation=1, stream=7, device=0, grid=[1, 2, 3], block=[32, 1, 1]),
        _event("Memcpy HtoD", "gpu_memcpy", 90, 5, correlation=2, bytes=4096, stream=7, device=0),
    ]
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_000_000_000}
    seeds = [json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}).encode()]
    real = [path for path in sorted(TRACES.glob("kineto/*.json.gz")) if path.stat().st_size < 2 * SEED_BYTES]
    return [*seeds, *(gzip.decompress(path.read_bytes())[:SEED_BYTES] for path in real)]


def ascend_seeds() -> Sequence[bytes]:
    """A database and a table by hand, and the beginnings of real tables and databases."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ascend.db"
        db = sqlite3.connect(file)
        db.executescript(
            "CREATE TABLE STRING_IDS(id INTEGER, value TEXT);"
            "INSERT INTO STRING_IDS VALUES (1,'MatMulV2'),(2,'aclnnMm');"
            "CREATE TABLE TASK(startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId,"
            " streamId, taskId, modelId);"
            "INSERT INTO TASK VALUES (1000, 5000, 0, 7, 1, 1, 1, 0, 2, 3, 4294967295);"
            "CREATE TABLE COMPUTE_TASK_INFO(name, globalTaskId, blockDim, mixBlockDim, taskType, opType, inputFormats,"
            " inputDataTypes, inputShapes, outputFormats, outputDataTypes, outputShapes, attrInfo);"
            "INSERT INTO COMPUTE_TASK_INFO VALUES (1,1,20,0,1,1,1,1,1,1,1,1,1);"
            "CREATE TABLE NPU_INFO(id INTEGER, name TEXT); INSERT INTO NPU_INFO VALUES (0,'Ascend910B');"
        )
        db.close()
        seeds = [file.read_bytes()]
    seeds.append(
        b"Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Block Dim,Input Shapes,Input Data Types\n"
        b'0,aclnnMm_MatMulV2,MatMulV2,AI_CORE,"1700000000000.123",12.5,20,"""4,4;4,4""",FLOAT16;FLOAT16\n' * 4
    )
    for path in sorted(TRACES.glob("ascend/**/*")):
        if path.suffix in {".csv", ".db"} and path.stat().st_size > 0 and len(seeds) < 24:
            content = path.read_bytes()
            whole = path.suffix == ".csv" or len(content) <= 10 * SEED_BYTES
            seeds += [content[:SEED_BYTES] if path.suffix == ".csv" else content] if whole else []
    return seeds


COST = ("open_ns", "quiesce_ns", "close_ns", "save_ns", "free_ns", "base_step_ns", "lost_in_ns", "after_steps")
PADDING = ("batches", "real_tokens", "padded_tokens", "real_squared", "padded_squared")


def talk_seeds() -> Sequence[bytes]:
    """Frames of a hello and of a window."""
    device = {"vendor": "nvidia", "model": "NVIDIA H100", "uuid": "x", "index": 0, "memory_bytes": 85, "units": 132}
    hello = {
        "type": "hello", "protocol": 1, "hook": "1", "pid": 7, "model": "m", "rank": 0, "labels": {"a": "b"},
        "devices": [device], "versions": {"torch": "2"},
    }  # fmt: skip
    window = {
        "type": "window", "request": 1, "format": "kineto-json", "start_unix_ns": 1, "duration_ns": 2, "steps": 2,
        "size": 9, "cost": {"close_path": "native", **dict.fromkeys(COST, 5)},
        "padding": {**dict.fromkeys(PADDING, 3), "lengths": [[1, 2]]},
    }  # fmt: skip
    bodies = [json.dumps(message).encode() for message in (hello, window)]
    frames = [struct.pack("!I", len(body)) + body for body in bodies]
    return [*frames, b"".join(frames)]


def segment_seeds() -> Sequence[bytes]:
    """A segment of one window, those of small real traces, and their envelopes."""
    signature = Signature(
        "gemm", Kind.MATMUL, op="aten::mm", shapes="[[4,4],[4,4]]", dtypes='["float"]', flops=128, bytes=192
    )
    stat = KernelStat(
        signature,
        0,
        5,
        1_000_000,
        100_000,
        300_000,
        Histogram.from_values([200_000] * 5),
        Bound.MEMORY,
        Evidence.SHAPES,
    )
    device = DeviceWindow(Device(Vendor.NVIDIA, "NVIDIA H100"), 1_000_000, 1_000_000)
    window = Window(
        uid="0" * 32, process=Process(Node("n"), 1), start_unix_ns=10**18, duration_ns=1_000_000,
        trigger=Trigger.PERIODIC, collector="kineto", devices=(device,), kernels=(stat,),
        ledger=Ledger(10, 5, 1_000_000, has_host_events=True),
    )  # fmt: skip
    windows = [window]
    for path in sorted(TRACES.glob("kineto/*.json.gz")):
        if path.stat().st_size < SEED_BYTES // 8:
            raw = registry.read(io.BytesIO(path.read_bytes()), Limits(max_events=50_000))
            windows.append(pipeline.window_of(raw, CONTEXT))
    messages = [codec.segment([one]) for one in windows]
    wholes = [codec.seal(message, "agent", "boot", 1) for message in messages]
    return [whole.SerializeToString() for whole in (*messages, *wholes)]


FIGURES = (0, 1, 2, 3, -1, 255, 1 << 31, (1 << 32) - 1, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1)


def _other(draw: random.Random, kind: int) -> object:
    """A value for a field of that type."""
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return draw.choice(TEXTS)
    if kind in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return draw.choice((0.0, -1.0, 1e300, float("nan"), float("inf")))
    return draw.choice(FIGURES)


def field(draw: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A number or a text of a segment is another, or there is one more or less: all that protobuf itself lets pass."""
    whole = pb.Segment()
    with suppress(
        DecodeError, AttributeError, OverflowError, TypeError, ValueError
    ):  # no segment, no value of that field
        whole.ParseFromString(data)
        node = whole
        while of := node.ListFields():
            told, value = draw.choice(of)
            if not hasattr(value, "append") and told.message_type:
                node = value
            elif not hasattr(value, "append"):
                setattr(node, told.name, _other(draw, told.cpp_type))
                break
            elif told.message_type and draw.randrange(8):
                node = draw.choice(value)
            elif draw.randrange(4) and not told.message_type:
                value[draw.randrange(len(value))] = _other(draw, told.cpp_type)
                break
            else:
                draw.choice((value.pop, lambda value=value: value.append(value[0])))()
                break
    return whole.SerializeToString() or data


TARGETS = {
    "kineto": Target(kineto_seeds, WORDS, read),
    "ascend": Target(ascend_seeds, WORDS, read),
    "protocol": Target(talk_seeds, WORDS, talk),
    "segments": Target(segment_seeds, (*BYTES, *[field] * 20), ingest),
}
