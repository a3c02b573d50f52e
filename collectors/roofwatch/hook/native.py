"""The profiler's own C++ functions, called without the GIL, on builds of torch where this was proved by tests/stress.

An exception thrown by one of them would end the process, so each is called only in the state in which it cannot throw.
"""

import ctypes
import os
import platform
import threading
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Set

from . import quiesce
from .muted import Muted

# torch version, machine, flavour: tests/stress has passed there, 1,000 windows a configuration.
PROVED = frozenset({("2.13", "x86_64", "cpu")})

_PROFILER = "_ZN5torch8autograd8profiler"
_STATE = "_ZN5torch8profiler4impl17ProfilerStateBase"
_STRING = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"  # the new ABI's std::string
_LOADER_NS = 20_000_000  # of CPU time: many times what reading a small file takes
_PROFILER_AT, _CLIENT_AT, _THREAD_AT = 8, 16, 24  # LibkinetoApi in torch/include/kineto/libkineto.h

_ptr = ctypes.c_void_p


class _String(ctypes.Structure):
    """A std::string of the new ABI that points to text it does not own."""

    _fields_ = [("text", _ptr), ("size", ctypes.c_size_t), ("capacity", ctypes.c_size_t), ("padding", ctypes.c_size_t)]


class Shared(ctypes.Structure):
    """A std::shared_ptr; this object is its only owner, and never releases it by itself."""

    _fields_ = [("object", _ptr), ("control", _ptr)]


def flavour(torch: Any) -> str:
    """Which build this is: ``cpu``, ``cuda`` or ``rocm``."""
    if getattr(torch.version, "hip", None):
        return "rocm"
    return "cuda" if getattr(torch.version, "cuda", None) else "cpu"


def proved(torch: Any) -> bool:
    """Whether the GIL-free close was tested on this build of torch."""
    version = ".".join(str(torch.__version__).split("+")[0].split(".")[:2])
    return (version, platform.machine(), flavour(torch)) in PROVED


class ConfigLoader:
    """Kineto's thread that only rereads its configuration file. Raises AttributeError or OSError where there is none.

    Kineto's first use starts it. A forked child that leaves by ``exit()`` would hang in the destructor of the object
    that it waits on. So it is ended soon after, whichever way windows are closed.
    """

    def __init__(self, torch: Any) -> None:
        path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
        self._instance = _bind(ctypes.PyDLL(path), "_ZN9libkineto12ConfigLoader8instanceEv", _ptr)
        self._stop = _bind(ctypes.CDLL(path), "_ZN9libkineto12ConfigLoader10stopThreadEv", None, _ptr)
        self._new: Set[int] = set()

    @contextmanager
    def first_use(self, started: bool) -> Iterator[None]:
        """Around a call that starts kineto where it is not ``started``: note the threads that come meanwhile."""
        before = None if started else quiesce.threads()
        yield
        if before is not None:
            self._new = quiesce.threads() - before

    def end(self) -> None:
        """End it. Kineto's own stop can miss a thread that does not wait yet, so wait for that first, at most 2 s.

        What has computed is another of the job's threads and not waited for, nor are a forked child's parent's threads.
        """
        if self._new:
            self._new = {tid for tid in self._new & quiesce.threads() if (quiesce.cpu_ns(tid) or 0) < _LOADER_NS}
        if self._new and quiesce.asleep(self._new, most=2.0):
            self._new = set()
            self._stop(self._instance())


