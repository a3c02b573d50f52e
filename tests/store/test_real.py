"""Real traces: an answer from the store is the answer from the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from store_builders import segment_of

from roofwatch.cli.files import Origin, window_of
from roofwatch.model import answer
from roofwatch.model.answer_rows import rows, sums_of
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker

ALEXNET = "ascend/pytorch_alexnet_910B_ddp2/db/level1/rank1_ascend_pt"
TRACES = (
    "kineto/h100_Qwen_Qwen1.5-0.5B-Chat.json.gz",
    "kineto/mi300_sglang_decode.json.gz",
    "kineto/sampled_ws128_rank0.json.gz",
    "kineto/a100_alexnet_cuda_sync.json.gz",
    "kineto/cpu_only.json.gz",
    f"{ALEXNET}/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_1.db",  # two verdicts, and a layout tax
)


@pytest.mark.parametrize("name", TRACES)
def test_store_answers_as_the_file_does(db: Database, writer: Writer, traces: Path, name: str) -> None:
    """Rows, coverage and idle time of a real window are the same to the last digit after wire, checks and SQL.

    That holds for roofs too, which the store keeps by signature and peaks and not by kernel.
    """
    window, _ = window_of(traces / name, Origin())
    outcome = writer.submit(Unpacker().unpack(segment_of([window], 1))).result(30)
    assert (outcome.status, outcome.reason) == (pb.STORED, "")

    found = Queries(db).run("top", Filter())
    coverage = answer.CoverageSum()
    coverage.add(window)
    waited = answer.timeline(window.devices)
    assert found["rows"] == rows(sums_of(window))
    assert found["coverage"] == coverage.as_json()
    assert (found["summary"]["busy_ns"], found["summary"]["idle_ns"]) == (waited["busy_ns"], waited["idle_ns"])
    for cause, sums in waited["causes"].items():
        assert {key: found["summary"]["causes"][cause][key] for key in sums} == sums
    assert json.loads(json.dumps(found, allow_nan=False)) == found
