"""What kineto and torch would say on the job's stderr while the hook calls them: nothing."""

import ctypes
import os
from typing import Any, Optional, Tuple

_SILENT = 99  # above every severity that kineto knows
_FUNCTIONS = 8  # of a table that one class's objects share: c10::WarningHandler has three, two of them its destructor's


class Muted:
    """Kineto's messages off while the hook calls it, and on this thread torch's warnings; then all is put back.

    torch warns once a process where an op seems to end before it began: where the clock was set back in a window.
    """

    def __init__(self) -> None:
        self._old = 0
        self._warnings: Optional[_Warnings] = None  # held, since torch has its address
        self._handler: Any = None

    def __enter__(self) -> None:
        self._old = severity().value
        severity().value = _SILENT
        warnings = self._warnings = _torch_warnings()
        if warnings is not None:
            self._handler = warnings.get()
            warnings.set(warnings.silent)

    def __exit__(self, *_: object) -> None:
        if self._warnings is not None:
            self._warnings.set(self._handler)
        # Kineto's start sets the level itself: what it left is what the job would see.
        level = severity()
        if level.value == _SILENT:
            level.value = self._old


def severity() -> "ctypes.c_int":
    """Kineto's level of messages. Raises AttributeError or ValueError where the build does not export it."""
    global _severity
    if _severity is None:
        path = os.path.join(_libraries(), "libtorch_cpu.so")
        _severity = ctypes.c_int.in_dll(ctypes.CDLL(path), "_ZN9libkineto6Logger14severityLevel_E")
    return _severity


class _Warnings:
    """Who handles the warnings of a thread. Raises AttributeError or OSError where the build does not tell."""

    def __init__(self) -> None:
        core = ctypes.PyDLL(os.path.join(_libraries(), "libc10.so"))
        self.get = core._ZN3c1012WarningUtils19get_warning_handlerEv
        self.set = core._ZN3c1012WarningUtils19set_warning_handlerEPNS_14WarningHandlerE
        self.get.restype, self.get.argtypes = ctypes.c_void_p, []
        self.set.restype, self.set.argtypes = None, [ctypes.c_void_p]
        # An object of C++ is a pointer to its class's functions. Here each is one that does nothing, needs no GIL, and
        # takes no notice of what it is given.
        nothing = ctypes.cast(ctypes.CDLL(None).getppid, ctypes.c_void_p).value
        self._functions = (ctypes.c_void_p * _FUNCTIONS)(*[nothing] * _FUNCTIONS)
        self._object = ctypes.c_void_p(ctypes.addressof(self._functions))
        self.silent = ctypes.addressof(self._object)


def _torch_warnings() -> Optional[_Warnings]:
    """None where this build's cannot be turned off: they are few."""
    global _warnings
    if _warnings is None:
        try:
            _warnings = (_Warnings(),)
        except (AttributeError, OSError):
            _warnings = (None,)
    return _warnings[0]


def _libraries() -> str:
    import torch

    return os.path.join(os.path.dirname(torch.__file__), "lib")


_severity: "Optional[ctypes.c_int]" = None
_warnings: "Optional[Tuple[Optional[_Warnings]]]" = None
