"""The soak's jobs: ``job.py KIND SEED STEPS PAUSE``. Each prints one JSON object with a hash of what it computed.

What is computed depends on kind, seed and steps alone; the pause between two steps, and we, change nothing of it.
``job.py reference KIND:SEED:STEPS…`` prints what each of these gives, a line each, from children forked of one process.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import torch

torch.set_num_threads(1)
PAUSE = 0.0


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """Of their bits."""
    found = hashlib.blake2b(digest_size=16)
    for one in tensors:
        found.update(one.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def model_of(seed: int) -> torch.nn.Module:
    """A small one, the same for the same seed."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 64)
    )


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    """One of training."""
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    optimizer.step()
    time.sleep(PAUSE)


def training(seed: int, steps: int) -> str:
    """A loop."""
    model = model_of(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for _ in range(steps):
        step(model, optimizer, torch.randn(32, 64))
    return digest(model.parameters())


def loader(seed: int, steps: int) -> str:
    """A loop whose data come from forked workers."""
    model = model_of(seed)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(steps * 8, 64))
    for (x,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=1):
        step(model, optimizer, x)
    return digest(model.parameters())


def inference(seed: int, steps: int) -> str:
    """Requests, without an optimizer."""
    torch.manual_seed(seed)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    total = torch.zeros(64)
    with torch.inference_mode():
        for i in range(steps):
            total += layer(torch.randn(96 + i % 4, 32, 64)).sum((0, 1))  # 5 ms: what computes less is taken for idle
            time.sleep(PAUSE)
    return digest([total])


def threads(seed: int, steps: int) -> str:
    """Three at once, each with its own numbers."""
    results = [torch.zeros(0)] * 3

    def work(i: int) -> None:
        draw = torch.Generator().manual_seed(seed + i)
        a = torch.eye(256)
        for _ in range(steps):
            a = torch.nn.functional.normalize(a @ torch.randn(256, 256, generator=draw))
            time.sleep(PAUSE)
        results[i] = a

    running = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return digest(results)


def forks(seed: int, steps: int) -> str:
    """Training that forks and starts programs: children leave by exit, by _exit, by a signal."""
    model = model_of(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    ends = []
    for i in range(steps):
        step(model, optimizer, torch.randn(16, 64))
        if i % 20 != 10:
            continue
        pid = os.fork()
        if pid == 0:
            (model(torch.randn(4, 64)).sum()).backward()
            if i % 3 == 0:
                os._exit(4)
            if i % 3 == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            sys.exit(5)
        ends.append(os.waitpid(pid, 0)[1])
        program = [sys.executable, "-S", "-c", "print(1)"]
        ends.append(subprocess.run(program, check=False, capture_output=True).returncode)
    return digest([*model.parameters(), torch.tensor(ends)])


def crash(seed: int, steps: int) -> str:
    """Training that does not end well: by the seed, a fault of memory, abort, exit, an exception, the system's kill."""
    model = model_of(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(steps):
        step(model, optimizer, torch.randn(16, 64))
    print(json.dumps({"result": digest(model.parameters())}), flush=True)
    end = seed % 5
    if end == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    if end == 1:
        os.abort()
    if end == 2:
        sys.exit(7)
    if end == 3:
        raise RuntimeError("as meant")
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def ranks(seed: int, steps: int) -> str:
    """One of several ranks, started by torchrun."""
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(seed)
    model = torch.nn.parallel.DistributedDataParallel(model_of(seed))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    draw = torch.Generator().manual_seed(seed + torch.distributed.get_rank())
    for _ in range(steps):
        step(model, optimizer, torch.randn(16, 64, generator=draw))
    found = digest(model.parameters())
    leader = torch.distributed.get_rank() == 0
    torch.distributed.destroy_process_group()
    return found if leader else ""


KINDS = {
    "training": training, "loader": loader, "inference": inference, "threads": threads, "forks": forks, "crash": crash,
    "ranks": ranks,
}  # fmt: skip


def held() -> dict[str, int]:
    """What this process holds of the machine."""
    gc.collect()
    counted = {"descriptors": "fd", "threads": "task"}
    return {what: sum(1 for _ in Path("/proc/self", name).iterdir()) for what, name in counted.items()}


def resident() -> int:
    """Kilobytes in memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def one(kind: str, seed: int, steps: int) -> None:
    """Run it; print what it gave, and what the process held in its first part and at its end."""
    if kind == "ranks":  # whose rendezvous takes place once, and keeps what it opened
        if result := ranks(seed, steps):
            print(json.dumps({"result": result}), flush=True)
        return
    KINDS[kind](seed + 1_000_000, 2)  # the same code once: what it loads and starts is not a leak of anybody's
    begin, memory = held(), resident()
    result = KINDS[kind](seed, steps)
    told = {"result": result, "begin": begin, "end": held(), "grown_kb": resident() - memory}
    print(json.dumps(told), flush=True)


def references(wanted: list[str]) -> None:
    """Each in a child of this process."""
    import torch._dynamo  # noqa: PLC0415 - a second, which each child's first optimizer would take
    import torch.utils.data  # noqa: F401, PLC0415

    for text in wanted:
        kind, seed, steps = text.split(":")
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(write, 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            if kind == "crash":
                crash(int(seed), int(steps))
            one(kind, int(seed), int(steps))
            sys.exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = json.loads(pipe.read() or "{}")
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"job": text, "result": said.get("result"), "code": status}), flush=True)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    if sys.argv[1] == "reference":
        references(sys.argv[2:])
    else:
        PAUSE = float(sys.argv[4])
        if sys.argv[1] == "crash":
            crash(int(sys.argv[2]), int(sys.argv[3]))
        one(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