class Native:
    """The functions of one loaded libtorch. Raises AttributeError or OSError where this build lacks one of them."""

    def __init__(self, torch: Any) -> None:
        folder = os.path.join(os.path.dirname(torch.__file__), "lib")
        path = os.path.join(folder, "libtorch_cpu.so")
        free, held = ctypes.CDLL(path), ctypes.PyDLL(path)  # without and with the GIL; what takes microseconds keeps it
        core = ctypes.PyDLL(os.path.join(folder, "libc10.so"))
        self._disable = _bind(free, _PROFILER + "15disableProfilerEv", _ptr, _ptr)
        self._save = _bind(free, _PROFILER + "14ProfilerResult4saveE" + _STRING, None, _ptr, _ptr)
        self._destroy = _bind(free, _PROFILER + "14ProfilerResultD1Ev", None, _ptr)
        self._delete = _bind(ctypes.CDLL("libstdc++.so.6"), "_ZdlPv", None, _ptr)
        self._get = _bind(held, _STATE + "3getEb", _ptr, ctypes.c_bool)
        self._remove = _bind(held, _STATE + "14removeCallbackEv", None, _ptr)
        self._pop = _bind(held, _STATE + "3popEb", _ptr, _ptr, ctypes.c_bool)
        push = "_ZN3c1020ThreadLocalDebugInfo5_pushENS_13DebugInfoKindESt10shared_ptrINS_13DebugInfoBaseEE"
        self._push = _bind(core, push, None, _ptr, _ptr)
        self._kind = _ptr.in_dll(core, "_ZN3c1013DebugInfoKind14PROFILER_STATEE").value
        self._api = _bind(held, "_ZN9libkineto3apiEv", _ptr)
        self._register = _bind(
            held, "_ZN9libkineto12LibkinetoApi14registerClientEPNS_15ClientInterfaceE", None, _ptr, _ptr
        )
        self.loader = ConfigLoader(torch)

    def active(self) -> bool:
        """Whether a profiler that records all threads is open, whoever opened it."""
        return bool(self._get(True))

    def cut(self) -> None:
        """Stop recording: no thread begins another event. What is in flight still ends in the window's memory."""
        state = self._get(True)
        if state:
            self._remove(state)

    def detach(self) -> Optional[Shared]:
        """Take the open state out of every thread's sight; from now on only a callback under way can touch it."""
        state = Shared()
        self._pop(ctypes.addressof(state), True)
        return state if state.object else None

    def close(self, state: Shared) -> Optional[int]:
        """End the detached window on this thread: its result, to be saved at most once and freed. Without the GIL.

        The state goes in as this thread's own profiler, where only ``disableProfiler`` looks: it is never again
        visible to threads that may still be inside an op that began in the window.
        """
        slot = _ptr(0)
        with Muted():
            self._push(self._kind, ctypes.addressof(state))
            self._disable(ctypes.addressof(slot))
        return slot.value

    def save(self, result: int, path: str) -> None:
        """Write the trace; kineto writes ``path + ".tmp"`` and renames it. A second save of one result would throw."""
        text = os.fsencode(path)
        buffer = ctypes.create_string_buffer(text)
        string = _String(ctypes.addressof(buffer), len(text), len(text), 0)
        with Muted():
            self._save(result, ctypes.addressof(string))

    def free(self, result: Optional[int]) -> None:
        """Destroy a result. Without the GIL."""
        if result:
            self._destroy(result)
            self._delete(result)

    def adopt(self, importer: int) -> bool:
        """Let this thread be the one that starts kineto, which else complains on stderr; False where it cannot be.

        Kineto compares the thread of its first use with the one that registered torch as its client, at import. So
        torch's client is registered again, from here, through kineto's own function. Call before the first window.
        """
        if threading.get_ident() == importer:
            return True
        if self.started():
            return True
        api = self._api()
        client = _ptr.from_address(api + _CLIENT_AT).value
        thread = ctypes.c_int32.from_address(api + _THREAD_AT).value
        if not client or thread != ctypes.c_int32(importer & 0xFFFFFFFF).value:
            return False  # not the layout that was tested, or torch was imported by a thread that we do not know
        self._register(api, client)
        return True

    def started(self) -> bool:
        """Whether kineto has been used in this process."""
        return bool(_ptr.from_address(self._api() + _PROFILER_AT).value)


def _bind(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, list(arguments)
    return function
