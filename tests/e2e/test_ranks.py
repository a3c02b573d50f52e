"""Two real jobs of two ranks over gloo, under torchrun, ``roofwatch run``, agent and store: each slow rank is named."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest
from whole_path import Node, wait_for

SLOW = 1  # the rank
# A batch of one takes rank 1 40 ms to load, or its step has twelve products more; a step is else a few milliseconds.
PROGRAM = f"""
import os, sys, time, torch, torch.distributed as dist
what, seconds, told = sys.argv[1], float(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo")
rank = dist.get_rank()
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 30
    def __getitem__(self, index):
        if what == "input" and rank == {SLOW}:
            time.sleep(0.04)
        return torch.ones(64, 128)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(128, 128))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
more, over, step = torch.randn(384, 384), torch.zeros(1), 0
end = time.monotonic() + seconds
for batch in torch.utils.data.DataLoader(Data()):
    optimizer.zero_grad()
    if what == "kernels" and rank == {SLOW}:
        for _ in range(12):
            torch.mm(more, more)
    model(batch).square().mean().backward()
    optimizer.step()
    step += 1
    if step % 8 == 0:
        over[0] = time.monotonic() > end or os.path.exists(told)
        dist.all_reduce(over)
        if over[0] > 0:
            break
dist.destroy_process_group()
"""


def torchrun(node: Node, what: str, seconds: float) -> tuple[str, subprocess.Popen[str]]:
    """A job, started as a user would, and its name."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = node.folder / "job.py"
    program.write_text(PROGRAM)
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1")
    job = (
        sys.executable,
        *launcher,
        "--master-port",
        str(port),
        str(program),
        what,
        str(seconds),
        str(node.folder / "over"),
    )
    return f"rendezvous:127.0.0.1:{port}", node.start(*node.program, "run", "--model", "ddp", "--", *job)


MOMENTS = 6  # of which both ranks have a window


def compared(node: Node, job: str) -> bool:
    """Whether windows of a job say enough: so many moments of both ranks, and more of them than windows alone."""
    time.sleep(0.5)  # the jobs need the cores
    found = node.ask("ranks", "--job", job, allowed=(0, 1, 4))
    basis = found and found["basis"]
    return bool(basis) and basis["of_moments"] >= max(MOMENTS, basis["windows_alone"])


@pytest.fixture
def jobs(node: Node) -> dict[str, str]:
    """The names of two jobs that ran side by side and ended well on every rank; what they did is stored."""
    pytest.importorskip("torch")
    node.store()
    node.agent(interval=0.5)
    started = {what: torchrun(node, what, 60) for what in ("input", "kernels")}
    wait_for(lambda: all(compared(node, name) for name, _ in started.values()), "moments of both ranks", 60)
    (node.folder / "over").touch()
    for _, job in started.values():
        assert job.wait(timeout=90) == 0
    node.wait_for_windows(12)
    return {what: name for what, (name, _) in started.items()}


@pytest.mark.slow
def test_the_slow_rank_is_named(node: Node, jobs: dict[str, str]) -> None:
    """Windows of both ranks fall on the same steps and name their group; rank 1 is late by what was done to it."""
    assert node.ask("ranks") is None  # two jobs: which?
    for what, name in jobs.items():
        found = node.ask("ranks", "--job", name, allowed=(1,))
        assert found is not None, what
        told, basis = found["straggler"], found["basis"]
        assert (told["rank"], told["explanation"]) == (SLOW, what), found
        assert basis["compared"] == "steps"
        assert basis["of_moments"] >= max(4, basis["windows_alone"]), basis  # most windows have their like beside them
        early, late = found["rows"]
        assert early["matched_share"] > 0.5
        assert early["waiting_ns"] > 3 * late["waiting_ns"]
        if what == "input":
            assert told["excess"]["input_ns"] > 30e6
        else:
            first = told["kernels"][0]
            assert (first["kernel"], first["shapes"], first["peers_calls"]) == ("aten::mm", [[384, 384]] * 2, 0)
        drawn = node.read("ranks", "--job", name, allowed=(1,))
        assert f"Straggler: rank {SLOW}" in drawn
        assert max(map(len, drawn.splitlines())) <= 80
