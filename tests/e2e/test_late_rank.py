"""Two real processes over gloo, one of them late on purpose: torch's own traces through to the answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.collectors import pipeline
from roofwatch.collectors.base import WindowContext
from roofwatch.collectors.registry import read
from roofwatch.model.record import Node, Process, Trigger, Window
from roofwatch.proto import codec
from roofwatch.store import database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker

LATE_S = 0.4
PROGRAM = f"""
import pathlib, sys, time, torch, torch.distributed as dist
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous", rank=rank, world_size=2)
x = torch.ones(1 << 16)
for _ in range(3):
    dist.all_reduce(x)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
    # Opening a profiler takes longer in one process than in the other: by files they begin together, unseen.
    pathlib.Path(folder, f"opened{{rank}}").touch()
    while not pathlib.Path(folder, f"opened{{1 - rank}}").exists():
        time.sleep(0.001)
    if rank == 1:
        time.sleep({LATE_S})
    dist.all_reduce(x)
    dist.all_reduce(x)
    time.sleep(0.2)  # gloo's threads note a transfer after its caller has gone on
profiler.export_chrome_trace(folder + f"/rank{{rank}}.json")
dist.destroy_process_group()
"""


def windows(folder: Path) -> list[Window]:
    """Run the two ranks and read what they recorded."""
    pytest.importorskip("torch")
    command = [sys.executable, "-c", PROGRAM]
    ranks = [subprocess.Popen([*command, str(rank), str(folder)], stderr=subprocess.PIPE) for rank in range(2)]
    try:
        errors = [rank.communicate(timeout=90)[1].decode(errors="replace") for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    found = []
    for rank in range(2):
        owner = Process(Node("here", "boot"), 100 + rank, job="rendezvous:here:1", rank=rank, world_size=2)
        context = WindowContext(f"{rank:032x}", owner, Trigger.SYNCHRONIZED, first_step=3)
        found.append(pipeline.window_of(read(folder / f"rank{rank}.json"), context))
    return found


def test_a_late_rank_of_a_real_job(tmp_path: Path) -> None:
    """Rank 1 sleeps 0.4 s before the first of two all_reduces of 256 KiB, rank 0 waits as long inside it."""
    found = windows(tmp_path)
    for window in found:
        reduced = [c for c in window.collectives if c.name == "all_reduce"]
        assert [(c.bytes, c.group, c.group_size) for c in reduced] == [(1 << 18, "0 (0,1)", 2)] * 2
    opened = database.open(str(tmp_path / "store.db"))
    writer = Writer(opened)
    try:
        assert writer.submit(Unpacker().unpack(codec.seal(codec.segment(found), "a", "b", 1))).result(30).reason == ""
        answer = Queries(opened).run("peers", Filter())
    finally:
        writer.close()
        opened.close()
    early, late = answer["rows"]
    assert (early["rank"], late["rank"]) == (0, 1)
    assert early["matched_share"] == late["matched_share"] == early["complete_share"] == 1.0
    assert early["waiting_ns"] > 0.75 * LATE_S * 1e9  # less what starting a thread of gloo's took
    assert late["caused_ns"] > 0.75 * LATE_S * 1e9
    assert answer["jobs"][0]["last"]["rank"] == 1
