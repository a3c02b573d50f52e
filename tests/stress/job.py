"""The jobs of the stress test: argv is a kind and a number of threads; ends when standard input closes."""

from __future__ import annotations

import faulthandler
import itertools
import os
import sys
import threading
import time

import torch

faulthandler.enable()
torch.set_num_threads(1)
over = threading.Event()


def busy() -> None:
    """Small ops without a pause: the thread is nearly always inside the profiler's callbacks."""
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    while not over.is_set():
        for _ in range(20):
            torch.add(a, b)


def short() -> None:
    """A thread that lives for a few ops."""
    a = torch.randn(4, 4)
    for _ in range(50):
        a = torch.mul(a, 1.0)


def churn() -> None:
    """Threads that come and go inside a window."""
    while not over.is_set():
        threads = [threading.Thread(target=short) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def long_ops() -> None:
    """Ops of tens of milliseconds, in flight over the cut and the close."""
    a = torch.randn(700, 700)
    while not over.is_set():
        torch.mm(a, a)


def backward() -> None:
    """Autograd of this thread's own graph."""
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)])
    x = torch.randn(4, 16)
    while not over.is_set():
        model(x).sum().backward()


def compiled() -> None:
    """A compiled function, compiled anew for new shapes."""
    torch._dynamo.config.recompile_limit = 1000  # each thread compiles its own, and torch would warn
    f = torch.compile(lambda x: (x * 2).relu().sum(), backend="eager", dynamic=False)
    for n in itertools.cycle(range(2, 5)):
        if over.is_set():
            return
        f(torch.randn(n, 4))


def forks() -> None:
    """Children that compute and leave by exit(), by _exit(), or after a window of their own profiler."""
    a = torch.randn(4, 4)
    for n in itertools.count():
        if over.is_set():
            return
        pid = os.fork()
        if pid == 0:
            torch.add(a, a)
            if n % 3 == 0:
                os._exit(0)
            if n % 3 == 1:
                with torch.profiler.profile():
                    torch.add(a, a)
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            print(f"child {n} ended with status {status}", file=sys.stderr)
            os._exit(3)


def steps() -> None:
    """A training loop whose data come from forked workers."""
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(8)])
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(512, 32))
    while not over.is_set():
        for (x,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if over.is_set():
                return


def main() -> None:
    """Run the threads until standard input closes."""
    kind, number = sys.argv[1], int(sys.argv[2])
    alone = {"forks": forks, "steps": steps}.get(kind)
    work = {"busy": busy, "churn": churn, "long": long_ops, "backward": backward, "compile": compiled}.get(kind, busy)
    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    if os.environ.get("STRESS_CONTROL"):
        unsafe()
    from roofwatch.hook import attach  # noqa: PLC0415 - after the threads: nothing may depend on the order

    attach(model=f"stress-{kind}")
    # os.read: a forked child would hang on the lock of sys.stdin that this thread holds
    reader = threading.Thread(target=lambda: (os.read(0, 1), over.set()), daemon=True)
    reader.start()
    if alone:
        alone()
    over.wait()
    for thread in threads:
        thread.join()


def unsafe() -> None:
    """The control: close windows as torch does, while the threads run. Must crash, or this test proves nothing."""
    from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler  # noqa: PLC0415
    from torch._C._profiler import (  # noqa: PLC0415
        ProfilerActivity,
        ProfilerConfig,
        ProfilerState,
        _ExperimentalConfig,
    )

    extra = _ExperimentalConfig(profile_all_threads=True)
    config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, extra, "")
    for _ in range(int(os.environ["STRESS_CONTROL"])):
        _prepare_profiler(config, {ProfilerActivity.CPU})
        _enable_profiler(config, {ProfilerActivity.CPU})
        time.sleep(0.003)
        _disable_profiler()
    os._exit(0)


if __name__ == "__main__":
    main()
