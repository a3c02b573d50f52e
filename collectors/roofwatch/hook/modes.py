"""The dispatch mode that hears a capture's ops, and its place: on a thread's stack below every mode of the job.

Torch's modes are left by taking whatever is on top. At the bottom ours is never that: whatever the job enters and
leaves, and in whatever order, it takes its own. Only ours is taken out from there, by identity, wherever it is.

The stack is the thread's own. What ends elsewhere (on another thread, inside an op) leaves a mode that is over. The
next op on its thread takes it off: while torch calls a mode it holds it apart and puts it back afterwards, so that op
hands torch an object that torch lets go after that, and whose end puts the stack right.
"""

import operator
import sys
import threading
from collections import deque
from functools import partial
from typing import Any, Dict, List, Optional, Tuple

from .dynamo import skip_in_dynamo
from .log import failure, log
from .oplog import OpLog

_TRACING = frozenset({"FakeTensor", "FunctionalTensor"})  # something is compiled; nothing runs
_AFTER = "_roofwatch"  # among the arguments of a call that is over

_mode_class: Any = None
_here = threading.local()  # changing: this thread's stack is being put right


def heard(torch: Any, oplog: OpLog) -> bool:
    """Have this thread's ops noted until ``oplog`` is over. False where its stack is not to be touched."""
    if not _settle(None):
        return False
    # Torch's own modes have places of their own, the lowest: something is traced.
    if torch._C._len_torch_dispatch_stack() and hasattr(torch._C._get_dispatch_stack_at(0), "_mode_key"):
        log("graph log: captured while something is traced", once=True)
        return False
    return _settle(_mode(torch)(torch, oplog))


def settle() -> None:
    """On this thread: modes of ours that are over come off, others go to the bottom. Raises nothing.

    Also called when a graph is freed, which may be amid anything: not while torch itself changes the stack.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("_python_dispatch.py"):
            return  # the next op will
        frame = frame.f_back
    _settle(None)


class _After:
    """Puts the stack right when it is freed."""

    def __del__(self) -> None:
        _settle(None)


def _settle(fresh: Any) -> bool:
    """Put this thread's stack right, with ``fresh`` below all else. False where that is being done already."""
    if _mode_class is None and fresh is None:
        return True
    if getattr(_here, "changing", False):
        return False
    _here.changing = True
    try:
        _arrange(fresh)
        return True
    except Exception as error:
        failure("graph log", error)
        return False
    finally:
        _here.changing = False


def _arrange(fresh: Any) -> None:
    from torch import _C

    user = [_C._get_dispatch_stack_at(at) for at in range(_C._len_torch_dispatch_stack())]
    while user and hasattr(user[0], "_mode_key"):  # torch's own are always the lowest, and popped last
        user.pop(0)
    alive = [mode for mode in user if type(mode) is _mode_class and not mode.log.over]
    wanted = [] if fresh is None else [fresh]
    wanted += {id(mode): mode for mode in alive}.values()
    wanted += [mode for mode in user if type(mode) is not _mode_class]
    same = 0
    while same < min(len(user), len(wanted)) and user[same] is wanted[same]:
        same += 1
    steps: List[Any] = [partial(_C._pop_torch_dispatch_stack, None)] * (len(user) - same)
    steps += [partial(_C._push_on_torch_dispatch_stack, mode) for mode in wanted[same:]]
    # One call into C: no signal handler of the job, whose exception would leave the stack half done, comes between.
    deque(map(operator.methodcaller("__call__"), steps), maxlen=0)


def _mode(torch: Any) -> Any:
    """The class of the mode: made on first use, for it derives from torch's."""
    global _mode_class
    if _mode_class is None:
        _mode_class = _made(torch)
    return _mode_class


def _made(torch: Any) -> Any:
    from torch.utils import _python_dispatch as dispatch

    backward = getattr(torch._C, "_current_autograd_node", lambda: None)
    height = torch._C._len_torch_dispatch_stack
    overload = torch._ops.OpOverload

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

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            oplog, below = self.log, height()
            outer = oplog.inside
            try:
                if not oplog.over and (not self.host or _on_device(args, kwargs or {})):
                    number = _noted(oplog, func, types, args, kwargs or {}, backward() is not None)
                    oplog.inside = outer if number is None else number
            except Exception as error:
                oplog.over = oplog.cut = True
                failure("graph log", error)
            try:
                return func(*args, **kwargs) if kwargs else func(*args)
            finally:
                oplog.inside = outer
                # Over, or the op itself has left a mode of the job's on, which ours would come to lie on.
                if (oplog.over or height() != below) and kwargs is not None and isinstance(func, overload):
                    kwargs[_AFTER] = _After()  # torch made this dict for this call, and lets it go last
                    kwargs = None  # not kept by a traceback

    skip_in_dynamo(torch, RoofwatchOps.__torch_dispatch__, within=False)
    skip_in_dynamo(torch, _After.__del__)
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
