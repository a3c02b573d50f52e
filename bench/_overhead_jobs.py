"""The jobs of ``bench/overhead.py``. Each writes when every step ended into a file that the benchmark has mapped.

    python bench/_overhead_jobs.py KIND FILE

KIND is ``training``, ``loader``, ``ops`` (eager, many small ops) or ``inference``. A job knows nothing of blocks: it
steps until its standard input closes. As one of several ranks it finds the others by torchrun's variables.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from _overhead_cells import CELLS, COUNT, HEAD, HOOK_NS, OVER, THREAD, WARM
from torch import nn

CALLS = 20_000

Step = Callable[[], object]


def block() -> nn.Module:
    return nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)


def training(distributed: bool = False) -> Step:
    """A transformer of four layers, AdamW as torch chooses it."""
    model: nn.Module = nn.Sequential(*[block() for _ in range(4)])
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(2, 64, 256)
    return lambda: _step(model, optimizer, x)


def ops() -> Step:
    """Thirty small blocks and an optimizer that takes the parameters one by one: the most events for the least work."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.LayerNorm(128)) for _ in range(30)])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.randn(64, 128)
    return lambda: _step(model, optimizer, x)


def loader() -> Step:
    """A small network fed by two worker processes that work about as long on a batch as the network does."""
    model = nn.Sequential(nn.Linear(768, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches: Iterator[torch.Tensor] = iter(torch.utils.data.DataLoader(Images(), batch_size=64, num_workers=2))
    return lambda: _step(model, optimizer, next(batches))


class Images(torch.utils.data.IterableDataset[torch.Tensor]):
    """Pictures without end, each turned, cut and normalised on its own."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        torch.set_num_threads(1)
        picture = torch.rand(3, 24, 24)
        while True:
            cut = picture.flip(2)[:, 4:20, 4:20]
            yield ((cut - cut.mean()) / cut.std()).flatten()


def inference() -> Step:
    """Requests one after the other: a transformer of six layers, without gradients and without an optimizer."""
    model = nn.Sequential(*[block() for _ in range(6)]).eval()
    x = torch.randn(1, 32, 256)

    def answer() -> object:
        with torch.inference_mode():
            return model(x)

    return answer


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


KINDS: dict[str, Callable[[], Step]] = {"training": training, "loader": loader, "ops": ops, "inference": inference}


def hooks_thread() -> int:
    """The kernel's number of the hook's one thread; 0 while there is none."""
    for ident, innermost in sys._current_frames().items():  # noqa: SLF001 - the way to see another thread's code
        frame = innermost
        while frame.f_back is not None:
            frame = frame.f_back
        if frame.f_code.co_filename.endswith("hook/session.py"):
            return ~(time.pthread_getcpuclockid(ident) >> 3)  # how Linux makes a thread's clock of its number
    return 0


def hooks_call_ns() -> int:
    """What the optimizer post hook costs a step outside windows; 0 without a hook."""
    from torch.optim import optimizer  # noqa: PLC0415 - beside the private name that it is needed for

    calls = list(optimizer._global_optimizer_post_hooks.values())  # noqa: SLF001
    if not calls:
        return 0
    first, hook = torch.optim.SGD([torch.zeros(1)], lr=0.1), calls[0]
    begun = time.perf_counter_ns()
    for _ in range(CALLS):
        hook(first, (), {})
    return (time.perf_counter_ns() - begun) // CALLS


def main() -> None:
    kind, path = sys.argv[1:]
    with Path(path).open("r+b") as file:
        cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    over = threading.Event()

    def watch() -> None:
        os.read(0, 1)
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
        step = training(distributed=True)
    else:
        step = KINDS[kind]()
    for _ in range(WARM):
        step()
    cells[THREAD] = hooks_thread()
    clock, count = time.monotonic_ns, 0
    while not over.is_set() and count < CELLS - HEAD:
        step()
        cells[HEAD + count] = clock()
        count += 1
        cells[COUNT] = count
    cells[HOOK_NS] = hooks_call_ns() if kind != "inference" else 0
    cells[OVER] = 1
    time.sleep(60)  # until the benchmark ends all ranks: a collective of theirs would tell that this one has left


if __name__ == "__main__":
    main()
