"""Processes that leave at a random moment of a window: each is forked from one that has torch, attaches, and exits.

argv: how many. Prints one JSON object: how many ended in which way, and how long the hook
held one back at most.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import random
import sys
import threading
import time
from collections import Counter

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

faulthandler.enable()
torch.set_num_threads(1)


def child(seed: int, pipe: int) -> None:
    """Compute in some threads, and leave between 20 and 140 ms after attaching: before, in and after windows."""
    atexit.register(lambda: os.write(pipe, b"%d " % time.monotonic_ns()))  # runs after the hook's own
    from roofwatch.hook import attach  # noqa: PLC0415

    attach(model="stress-exit")
    atexit.register(lambda: os.write(pipe, b"%d " % time.monotonic_ns()))  # and this one before it
    chance = random.Random(seed)
    end = time.monotonic() + 0.02 + chance.random() * 0.12
    over = threading.Event()

    def busy() -> None:
        a = torch.randn(4, 4)
        while not over.is_set():
            torch.add(a, a)

    threads = [threading.Thread(target=busy) for _ in range(chance.choice((0, 1, 3)))]
    for thread in threads:
        thread.start()
    steps = chance.random() < 0.5
    optimizer = Optimizer()
    a = torch.randn(16, 16)
    while time.monotonic() < end:
        torch.mul(a, a)
        if steps:
            optimizer.step()
    over.set()  # Python 3.11 itself ends a process whose daemon threads are inside torch at exit
    for thread in threads:
        thread.join()


class Optimizer:
    """Only its post hooks: the real one imports torch._dynamo, which makes every exit a second longer."""

    def step(self) -> None:
        """What torch.optim does after a step."""
        for hook in list(_global_optimizer_post_hooks.values()):
            hook(self, (), {})


def main() -> None:
    """Fork the children one by one."""
    ends: Counter[str] = Counter()
    longest = 0
    for seed in range(int(sys.argv[1])):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            child(seed, write)
            sys.exit(7)
        os.close(write)
        _, status = os.waitpid(pid, 0)
        with os.fdopen(read) as pipe:
            stamps = [int(stamp) for stamp in pipe.read().split()]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7 and len(stamps) == 2:
            ends["clean"] += 1
            longest = max(longest, stamps[1] - stamps[0])
        else:
            ends[f"status {status}"] += 1
    print(json.dumps({"ends": ends, "longest_ms": longest / 1e6}))


if __name__ == "__main__":
    main()
