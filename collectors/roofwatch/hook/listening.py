"""Listens to the ops of a graph capture: torch's own dispatch mode, on the capturing thread, while it captures.

A mode is seen by ops that are made of others: under one, some of torch's backward formulas write to fresh memory
instead of in place, so the graph would hold other kernels than without us. Forward work without gradients, and what
torch.compile made, runs the same kernels (tests/hook compares them). So captures with gradients on are not listened to,
unless ``ROOFWATCH_GRAPH_LOG=all`` says that this does not matter; ``off`` turns all of it off.

Of captures inside each other on one thread nobody can tell whose an op is: the outer log ends there, the inner is none.
"""

import os
from typing import Any

from . import launchers, modes
from .log import failure, log
from .oplog import OpLog


class Listener:
    """One capture, heard on the thread that made this object. Raises nothing."""

    def __init__(self, torch: Any) -> None:
        self.log = OpLog()
        self._on = False
        try:
            outer = launchers.current()
            if outer is not None:
                outer.over = outer.cut = True
                launchers.over(outer)
                modes.settle()
            elif _wanted(torch):
                self._on = launchers.note(torch, self.log) and modes.heard(torch, self.log)
        except Exception as error:
            failure("graph log", error)
        if not self._on:
            self.log.over = True
            launchers.over(self.log)

    def stop(self) -> None:
        """Hear no more, before the capture ends or once it never will; from another thread too."""
        self.log.over = True
        try:
            launchers.over(self.log)
            if self._on:
                modes.settle()
        except Exception as error:
            failure("graph log", error)


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
