"""Listens to the ops of a graph capture: torch's own dispatch mode, on the capturing thread, while it captures.

A mode is seen by ops that are made of others: under one, some of torch's backward formulas write to fresh memory
instead of in place, so the graph would hold other kernels than without us. Forward work without gradients, and what
torch.compile made, runs the same kernels (tests/hook compares them). So captures with gradients on are not listened to,
unless ``ROOFWATCH_GRAPH_LOG=all`` says that this does not matter; ``off`` turns all of it off.
"""

import functools
import os
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from .dynamo import skip_in_dynamo
from .log import failure, log
from .oplog import OpLog

# Where compiled code and jobs launch kernels by name, without an op: module, class, how a kernel is named.
_LAUNCHERS: Tuple[Tuple[str, str, Callable[[Any], Any]], ...] = (
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", lambda kernel: kernel.fn.__name__),
    ("triton.runtime.jit", "JITFunction", lambda kernel: kernel.__name__),
)
_TRACING = frozenset({"FakeTensor", "FunctionalTensor"})  # something is compiled; nothing runs

_mode_class: Any = None


class Listener:
    """One capture, heard on the thread that made this object. Raises nothing."""

    def __init__(self, torch: Any) -> None:
        self.log = OpLog()
        self._thread = threading.get_ident()
        self._mode: Any = None
        self._wrapped: List[Tuple[Any, Any, Any]] = []
        try:
            if _wanted(torch):
                mode = _mode(torch)(torch, self.log)
                mode.__enter__()
                self._mode = mode
                self._wrap_launchers(torch)
        except Exception as error:
            failure("graph log", error)
            self.stop()

    def stop(self) -> None:
        """Hear no more, before the capture ends. The mode stays on, deaf, where the job has put another on top."""
        self.log.over = True
        for kind, run, ours in self._wrapped:
            if kind.__dict__.get("run") is ours:
                kind.run = run
        self._wrapped = []
        mode, self._mode = self._mode, None
        try:
            if mode is not None and self._thread == threading.get_ident() and mode.on_top():
                mode.__exit__(None, None, None)
        except Exception as error:
            failure("graph log", error)

    def _wrap_launchers(self, torch: Any) -> None:
        for module, name, named in _LAUNCHERS:
            kind: Any = getattr(sys.modules.get(module), name, None)
            run = None if kind is None else kind.__dict__.get("run")
            if run is not None:
                ours = _launching(run, named, self.log)
                skip_in_dynamo(torch, ours, within=False)
                self._wrapped.append((kind, run, ours))
                kind.run = ours


def _wanted(torch: Any) -> bool:
    """Whether this torch has a mode that compiled code and higher-order ops pass through unharmed, and may be heard."""
    setting = os.environ.get("ROOFWATCH_GRAPH_LOG", "")
    if setting == "off" or (setting != "all" and torch.is_grad_enabled()):
        return False
    from torch.utils import _python_dispatch

    kind = _python_dispatch.TorchDispatchMode
    known = hasattr(kind, "supports_higher_order_operators") and hasattr(kind, "ignore_compile_internals")
    if not known:
        log("graph log: torch %s has no mode that is safe here" % torch.__version__, once=True)
    return known


def _launching(run: Callable[..., Any], named: Callable[[Any], Any], oplog: OpLog) -> Callable[..., Any]:
    """A launcher's ``run`` that notes the kernel once it has launched."""

    @functools.wraps(run)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        try:
            if not oplog.over and not kwargs.get("warmup"):
                oplog.kernel(str(named(self)), args)
        except Exception as error:
            oplog.over = oplog.cut = True
            failure("graph log", error)
        return result

    return call


def _mode(torch: Any) -> Any:
    """The class of the mode: made on first use, for it derives from torch's."""
    global _mode_class
    if _mode_class is None:
        _mode_class = _made(torch)
    return _mode_class


def _made(torch: Any) -> Any:
    from torch.utils import _python_dispatch as dispatch

    backward = getattr(torch._C, "_current_autograd_node", lambda: None)

    class RoofwatchOps(dispatch.TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True  # they pass through like ops

        def __init__(self, torch: Any, oplog: OpLog) -> None:
            super().__init__()
            self.log = oplog
            self.host = torch.cuda.is_initialized()  # whether there are ops of the host to tell from the device's

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True  # else torch.compile would fall back to eager under us

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch would import dynamo for us; our frame is skipped by its code instead

        def on_top(self) -> bool:
            return dispatch._get_current_dispatch_mode() is self

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            oplog = self.log
            if oplog.over:
                return func(*args, **kwargs) if kwargs else func(*args)
            outer = oplog.inside
            try:
                if not self.host or _on_device(args, kwargs or {}):
                    number = _noted(oplog, func, types, args, kwargs or {}, backward() is not None)
                    oplog.inside = outer if number is None else number
            except Exception as error:
                oplog.over = oplog.cut = True
                failure("graph log", error)
            try:
                return func(*args, **kwargs) if kwargs else func(*args)
            finally:
                oplog.inside = outer

    skip_in_dynamo(torch, RoofwatchOps.__torch_dispatch__, within=False)
    return RoofwatchOps


def _noted(
    oplog: OpLog, func: Any, types: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], backward: bool
) -> Optional[int]:
    """Note a call; of one on tensor subclasses, whose sizes may not be the kernels', the name alone."""
    foreign = [kind.__name__ for kind in types]
    if any(name in _TRACING for name in foreign):
        return None
    name = func.name().partition(".")[0]
    if foreign:
        return oplog.op(name, (func, "subclass"), None, (), {}, backward)
    return oplog.op(name, func, getattr(func, "_schema", None), args, kwargs, backward)


def _on_device(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether an op has to do with a device: one of its tensors lives there, or it is asked to make one there."""
    for value in (*args, *kwargs.values()):
        for entry in value if isinstance(value, (list, tuple)) else (value,):
            where = getattr(entry, "device", entry)  # an argument may be a device itself
            if getattr(where, "type", "cpu") not in ("cpu", "meta") and hasattr(where, "index"):
                return True
    return False
