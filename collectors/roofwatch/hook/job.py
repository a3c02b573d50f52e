"""Puts the hook into a process that has imported torch."""

import os
import sys
from typing import Any, Dict, Mapping, Optional

from . import guard, identity, npu, npu_guard
from .capture import Capture, Captures
from .dynamo import skip_in_dynamo
from .log import failure
from .paths import choose
from .process import Process
from .session import Session
from .steps import Steps
from .window import Taker

# Programs that start ranks or compile kernels: they import torch and never run a model.
_LAUNCHERS = frozenset({"torchrun", "torch_npu_run", "accelerate", "deepspeed", "horovodrun", "mpirun"})
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch_npu.distributed.run",
    "accelerate.commands",
    "deepspeed.launcher",
)

_hook: "Optional[Hook]" = None


class Hook:
    """Everything the hook holds in this process."""

    def __init__(self, torch: Any, model: Optional[str], labels: Mapping[str, str]) -> None:
        self.torch, self.model, self.labels = torch, model, dict(labels)
        self.steps = Steps(self._boundary)
        path = choose(torch)
        self.taker = Taker(path, self.steps, Captures(torch, self._capture_begins))
        self.npu = False  # the job computes on one
        self.explicit = False  # attach() was called: whatever this process is, it is to be seen
        self.session = Session(self.taker, self._describe, self._welcome, self._accelerate)
        if path.bindings is not None:
            guard.install(torch, path.bindings, self.taker)
        from torch.optim.optimizer import register_optimizer_step_post_hook

        hook = self.steps.hook(getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False))
        skip_in_dynamo(torch, hook)
        register_optimizer_step_post_hook(hook)
        self.process = Process(self.taker, self.session)

    def _boundary(self, count: int) -> None:
        if (self.session.running is None or not self.session.alive) and not is_worker():
            self.session.live()
            if self.session.running is None:  # the thread before it has not ended yet
                self.steps.at = count + 1
        self.taker.boundary(count)

    def _welcome(self) -> bool:
        # Again here: under ``python -m`` a launcher imports torch before its own module is __main__.
        return not is_worker() and (self.explicit or not is_launcher())

    def _capture_begins(self, capture: Capture) -> None:
        self.taker.capture_begins(capture)

    def _describe(self) -> Dict[str, Any]:
        self._accelerate()
        vendor = getattr(self.taker.path, "vendor", None)
        return identity.describe(self.torch, self.model, self.labels, self.taker.path.name, vendor)

    def _accelerate(self) -> bool:
        """Once the job computes on an NPU, its windows are torch_npu's. Whether this has just become so.

        Not before: torch is imported long before the job has chosen and started its device.
        """
        if self.npu or not npu.used(self.torch):
            return False
        path = npu.choose(self.torch)
        if not self.taker.change(path):
            return False
        self.npu = True
        if isinstance(path, npu.NpuPath):
            path.exiting = lambda: self.taker.exiting
            path.stop = lambda: self.taker.exiting or self.taker.hurry or self.session.gone()
            npu_guard.install(path.vendor, self.taker, path)
            self.process.leave_first()
        return True


def attach(model: Optional[str] = None, labels: Optional[Mapping[str, str]] = None, explicit: bool = True) -> None:
    """Attach this process. Raises nothing; a second call only renames."""
    try:
        _attach(model, labels or {}, explicit)
    except Exception as error:
        failure("attach", error)


def _attach(model: Optional[str], labels: Mapping[str, str], explicit: bool) -> None:
    global _hook
    if _hook is not None:
        _hook.model = model or _hook.model
        _hook.labels.update(labels)
    elif explicit or not is_launcher():
        import torch

        named = dict(identity.labels_of(os.environ), **labels)
        _hook = Hook(torch, model or os.environ.get("ROOFWATCH_MODEL"), named)
    if _hook is not None and not is_worker():
        if explicit:
            _hook.explicit = True
            _hook.session.live()
        else:
            _hook.session.begin()


def is_launcher() -> bool:
    """Whether this process only starts others."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", None) or ""
    script = sys.argv[0] if getattr(sys, "argv", None) else ""
    return name.startswith(_LAUNCHER_MODULES) or os.path.basename(script) in _LAUNCHERS or "compile_worker" in script


def is_worker() -> bool:
    """Whether this process loads data for another."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(worker, "_worker_info", None) is not None
