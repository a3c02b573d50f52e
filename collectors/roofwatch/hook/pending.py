"""A call into the main thread, wherever it is in its Python code."""

import ctypes
import functools
from typing import Any, Callable


class PendingCall:
    """Something that Python calls on the main thread, between two of its bytecodes."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        python = ctypes.PyDLL(None)
        python.Py_AddPendingCall.argtypes = [ctypes.c_void_p, ctypes.py_object]
        # int PyObject_IsTrue(object) is what a pending call looks like: 0, or -1 with the exception set. A callback of
        # ctypes would print the exception instead, and leave the job a SystemError.
        self._call, self._true = python.Py_AddPendingCall, ctypes.cast(python.PyObject_IsTrue, ctypes.c_void_p)

    def soon(self) -> None:
        """Ask for it. Whoever asks keeps this object for as long as the process lives."""
        self._call(self._true, self)

    def asking(self) -> Callable[[], Any]:
        """``soon`` as a function that runs no bytecode, between two of which the call would come already."""
        return functools.partial(self._call, self._true, self)

    def __bool__(self) -> bool:
        self._act()
        return False
